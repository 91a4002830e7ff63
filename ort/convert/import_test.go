package convert_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/convert"
	"github.com/draftmill/draftmill/ort/library"
)

func TestMain(m *testing.M) {
	path, err := library.Find("")
	if err == nil {
		err = ort.Init(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// golden is what transformers computes of a checkpoint in testdata, in float32.
type golden struct {
	Text, Branch []int32
	At, K, Vocab int
	whole, other []float32
}

func readGolden(t *testing.T, name string) *golden {
	t.Helper()
	g := &golden{}
	data, err := os.ReadFile(filepath.Join("testdata", "golden", "golden.json"))
	if err == nil {
		err = json.Unmarshal(data, g)
	}
	if err == nil {
		data, err = os.ReadFile(filepath.Join("testdata", "golden", name+".f32"))
	}
	if err != nil {
		t.Fatal(err)
	}
	logits := make([]float32, len(data)/4)
	for i := range logits {
		logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	if len(logits) != (len(g.Text)+len(g.Branch))*g.Vocab {
		t.Fatalf("%d golden logits of %s", len(logits), name)
	}
	g.whole, g.other = logits[:len(g.Text)*g.Vocab], logits[len(g.Text)*g.Vocab:]
	return g
}

// relative is the largest error of a position's logits over their largest
// magnitude, for the worst position.
func relative(got, want []float32, vocab int) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	worst := 0.0
	for p := 0; p < len(want); p += vocab {
		off, size := 0.0, 0.0
		for i := p; i < p+vocab; i++ {
			x, y := float64(got[i]), float64(want[i])
			if math.IsNaN(x) {
				return math.Inf(1)
			}
			off, size = max(off, math.Abs(x-y)), max(size, math.Abs(y))
		}
		worst = max(worst, off/size)
	}
	return worst
}

func importT(t *testing.T, src string, o convert.Options) (string, *convert.Report) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "model")
	r, err := convert.Import(t.Context(), src, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	return dst, r
}

func decoderT(t *testing.T, dir string) *ort.Decoder {
	t.Helper()
	bundle, err := ort.OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	model, err := ort.Load(bundle, ort.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := model.Close(); err != nil {
			t.Error(err)
		}
	})
	d, err := model.NewDecoder(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// forward feeds tokens behind past ones.
func forward(t *testing.T, d *ort.Decoder, slot, past int, tokens []int32) []float32 {
	t.Helper()
	logits, err := d.Forward(t.Context(), []ort.Span{{Slot: slot, Past: past, Tokens: tokens, Rows: len(tokens)}})
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), logits...)
}

// compare holds a model to golden logits: the whole text at once, token by
// token, and K+1 at a time with another branch taken back in between.
func (g *golden) compare(t *testing.T, d *ort.Decoder, allowed float64) {
	t.Helper()
	slot, err := d.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(slot)
	check := func(what string, got, want []float32) {
		t.Helper()
		if off := relative(got, want, g.Vocab); !(off <= allowed) {
			t.Errorf("%s: %.2g off, at most %.2g is allowed", what, off, allowed)
		} else {
			t.Logf("%s: %.2g off", what, off)
		}
	}
	check("the whole text", forward(t, d, slot, 0, g.Text), g.whole)
	var single []float32
	for i := range g.Text {
		single = append(single, forward(t, d, slot, i, g.Text[i:i+1])...)
	}
	check("token by token", single, g.whole)
	several := forward(t, d, slot, 0, g.Text[:g.At])
	check("a branch", forward(t, d, slot, g.At, g.Branch), g.other)
	for at := g.At; at < len(g.Text); at += g.K + 1 {
		several = append(several, forward(t, d, slot, at, g.Text[at:min(at+g.K+1, len(g.Text))])...)
	}
	check("several at a time after a rollback", several, g.whole)
}

var checkpoints = []string{"llama", "llama3", "llama-linear", "mistral", "qwen2", "qwen2-yarn", "qwen3", "smollm3", "phi3", "gemma2", "gpt2"}

// TestLogits: an import in float32 gives transformers' logits, for every
// architecture.
func TestLogits(t *testing.T) {
	for _, name := range checkpoints {
		t.Run(name, func(t *testing.T) {
			dir, _ := importT(t, filepath.Join("testdata", name), convert.Options{Precision: "fp32"})
			readGolden(t, name).compare(t, decoderT(t, dir), 1e-4)
		})
	}
}

// TestGGUF: the same from GGUF files.
func TestGGUF(t *testing.T) {
	for _, name := range []string{"llama", "llama3", "qwen2", "qwen2-yarn", "qwen3", "smollm3", "phi3", "gemma2", "gpt2"} {
		t.Run(name, func(t *testing.T) {
			dir, _ := importT(t, filepath.Join("testdata", "gguf", name+".gguf"), convert.Options{Precision: "fp32"})
			readGolden(t, name).compare(t, decoderT(t, dir), 1e-4)
		})
	}
}
