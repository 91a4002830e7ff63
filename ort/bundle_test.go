package ort

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func TestOpenBundle(t *testing.T) {
	for name, want := range map[string]Bundle{
		"gqa":      {Contract: GQA, EOS: []int32{2, 3}, BOS: 1},
		"growing":  {Contract: Growing, EOS: []int32{2}, BOS: 1},
		"float16":  {Contract: Growing, EOS: []int32{2}, BOS: 1},
		"bfloat16": {Contract: GQA, EOS: []int32{2, 3}, BOS: 1},

		"gqa-float16": {Contract: GQA, EOS: []int32{2, 3}, BOS: 1},
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

// signature is the part of a graph that readLayout judges.
type signature struct {
	inputs, outputs map[string]tensorInfo
	ops             []string
	external        string
}

func decoderSignature() signature {
	ids, cache := []int64{-1, -1}, []int64{-1, 2, -1, 16}
	s := signature{
		inputs: map[string]tensorInfo{
			"input_ids":      {typ: int64Type, shape: ids},
			"attention_mask": {typ: int64Type, shape: ids},
		},
		outputs: map[string]tensorInfo{"logits": {typ: float32Type, shape: []int64{-1, -1, 64}}},
		ops:     []string{"MatMul", "GroupQueryAttention"},
	}
	for _, layer := range []string{"0.key", "0.value", "1.key", "1.value"} {
		s.inputs["past_key_values."+layer] = tensorInfo{typ: float32Type, shape: cache}
		s.outputs["present."+layer] = tensorInfo{typ: float32Type, shape: cache}
	}
	return s
}

// encode writes the signature as an ONNX file, with the field numbers of
// onnx.proto.
func (s signature) encode() []byte {
	field := func(to []byte, num protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, num, protowire.BytesType), value)
	}
	number := func(to []byte, num protowire.Number, value int64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(to, num, protowire.VarintType), uint64(value))
	}
	var graph []byte
	values := func(num protowire.Number, tensors map[string]tensorInfo) {
		for _, name := range slices.Sorted(maps.Keys(tensors)) {
			var shape []byte
			for _, size := range tensors[name].shape {
				dim := field(nil, 2, []byte("any"))
				if size >= 0 {
					dim = number(nil, 1, size)
				}
				shape = field(shape, 1, dim)
			}
			typ := field(nil, 1, field(number(nil, 1, int64(tensors[name].typ)), 2, shape))
			graph = field(graph, num, field(field(nil, 1, []byte(name)), 2, typ))
		}
	}
	for _, op := range s.ops {
		graph = field(graph, 1, field(nil, 4, []byte(op)))
	}
	weight := field(nil, 8, []byte("weight"))
	if s.external != "" {
		weight = field(weight, 13, field(field(nil, 1, []byte("location")), 2, []byte(s.external)))
	}
	graph = field(graph, 5, weight)
	values(11, s.inputs)
	values(12, s.outputs)
	return field(number(nil, 1, 10), 7, graph)
}

func TestContracts(t *testing.T) {
	half := func(s signature, names ...string) {
		for _, tensors := range []map[string]tensorInfo{s.inputs, s.outputs} {
			for name, v := range tensors {
				for _, prefix := range names {
					if strings.HasPrefix(name, prefix) {
						v.typ = float16Type
						tensors[name] = v
					}
				}
			}
		}
	}
	open := func(s signature, name string, shape ...int64) {
		for _, tensors := range []map[string]tensorInfo{s.inputs, s.outputs} {
			if v, ok := tensors[name]; ok {
				v.shape = shape
				tensors[name] = v
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(s signature) signature
		want   string // part of the error, or the contract
	}{
		{"gqa", func(s signature) signature { return s }, "gqa"},
		{"growing", func(s signature) signature { s.ops = s.ops[:1]; return s }, "growing"},
		{"half precision", func(s signature) signature { half(s, "past", "present", "logits"); return s }, "gqa"},
		{"sizes from the configuration", func(s signature) signature {
			for name := range s.inputs {
				if strings.HasPrefix(name, "past") {
					open(s, name, -1, -1, -1, -1)
				}
			}
			open(s, "logits", -1, -1, -1)
			return s
		}, "gqa"},
		{"weights among the inputs", func(s signature) signature { s.inputs["weight"] = tensorInfo{typ: float32Type}; return s }, "gqa"},
		{"further outputs", func(s signature) signature { s.outputs["hidden_states"] = tensorInfo{typ: float32Type}; return s }, "gqa"},
		{"last position only", func(s signature) signature { open(s, "logits", -1, 1, 64); return s }, "covers the last position only"},
		{"no caches", func(s signature) signature {
			maps.DeleteFunc(s.inputs, func(name string, _ tensorInfo) bool { return strings.HasPrefix(name, "past") })
			return s
		}, "no cache inputs"},
		{"no caches out", func(s signature) signature {
			maps.DeleteFunc(s.outputs, func(name string, _ tensorInfo) bool { return strings.HasPrefix(name, "present") })
			return s
		}, "4 cache inputs and 0 cache outputs"},
		{"merged", func(s signature) signature { s.inputs["use_cache_branch"] = tensorInfo{}; return s }, "merged decoder"},
		{"no tokens", func(s signature) signature { delete(s.inputs, "input_ids"); return s }, "not a text model"},
		{"no logits", func(s signature) signature { delete(s.outputs, "logits"); return s }, "no output logits"},
		{"odd logits", func(s signature) signature { open(s, "logits", -1, 64); return s }, "output logits is float32 with 2 dimensions"},
		{"gqa without a mask", func(s signature) signature { delete(s.inputs, "attention_mask"); return s }, "without an input attention_mask"},
		{"images", func(s signature) signature { s.inputs["pixel_values"] = tensorInfo{}; return s }, "input pixel_values is not one of a decoder-only"},
		{"hybrid", func(s signature) signature { s.inputs["past_conv.0"] = tensorInfo{}; return s }, "input past_conv.0 is not one"},
		{"a layer is missing", func(s signature) signature {
			delete(s.inputs, "past_key_values.0.value")
			delete(s.outputs, "present.0.value")
			s.inputs["past_key_values.2.key"] = s.inputs["past_key_values.0.key"]
			s.outputs["present.2.key"] = s.outputs["present.0.key"]
			return s
		}, "no input past_key_values.0.value among the 2 layers"},
		{"layers differ", func(s signature) signature {
			open(s, "past_key_values.1.key", -1, 4, -1, 16)
			return s
		}, "past_key_values.1.key differs"},
		{"types of one cache differ", func(s signature) signature { half(s, "present.1.value"); return s }, "want one float type"},
		{"a quantized cache", func(s signature) signature {
			for _, tensors := range []map[string]tensorInfo{s.inputs, s.outputs} {
				for name, v := range tensors {
					if strings.HasPrefix(name, "p") {
						v.typ = int8Type
						tensors[name] = v
					}
				}
			}
			return s
		}, "past_key_values.0.key is int8: a quantized cache is not supported; export it without kv_cache_quant_scheme"},
		{"narrow ids", func(s signature) signature {
			s.inputs["input_ids"] = tensorInfo{typ: 6, shape: []int64{-1, -1}}
			return s
		}, "input input_ids is int32 with 2 dimensions, want int64"},
		{"external data outside", func(s signature) signature { s.external = "../weights"; return s }, `external data "../weights" leads out of the folder`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyModel(t, "gqa")
			write(t, filepath.Join(dir, "model.onnx"), string(c.change(decoderSignature()).encode()))
			b, err := OpenBundle(dir)
			switch {
			case err == nil && string(b.Contract) != c.want:
				t.Errorf("contract %s, want %q", b.Contract, c.want)
			case err == nil && (b.Vocab != 64 || b.KVHeads != 2 || b.HeadSize != 16 || b.Layers != 2):
				t.Errorf("sizes: %v", b)
			case err != nil && !strings.Contains(err.Error(), c.want):
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// FuzzParseModel: whatever a file holds, reading it ends and does not panic.
func FuzzParseModel(f *testing.F) {
	f.Add(decoderSignature().encode())
	f.Add([]byte{})
	for _, name := range []string{"phi3-builder", "llama-builder-int4", "refused/window"} {
		data, err := os.ReadFile(filepath.Join(exportedDir(name), "model.onnx"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseModel(data, "model.onnx")
		if err != nil {
			return
		}
		l, err := readLayout(describe(m, "model.onnx"))
		if err != nil {
			return
		}
		(&Details{}).weigh(m.Graph)
		_ = oneLane(l.contract, m)
		if l.layers < 1 || len(l.past) != 2*l.layers || len(l.present) != 2*l.layers {
			t.Errorf("accepted with %d layers and caches %v, %v", l.layers, l.past, l.present)
		}
	})
}

// TestDemoBundles: what the real exporters write is understood, and the pair
// fits together.
func TestDemoBundles(t *testing.T) {
	target, draft, optimum := openBundleT(t, modelDir("target")), openBundleT(t, modelDir("draft")), openBundleT(t, modelDir("draft-optimum"))
	if target.Contract != GQA || draft.Contract != GQA || optimum.Contract != Growing {
		t.Errorf("contracts %s, %s, %s", target.Contract, draft.Contract, optimum.Contract)
	}
	for _, b := range []*Bundle{draft, optimum} {
		if b.Vocab != target.Vocab || !slices.Equal(b.EOS, target.EOS) || b.BOS != target.BOS {
			t.Errorf("%v does not fit %v", b, target)
		}
	}
}
