package ort

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

func TestOpenBundle(t *testing.T) {
	for name, want := range map[string]Bundle{
		"gqa":      {Contract: graph.GQA, EOS: []int32{2, 3}, BOS: 1},
		"growing":  {Contract: graph.Growing, EOS: []int32{2}, BOS: 1},
		"float16":  {Contract: graph.Growing, EOS: []int32{2}, BOS: 1},
		"bfloat16": {Contract: graph.GQA, EOS: []int32{2, 3}, BOS: 1},

		"gqa-float16": {Contract: graph.GQA, EOS: []int32{2, 3}, BOS: 1},
	} {
		b := openBundleT(t, modelDir(name))
		if b.Contract != want.Contract || !slices.Equal(b.EOS, want.EOS) || b.BOS != want.BOS {
			t.Errorf("%s: contract %s, ends %v, begin %d, want %s, %v, %d", name, b.Contract, b.EOS, b.BOS, want.Contract, want.EOS, want.BOS)
		}
		if b.Vocab != 64 || b.Context != 48 || b.Layers != 2 || b.KVHeads != 2 || b.HeadSize != 16 || b.Family != "tiny" {
			t.Errorf("%s: %v", name, b)
		}
		if want := filepath.Join(modelDir(name), "tokenizer.json"); b.Tokenizer != want || len(b.Digest) != 64 || b.Bytes < 50_000 {
			t.Errorf("%s: tokenizer %s, digest %q, %d bytes", name, b.Tokenizer, b.Digest, b.Bytes)
		}
		bytes := 2 * 2 * 2 * 16 * 4
		if name == "float16" || name == "gqa-float16" {
			bytes /= 2
		}
		if b.CacheBytesPerToken() != bytes {
			t.Errorf("%s: %d bytes per token, want %d", name, b.CacheBytesPerToken(), bytes)
		}
	}
}

// copyModel copies a folder of testdata, to be damaged.
func copyModel(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(modelDir(name))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// edit changes a value inside a JSON file; nil deletes it.
func edit(t *testing.T, path string, value any, keys ...string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	at := root
	for _, key := range keys[:len(keys)-1] {
		at = at[key].(map[string]any)
	}
	if at[keys[len(keys)-1]] = value; value == nil {
		delete(at, keys[len(keys)-1])
	}
	if data, err = json.Marshal(root); err != nil {
		t.Fatal(err)
	}
	write(t, path, string(data))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDigestNamesTheContent(t *testing.T) {
	first, second := copyModel(t, "gqa"), copyModel(t, "gqa")
	digest := func(dir string) string { return openBundleT(t, dir).Digest }
	original := digest(first)
	if digest(second) != original {
		t.Error("equal folders have different digests")
	}
	for _, name := range []string{"model.onnx.data", "tokenizer.json"} {
		data, err := os.ReadFile(filepath.Join(second, name))
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)-1] ^= 1
		write(t, filepath.Join(second, name), string(data))
		if digest(second) == original {
			t.Errorf("a changed %s does not change the digest", name)
		}
		data[len(data)-1] ^= 1
		write(t, filepath.Join(second, name), string(data))
	}
	write(t, filepath.Join(second, "README.md"), "about")
	if digest(second) != original {
		t.Error("a file that is no part of the model changes the digest")
	}
}

func TestTokenIDs(t *testing.T) {
	for _, c := range []struct {
		value any
		want  []int32
	}{
		{7, []int32{7}}, {[]int{7, 8}, []int32{7, 8}}, {nil, nil}, {[]int{}, []int32{}},
	} {
		dir := copyModel(t, "gqa")
		edit(t, filepath.Join(dir, "genai_config.json"), c.value, "model", "eos_token_id")
		if b := openBundleT(t, dir); !slices.Equal(b.EOS, c.want) {
			t.Errorf("%v: got %v, want %v", c.value, b.EOS, c.want)
		}
	}
	// generation_config.json decides where it says something, and may be absent.
	dir := copyModel(t, "growing")
	generation := filepath.Join(dir, "generation_config.json")
	edit(t, generation, []int{4, 5}, "eos_token_id")
	if b := openBundleT(t, dir); !slices.Equal(b.EOS, []int32{4, 5}) {
		t.Errorf("generation_config.json's ids: got %v", b.EOS)
	}
	if err := os.Remove(generation); err != nil {
		t.Fatal(err)
	}
	if b := openBundleT(t, dir); !slices.Equal(b.EOS, []int32{9}) {
		t.Errorf("config.json's ids: got %v", b.EOS)
	}
}

func TestBundleRefusals(t *testing.T) {
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { write(t, filepath.Join(dir, name), text) }
	}
	set := func(value any, keys ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { edit(t, filepath.Join(dir, "genai_config.json"), value, keys...) }
	}
	for _, c := range []struct {
		name, model string
		damage      func(t *testing.T, dir string)
		want        string
	}{
		{"no folder", "gqa", func(t *testing.T, dir string) { os.RemoveAll(dir) }, "no such file or directory"},
		{"no configuration", "gqa", remove("genai_config.json"), "neither genai_config.json nor config.json inside"},
		{"no model", "gqa", remove("model.onnx"), "no model.onnx inside"},
		{"no external data", "gqa", remove("model.onnx.data"), "model.onnx.data: no such file"},
		{"no tokenizer", "growing", remove("tokenizer.json"), "tokenizer.json: no such file"},
		{"configuration cut short", "gqa", put("genai_config.json", `{"model": {`), "genai_config.json: unexpected end of JSON"},
		{"configuration of the wrong form", "growing", put("config.json", `[]`), "config.json: json: cannot unmarshal array"},
		{"no decoder", "gqa", set(nil, "model", "decoder"), "genai_config.json: no model.decoder"},
		{"odd token ids", "gqa", set("two", "model", "eos_token_id"), "token ids must be a number or a list of numbers"},
		{"token id outside", "gqa", set(64, "model", "bos_token_id"), "token id 64 is outside the vocabulary of 64"},
		{"other vocabulary", "gqa", set(65, "model", "vocab_size"), "vocabulary 65, but the graph has 64"},
		{"other layers", "gqa", set(3, "model", "decoder", "num_hidden_layers"), "number of layers 3, but the graph has 2"},
		{"no context", "gqa", set(nil, "model", "context_length"), "no context length"},
		{"absurd context", "gqa", set(1<<40, "model", "context_length"), "cannot be true"},
		{"model outside", "gqa", set("../model.onnx", "model", "decoder", "filename"), "leads out of the folder"},
		{"empty model", "gqa", put("model.onnx", ""), "model.onnx: the file is empty"},
		{"text for a model", "gqa", put("model.onnx", "version https://git-lfs.github.com/spec/v1\n"), "model.onnx: not an ONNX model"},
		{"model cut short", "growing", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, "model.onnx"), 50_000); err != nil {
				t.Fatal(err)
			}
		}, "model.onnx: not an ONNX model, or cut short"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyModel(t, c.model)
			c.damage(t, dir)
			_, err := OpenBundle(dir)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "model folder "+dir) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if strings.Count(err.Error(), dir) > 1 || strings.Contains(err.Error(), "\n") {
				t.Errorf("not one clear line: %v", err)
			}
		})
	}
	if _, err := OpenBundle("bundle_test.go"); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("a file for a folder: %v", err)
	}
}

// TestBrokenWeights: what only the runtime can see is its error, with the
// folder's name.
func TestBrokenWeights(t *testing.T) {
	needLibrary(t)
	dir := copyModel(t, "gqa")
	if err := os.Truncate(filepath.Join(dir, "model.onnx.data"), 1000); err != nil {
		t.Fatal(err)
	}
	m, err := Load(openBundleT(t, dir), Options{})
	if err == nil {
		m.Close()
	}
	if err == nil || !strings.HasPrefix(err.Error(), "load model "+dir) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// TestSizesFromTheConfiguration: what a graph leaves open, the configuration says.
func TestSizesFromTheConfiguration(t *testing.T) {
	dir := copyModel(t, "gqa")
	m := readModelT(t, "gqa")
	for _, v := range slices.Concat(m.Graph.Input, m.Graph.Output) {
		tensor := v.Type.TensorType
		tensor.Shape = graph.Value(v.GetName(), graph.Float32, slices.Repeat([]int64{-1}, len(tensor.Shape.Dim))...).Type.TensorType.Shape
	}
	writeModel(t, dir, m)
	if b := openBundleT(t, dir); b.Vocab != 64 || b.KVHeads != 2 || b.HeadSize != 16 || b.Layers != 2 {
		t.Errorf("sizes: %v", b)
	}
}

// TestExternalDataOutside of the model's folder are refused.
func TestExternalDataOutside(t *testing.T) {
	dir := copyModel(t, "gqa")
	m := readModelT(t, "gqa")
	graph.SetExternal(m.Graph.Initializer[0], "../weights", 0, 4)
	writeModel(t, dir, m)
	if _, err := OpenBundle(dir); err == nil || !strings.Contains(err.Error(), `external data "../weights" leads out of the folder`) {
		t.Errorf("got %v", err)
	}
}

func writeModel(t *testing.T, dir string, m *onnxpb.ModelProto) {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "model.onnx"), string(data))
}

// TestDemoBundles: what the real exporters write is understood, and the pair
// fits together.
func TestDemoBundles(t *testing.T) {
	target, draft, optimum := openBundleT(t, modelDir("target")), openBundleT(t, modelDir("draft")), openBundleT(t, modelDir("draft-optimum"))
	if target.Contract != graph.GQA || draft.Contract != graph.GQA || optimum.Contract != graph.Growing {
		t.Errorf("contracts %s, %s, %s", target.Contract, draft.Contract, optimum.Contract)
	}
	for _, b := range []*Bundle{draft, optimum} {
		if b.Vocab != target.Vocab || !slices.Equal(b.EOS, target.EOS) || b.BOS != target.BOS {
			t.Errorf("%v does not fit %v", b, target)
		}
	}
}
