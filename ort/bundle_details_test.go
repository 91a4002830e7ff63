package ort

import (
	"slices"
	"strings"
	"testing"
)

// TestDetails on exporters' models; the parameters are those that transformers
// counts, tied embeddings once, and twice where a graph has them twice.
func TestDetails(t *testing.T) {
	const vocab, hidden = 272, 32
	for _, c := range []struct {
		name            string
		parameters      int64
		logits, cache   string
		weights         []string
		quantization    string
		mask, positions bool
		solo            string
	}{
		{"llama-builder", 39072, "float32", "float32", []string{"float32"}, "", true, false, ""},
		{"llama-optimum", 39072, "float32", "float32", []string{"float32"}, "", true, true, ""},
		{"qwen2-builder", 24352, "float32", "float32", []string{"float32"}, "", true, false, ""},
		{"gpt2-optimum", 27872 + vocab*hidden, "float32", "float32", []string{"float32"}, "", true, true, ""},
		{"llama-builder-int4", 39072, "float32", "float32", []string{"int4", "float32"}, "4 bits in blocks of 32 (MatMulNBits)", true, false, ""},
		{"llama-builder-int8", 39072, "float32", "float32", []string{"int8", "float32"}, "8 bits in blocks of 32 (MatMulNBits)", true, false, ""},
		{"qwen2-builder-int4-cuda", 24352, "float16", "float16", []string{"int4", "float16"}, "4 bits in blocks of 32 (MatMulNBits)", true, false, ""},
		{"qwen2-builder-fp16-dml", 24352, "float16", "float16", []string{"float16"}, "", true, true, ""},
		{"llama-optimum-int8", 39072, "float32", "float32", []string{"int8", "uint8", "float32"}, "8 bits, activations scaled at run time (DynamicQuantizeLinear)", true, true, "all tokens of a pass get one scale"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := openBundleT(t, exportedDir(c.name)).Details()
			if err != nil {
				t.Fatal(err)
			}
			if d.Parameters != c.parameters || d.Logits != c.logits || d.Cache != c.cache || !slices.Equal(d.Weights, c.weights) ||
				d.Quantization != c.quantization || d.Mask != c.mask || d.Positions != c.positions {
				t.Errorf("got %+v", d)
			}
			if c.solo == "" && d.Ragged != nil || c.solo != "" && (d.Ragged == nil || !strings.Contains(d.Ragged.Error(), c.solo)) {
				t.Errorf("not rewritten because of %v, want %q", d.Ragged, c.solo)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	b := openBundleT(t, exportedDir("llama-builder"))
	var names []string
	total := int64(0)
	for _, f := range b.Files {
		names, total = append(names, f.Name), total+f.Bytes
	}
	if want := []string{"model.onnx", "model.onnx.data", "tokenizer.json"}; !slices.Equal(names, want) || total != b.Bytes {
		t.Errorf("files %v of %d bytes, want %v of %d", names, total, want, b.Bytes)
	}
}
