package graph

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// signature is the part of a graph that ReadLayout judges.
type signature struct {
	inputs, outputs map[string]Tensor
	ops             []string
}

func decoderSignature() signature {
	ids, cache := []int64{-1, -1}, []int64{-1, 2, -1, 16}
	s := signature{
		inputs: map[string]Tensor{
			"input_ids":      {Type: Int64, Shape: ids},
			"attention_mask": {Type: Int64, Shape: ids},
		},
		outputs: map[string]Tensor{"logits": {Type: Float32, Shape: []int64{-1, -1, 64}}},
		ops:     []string{"MatMul", "GroupQueryAttention"},
	}
	for _, layer := range []string{"0.key", "0.value", "1.key", "1.value"} {
		s.inputs["past_key_values."+layer] = Tensor{Type: Float32, Shape: cache}
		s.outputs["present."+layer] = Tensor{Type: Float32, Shape: cache}
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
	values := func(num protowire.Number, tensors map[string]Tensor) {
		for _, name := range slices.Sorted(maps.Keys(tensors)) {
			var shape []byte
			for _, size := range tensors[name].Shape {
				dim := field(nil, 2, []byte("any"))
				if size >= 0 {
					dim = number(nil, 1, size)
				}
				shape = field(shape, 1, dim)
			}
			typ := field(nil, 1, field(number(nil, 1, int64(tensors[name].Type)), 2, shape))
			graph = field(graph, num, field(field(nil, 1, []byte(name)), 2, typ))
		}
	}
	for _, op := range s.ops {
		graph = field(graph, 1, field(nil, 4, []byte(op)))
	}
	weight := field(nil, 8, []byte("weight"))
	graph = field(graph, 5, weight)
	values(11, s.inputs)
	values(12, s.outputs)
	return field(number(nil, 1, 10), 7, graph)
}

func TestContracts(t *testing.T) {
	half := func(s signature, names ...string) {
		for _, tensors := range []map[string]Tensor{s.inputs, s.outputs} {
			for name, v := range tensors {
				for _, prefix := range names {
					if strings.HasPrefix(name, prefix) {
						v.Type = Float16
						tensors[name] = v
					}
				}
			}
		}
	}
	quantized := func(s signature, typ ElementType) {
		for _, tensors := range []map[string]Tensor{s.inputs, s.outputs} {
			for name, v := range tensors {
				if strings.HasPrefix(name, "p") {
					v.Type = typ
					tensors[name] = v
				}
			}
		}
	}
	open := func(s signature, name string, shape ...int64) {
		for _, tensors := range []map[string]Tensor{s.inputs, s.outputs} {
			if v, ok := tensors[name]; ok {
				v.Shape = shape
				tensors[name] = v
			}
		}
	}
	whole := []int{64, 2, 16}
	for _, c := range []struct {
		name   string
		change func(s signature) signature
		want   string // part of the error, or the contract
		sizes  []int  // vocabulary, KV heads and head size
	}{
		{"gqa", func(s signature) signature { return s }, "gqa", whole},
		{"growing", func(s signature) signature { s.ops = s.ops[:1]; return s }, "growing", whole},
		{"half precision", func(s signature) signature { half(s, "past", "present", "logits"); return s }, "gqa", whole},
		{"sizes left open", func(s signature) signature {
			for name := range s.inputs {
				if strings.HasPrefix(name, "past") {
					open(s, name, -1, -1, -1, -1)
				}
			}
			open(s, "logits", -1, -1, -1)
			return s
		}, "gqa", []int{0, 0, 0}},
		{"weights among the inputs", func(s signature) signature { s.inputs["weight"] = Tensor{Type: Float32}; return s }, "gqa", whole},
		{"further outputs", func(s signature) signature { s.outputs["hidden_states"] = Tensor{Type: Float32}; return s }, "gqa", whole},
		{"last position only", func(s signature) signature { open(s, "logits", -1, 1, 64); return s }, "covers the last position only", nil},
		{"no caches", func(s signature) signature {
			maps.DeleteFunc(s.inputs, func(name string, _ Tensor) bool { return strings.HasPrefix(name, "past") })
			return s
		}, "no cache inputs", nil},
		{"no caches out", func(s signature) signature {
			maps.DeleteFunc(s.outputs, func(name string, _ Tensor) bool { return strings.HasPrefix(name, "present") })
			return s
		}, "4 cache inputs and 0 cache outputs", nil},
		{"merged", func(s signature) signature { s.inputs["use_cache_branch"] = Tensor{}; return s }, "merged decoder", nil},
		{"no tokens", func(s signature) signature { delete(s.inputs, "input_ids"); return s }, "not a text model", nil},
		{"no logits", func(s signature) signature { delete(s.outputs, "logits"); return s }, "no output logits", nil},
		{"odd logits", func(s signature) signature { open(s, "logits", -1, 64); return s }, "output logits is float32 with 2 dimensions", nil},
		{"gqa without a mask", func(s signature) signature { delete(s.inputs, "attention_mask"); return s }, "without an input attention_mask", nil},
		{"images", func(s signature) signature { s.inputs["pixel_values"] = Tensor{}; return s }, "input pixel_values is not one of a decoder-only", nil},
		{"hybrid", func(s signature) signature { s.inputs["past_conv.0"] = Tensor{}; return s }, "input past_conv.0 is not one", nil},
		{"a layer is missing", func(s signature) signature {
			delete(s.inputs, "past_key_values.0.value")
			delete(s.outputs, "present.0.value")
			s.inputs["past_key_values.2.key"] = s.inputs["past_key_values.0.key"]
			s.outputs["present.2.key"] = s.outputs["present.0.key"]
			return s
		}, "no input past_key_values.0.value among the 2 layers", nil},
		{"layers differ", func(s signature) signature {
			open(s, "past_key_values.1.key", -1, 4, -1, 16)
			return s
		}, "past_key_values.1.key differs", nil},
		{"types of one cache differ", func(s signature) signature { half(s, "present.1.value"); return s }, "want one float type", nil},
		{"a cache of 8 bits", func(s signature) signature { quantized(s, Int8); return s }, "gqa", whole},
		{"a cache of 4 bits", func(s signature) signature { quantized(s, Uint8); return s }, "past_key_values.0.key is uint8: a quantized cache is supported in 8 bits (int8) with GroupQueryAttention only", nil},
		{"a cache of 8 bits that grows", func(s signature) signature { quantized(s, Int8); s.ops = s.ops[:1]; return s }, "past_key_values.0.key is int8: a quantized cache is supported in 8 bits (int8) with GroupQueryAttention only", nil},
		{"narrow ids", func(s signature) signature {
			s.inputs["input_ids"] = Tensor{Type: 6, Shape: []int64{-1, -1}}
			return s
		}, "input input_ids is int32 with 2 dimensions, want int64", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Parse(c.change(decoderSignature()).encode(), "model.onnx")
			if err != nil {
				t.Fatal(err)
			}
			l, err := ReadLayout(Describe(m, "model.onnx"))
			switch {
			case err == nil && string(l.Contract) != c.want:
				t.Errorf("contract %s, want %q", l.Contract, c.want)
			case err == nil && (l.Vocab != c.sizes[0] || l.KVHeads != c.sizes[1] || l.HeadSize != c.sizes[2] || l.Layers != 2):
				t.Errorf("sizes: %+v", l)
			case err != nil && !strings.Contains(err.Error(), c.want):
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// FuzzParse: whatever a file holds, reading it ends and does not panic.
func FuzzParse(f *testing.F) {
	f.Add(decoderSignature().encode())
	f.Add([]byte{})
	for _, name := range []string{"phi3-builder", "llama-builder-int4", "gemma2-builder", "llama-optimum", "refused/window"} {
		data, err := os.ReadFile(filepath.Join(modelDir(name), "model.onnx"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		// With a cache of 8 bits, too.
		m, err := Parse(data, "model.onnx")
		if err != nil {
			f.Fatal(err)
		}
		if NarrowCache(m, [][]float32{make([]float32, 32), make([]float32, 32)}, [][]float32{make([]float32, 32), make([]float32, 32)}) == nil {
			if data, err = proto.Marshal(m); err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data, "model.onnx")
		if err != nil {
			return
		}
		l, err := ReadLayout(Describe(m, "model.onnx"))
		if err != nil {
			return
		}
		Weigh(m.Graph)
		_, _ = CacheScales(m)
		if r, err := NewRagged(m, takeAll()); err == nil {
			if _, err := proto.Marshal(r.Model); err != nil {
				t.Error(err)
			}
		}
		_, _ = NewRagged(m, RaggedOptions{Domain: MicrosoftDomain})
		if l.Layers < 1 || len(l.Past) != 2*l.Layers || len(l.Present) != 2*l.Layers {
			t.Errorf("accepted with %d layers and caches %v, %v", l.Layers, l.Past, l.Present)
		}
	})
}
