package tokenize

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mutations is how many damaged files a test reads: few, or as many as MUTATIONS says.
func mutations(t testing.TB, few int) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("MUTATIONS"))
	if err != nil {
		return few
	}
	return n
}

// odd are values that nobody expects.
func odd(r *rand.Rand) any {
	values := []any{
		nil, true, "", "x", "\u0000", "☢", 0, -1, 1.5, math.MaxInt32, 1 << 24, 1e300, json.Number("123456789012345678901234567890"),
		[]any{}, map[string]any{}, []any{nil}, []any{[]any{}, "x", -1}, map[string]any{"type": "BPE"}, map[string]any{"type": 3}, map[string]any{"Regex": "("},
		map[string]any{"Regex": "(a+)+$"}, map[string]any{"Regex": strings.Repeat("(", 2000)}, map[string]any{"String": ""}, strings.Repeat("a", 1<<16), strings.Repeat("[", 1<<12),
		map[string]any{"type": "Sequence", "normalizers": []any{map[string]any{"type": "Sequence", "normalizers": nil}}},
		map[string]any{"type": "Replace", "pattern": map[string]any{"String": ""}, "content": "xx"},
	}
	return values[r.IntN(len(values))]
}

// warp changes one node of a JSON value: it goes down by chance and changes what
// it ends at.
func warp(r *rand.Rand, node any) any {
	if r.IntN(5) == 0 {
		return odd(r)
	}
	switch node := node.(type) {
	case map[string]any:
		if len(node) == 0 {
			return odd(r)
		}
		keys := slices.Sorted(maps.Keys(node))
		key := keys[r.IntN(len(keys))]
		switch r.IntN(8) {
		case 0:
			delete(node, key)
		case 1:
			node[key] = node[keys[r.IntN(len(keys))]]
		case 2:
			node[key+"x"] = node[key]
		default:
			node[key] = warp(r, node[key])
		}
		return node
	case []any:
		if len(node) == 0 {
			return odd(r)
		}
		at := r.IntN(len(node))
		switch r.IntN(6) {
		case 0:
			return slices.Delete(node, at, at+1)
		case 1:
			return append(node, node[at])
		}
		node[at] = warp(r, node[at])
		return node
	case float64:
		return []any{-node, node + 1, min(node*1e6, 1e300), node / 3, float64(1 << 31), strconv.Itoa(int(node))}[r.IntN(6)]
	}
	return odd(r)
}

// damage makes the n-th damaged file of a whole one.
func damage(t testing.TB, whole []byte, n int) []byte {
	r := rand.New(rand.NewPCG(11, uint64(n)))
	if n%4 == 0 { // bytes
		bad := slices.Clone(whole)
		switch r.IntN(3) {
		case 0:
			return bad[:r.IntN(len(bad))]
		case 1:
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		default:
			at := r.IntN(len(bad))
			bad = append(bad[:at], bad[min(len(bad), at+1+r.IntN(30)):]...)
		}
		return bad
	}
	var tree any
	if err := json.Unmarshal(whole, &tree); err != nil {
		t.Fatal(err)
	}
	for range 1 + r.IntN(3) {
		tree = warp(r, tree)
	}
	bad, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return bad
}

var families = []string{"gpt2", "llama2", "llama3", "qwen2", "bert", "clip", "unigram", "prefixed"}

// What a damaged file, and a text through it, may take at the most.
const (
	mostBytes = 256 << 20
	mostTime  = 20 * time.Second
)

// A damaged tokenizer.json is an error in one line, or a tokenizer that encodes
// and decodes, in bounded time and memory.
func TestDamagedFiles(t *testing.T) {
	wholes := map[string][]byte{}
	for _, name := range families {
		wholes[name] = readFile(t, testdata+"/"+name+".json")
	}
	refused := 0
	for n := range mutations(t, 120) {
		name := families[n%len(families)]
		bad := damage(t, wholes[name], n)
		what := fmt.Sprintf("%s, mutation %d", name, n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		if err := through(bad); err != nil {
			refused++
			if strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 2*longestError {
				t.Errorf("%s: not one line of error: %.300q", what, err)
			}
		}
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > mostBytes || took > mostTime {
			t.Errorf("%s: took %v and %d MB", what, took, grown>>20)
		}
	}
	t.Logf("%d were refused", refused)
	if refused == 0 {
		t.Error("nothing was refused: the files are not damaged")
	}
}

// through reads a file and puts texts through it.
func through(file []byte) error {
	t, err := parse(file)
	if err != nil {
		return err
	}
	for _, text := range []string{"def f(x):\n    return x + 1\n", " héllo  wörld 12345 <|endoftext|>", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", ""} {
		ids, err := t.Encode(text)
		if err != nil {
			return err
		}
		t.Decode(ids, true)
	}
	return nil
}

// FuzzParse: bytes are an error or a tokenizer, and never a crash.
func FuzzParse(f *testing.F) {
	for i, name := range families {
		whole := readFile(f, testdata+"/"+name+".json")
		f.Add(whole)
		for n := range 4 {
			f.Add(damage(f, whole, 10*i+n))
		}
	}
	f.Fuzz(func(_ *testing.T, file []byte) { _ = through(file) })
}
