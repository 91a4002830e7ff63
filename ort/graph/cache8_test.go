package graph

import (
	"strings"
	"testing"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// narrowT is a model with a cache of 8 bits in place of its own.
func narrowT(t *testing.T, name string) *onnxpb.ModelProto {
	t.Helper()
	m := readModelT(t, name)
	l, err := ReadLayout(Describe(m, ""))
	if err != nil {
		t.Fatal(err)
	}
	size := raggedT(t, m, takeAll()).HeadSize
	var scales [][]float32
	for layer := range l.Layers {
		var s []float32
		for i := range l.KVHeads * size {
			s = append(s, float32(1+layer+i))
		}
		scales = append(scales, s)
	}
	if err := NarrowCache(m, scales, scales); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRaggedNarrow: the attention of both domains gets the scales, its caches are
// integers, and nothing else of the graph changes.
func TestRaggedNarrow(t *testing.T) {
	for _, name := range []string{"gqa", "target", "llama-builder-int4", "llama-builder-fp16-cuda", "qwen3-builder", "gemma2-builder"} {
		plain, narrow := readModelT(t, name), narrowT(t, name)
		scales, err := CacheScales(narrow)
		if l, _ := ReadLayout(Describe(narrow, "")); err != nil || len(scales) != 2*l.Layers {
			t.Fatalf("%s: %d scales of %d layers: %v", name, len(scales), l.Layers, err)
		}
		if none, err := CacheScales(plain); err != nil || len(none) != 0 {
			t.Errorf("%s: %v, %v of a float cache", name, none, err)
		}
		for _, o := range []RaggedOptions{takeAll(), {Domain: MicrosoftDomain, Metadata: false}, {Domain: MicrosoftDomain, Half: BFloat16}} {
			was, r := raggedT(t, plain, o), raggedT(t, narrow, o)
			checkRagged(t, narrow, r)
			op := "PagedAttention"
			if o.Domain == OwnDomain {
				op = "PagedAttention8"
			}
			if got, want := summary(r.Model.Graph), strings.Replace(summary(was.Model.Graph), "PagedAttention", op, 1); got != want || r.Cache != Int8 {
				t.Errorf("%s: caches of %s, operators %s,\nwant %s", name, r.Cache, got, want)
			}
			layer := 0
			for _, n := range r.Model.Graph.Node {
				if n.GetOpType() != op {
					continue
				}
				for i, kind := range []string{"k", "v"} {
					w := weightT(t, r.Model.Graph, n.Input[pagedScale+i])
					if len(w.Dims) != 3 || w.Dims[0] != int64(r.KVHeads) || w.Dims[1] != 1 || w.Dims[2] != int64(r.HeadSize) {
						t.Errorf("%s: scale of %v", name, w.Dims)
					}
					if first := floatsOf(w)[0]; first != float64(1+layer) {
						t.Errorf("%s: layer %d begins with %g", name, layer, first)
					}
					if quant := string(Attribute(n, kind+"_quant_type").GetS()); (quant == "PER_CHANNEL") != (o.Domain == MicrosoftDomain) {
						t.Errorf("%s: %s_quant_type %q", name, kind, quant)
					}
				}
				layer++
			}
		}
		if err := NarrowCache(narrow, nil, nil); err == nil || !strings.Contains(err.Error(), "this one is int8") {
			t.Errorf("%s again: %v", name, err)
		}
	}
	if err := NarrowCache(readModelT(t, "gqa"), nil, nil); err == nil || !strings.Contains(err.Error(), "layer 0 of 0") {
		t.Errorf("without scales: %v", err)
	}
	m := readModelT(t, "gqa")
	n := attentionT(t, m)
	for len(n.Input) <= gqaScale {
		n.Input = append(n.Input, "")
	}
	n.Input[gqaScale] = m.Graph.Initializer[0].GetName()
	if _, err := NewRagged(m, takeAll()); err == nil || !strings.Contains(err.Error(), "k_scale for a cache of float32") {
		t.Errorf("a scale for a float cache: %v", err)
	}
}

func attentionT(t *testing.T, m *onnxpb.ModelProto) *onnxpb.NodeProto {
	t.Helper()
	for _, n := range m.Graph.Node {
		if n.GetOpType() == "GroupQueryAttention" {
			return n
		}
	}
	t.Fatal("no attention")
	return nil
}

func weightT(t *testing.T, g *onnxpb.GraphProto, name string) *onnxpb.TensorProto {
	t.Helper()
	for _, w := range g.Initializer {
		if w.GetName() == name {
			return w
		}
	}
	t.Fatalf("no initializer %s", name)
	return nil
}
