package tokenize

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const (
	testdata = "../../testdata/tokenizers"
	demo     = "../../testdata/demo/target/tokenizer.json"
)

// trained are the tokenizers of make_golden.py, each with exactly the sections of the well-known one that it is named after.
var trained = []string{"gpt2", "llama3", "qwen2", "llama2", "unigram", "bert", "clip", "prefixed"}

func unzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readJSON(t testing.TB, data []byte, dst any) {
	t.Helper()
	if err := json.Unmarshal(data, dst); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func texts(t testing.TB) []string {
	t.Helper()
	var all []string
	readJSON(t, unzip(t, filepath.Join(testdata, "texts.json.gz")), &all)
	return all
}

func load(t testing.TB, name string) *Tokenizer {
	t.Helper()
	path := filepath.Join(testdata, name+".json")
	if name == "demo" {
		path = demo
	}
	tok, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// variants are the tokenizers of variants.json: a trained one with some sections replaced.
func variants(t testing.TB) map[string]*Tokenizer {
	t.Helper()
	var list []struct {
		Name, Base      string
		Sections, Model map[string]json.RawMessage
	}
	readJSON(t, readFile(t, filepath.Join(testdata, "variants.json")), &list)
	out := map[string]*Tokenizer{}
	for _, v := range list {
		var file, model map[string]json.RawMessage
		readJSON(t, readFile(t, filepath.Join(testdata, v.Base+".json")), &file)
		readJSON(t, file["model"], &model)
		for k, x := range v.Model {
			model[k] = x
		}
		for k, x := range v.Sections {
			file[k] = x
		}
		var err error
		if file["model"], err = json.Marshal(model); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		if out[v.Name], err = parse(data); err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
	}
	return out
}

// encoding is what the Rust implementation makes of one text.
type encoding struct {
	ids, plain []int32
	skip, all  string // decoded
}

// sequence is what it makes of random ids.
type sequence struct {
	IDs  []int32
	Skip string
	All  *string
}

func (e *encoding) read(t testing.TB, line []byte, text string) {
	t.Helper()
	var raw [4]json.RawMessage
	readJSON(t, line, &raw)
	readJSON(t, raw[0], &e.ids)
	e.plain, e.skip = e.ids, text
	if string(raw[1]) != "null" {
		e.plain = nil
		readJSON(t, raw[1], &e.plain)
	}
	if string(raw[2]) != "0" {
		readJSON(t, raw[2], &e.skip)
	}
	if e.all = e.skip; string(raw[3]) != "null" {
		readJSON(t, raw[3], &e.all)
	}
}

func goldens(t testing.TB, name string) (encodings []encoding, sequences []sequence) {
	t.Helper()
	all := texts(t)
	lines := bufio.NewScanner(bytes.NewReader(unzip(t, filepath.Join(testdata, "golden", name+".jsonl.gz"))))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := lines.Bytes(); line[0] == '[' {
			var e encoding
			e.read(t, line, all[len(encodings)])
			encodings = append(encodings, e)
		} else {
			var s sequence
			readJSON(t, line, &s)
			if s.All == nil {
				s.All = &s.Skip
			}
			sequences = append(sequences, s)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(encodings) < 400 || len(sequences) < 100 {
		t.Fatalf("golden/%s.jsonl.gz has %d encodings and %d sequences: too few, was make_golden.py interrupted?", name, len(encodings), len(sequences))
	}
	return encodings, sequences
}

func TestTrained(t *testing.T) {
	// The demo's golden file belongs to the demo's tokenizer as it was when make_golden.py ran: run it again after making the demo again.
	for _, name := range append([]string{"demo"}, trained...) {
		t.Run(name, func(t *testing.T) { compare(t, name, load(t, name)) })
	}
}

func TestVariants(t *testing.T) {
	for name, tok := range variants(t) {
		t.Run(name, func(t *testing.T) { compare(t, name, tok) })
	}
}

// compare checks everything in a golden file: ids, decoded text, and streams.
func compare(t *testing.T, name string, tok *Tokenizer) {
	encodings, sequences := goldens(t, name)
	all := texts(t)
	bad := 0
	report := func(format string, args ...any) {
		t.Helper()
		if bad++; bad <= 5 {
			t.Errorf(format, args...)
		}
	}
	for i, want := range encodings {
		text := all[i]
		// Twice: the second time from the cache.
		for _, run := range []string{"first", "second"} {
			if got, err := tok.Encode(text); err != nil || !slices.Equal(got, want.ids) {
				report("Encode(%q), %s time: %v, %v; want %v", text, run, tok.spell(got), err, tok.spell(want.ids))
			}
		}
		if got, err := tok.EncodePlain(text); err != nil || !slices.Equal(got, want.plain) {
			report("EncodePlain(%q) = %v, %v; want %v", text, tok.spell(got), err, tok.spell(want.plain))
		}
		if got := tok.Decode(want.ids, true); got != want.skip {
			report("Decode(%v, true) = %q; want %q", tok.spell(want.ids), got, want.skip)
		}
		if got := tok.Decode(want.ids, false); got != want.all {
			report("Decode(%v, false) = %q; want %q", tok.spell(want.ids), got, want.all)
		}
		checkStream(t, tok, want.ids, want.skip)
	}
	for _, s := range sequences {
		if got := tok.Decode(s.IDs, true); got != s.Skip {
			report("Decode(%v, true) = %q; want %q", tok.spell(s.IDs), got, s.Skip)
		}
		if got := tok.Decode(s.IDs, false); got != *s.All {
			report("Decode(%v, false) = %q; want %q", tok.spell(s.IDs), got, *s.All)
		}
		checkStream(t, tok, s.IDs, s.Skip)
	}
	if bad > 5 {
		t.Errorf("%d mismatches in all", bad)
	}
}

// spell shows ids as tokens.
func (t *Tokenizer) spell(ids []int32) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i], _ = t.Token(id)
	}
	return out
}
