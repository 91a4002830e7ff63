package graph

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// takeAll is a rewriting for the CPU in which every matrix is ours.
func takeAll() RaggedOptions {
	return RaggedOptions{Domain: OwnDomain, Copies: true, Take: func(*Matrix) bool { return true }}
}

func raggedT(t *testing.T, m *onnxpb.ModelProto, o RaggedOptions) *Ragged {
	t.Helper()
	r, err := NewRagged(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// summary are the operators of a graph, "Gather 3, Softmax" with numbers above
// one; those that only name things or change types are left out.
func summary(g *onnxpb.GraphProto) string {
	ops := map[string]int{}
	for _, n := range g.Node {
		switch n.GetOpType() {
		case "Constant", "Identity", "Cast":
		default:
			ops[n.GetOpType()]++
		}
	}
	var list []string
	for _, op := range slices.Sorted(maps.Keys(ops)) {
		if n := ops[op]; n > 1 {
			op = fmt.Sprint(op, " ", n)
		}
		list = append(list, op)
	}
	return strings.Join(list, ", ")
}

// TestRagged: what is left of exporters' graphs on the CPU. Two layers each but
// for the demo's target, which has six.
func TestRagged(t *testing.T) {
	const optimum = "Add 9, Concat 9, Cos, Div 5, Expand, Gated 2, Gather 5, MatMul, Matrices 7, Mul 20, Neg 4, PagedAttention 2, Pow 5, ReduceMean 5, Reshape 8, Shape 2, Sin, Slice 8, Sqrt 5, Squeeze, Transpose 9, Unsqueeze 7"
	const builder = "Gated 2, Gather 3, Matrices 7, PagedAttention 2, SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization 4, Squeeze"
	for _, c := range []struct {
		name, ops string
		matrices  int
		positions bool
	}{
		{"llama-builder", builder, 11, false},
		{"phi3-builder", builder, 11, false},
		{"llama-builder-int4", builder, 11, false},
		{"llama-builder-int8", builder, 11, false},
		{"llama-builder-fp16-cuda", builder, 11, false},
		{"qwen2-builder", builder + ", Transpose", 11, false},
		{"draft", builder + ", Transpose", 11, false},
		{"target", "Gated 6, Gather 3, Matrices 19, PagedAttention 6, SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization 12, Squeeze, Transpose", 31, false},
		{"qwen2-builder-int4", "Gated 2, Gather 2, GatherBlockQuantized, Matrices 7, PagedAttention 2, Reshape, SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization 4, Squeeze", 11, false},
		{"qwen3-builder-webgpu", strings.Replace(builder, "Squeeze", "Split 2, Squeeze, Transpose", 1), 11, false},
		{"qwen3-builder", "Gated 2, Gather 3, Matrices 7, PagedAttention 2, Reshape 8, SimplifiedLayerNormalization 5, SkipSimplifiedLayerNormalization 4, Split 2, Squeeze, Transpose", 11, false},
		{"qwen2-builder-fp16-dml", "Gated 2, Gather 3, Matrices 7, PagedAttention 2, RotaryEmbedding 4, SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization 4, Squeeze, Transpose", 15, true},
		{"gemma2-builder", "Div, Gated 2, Gather 3, Matrices 7, Mul 2, PagedAttention 2, SimplifiedLayerNormalization 5, SkipSimplifiedLayerNormalization 4, Squeeze, Tanh, Transpose", 11, false},
		{"gqa", "Add 5, Div 5, Gated 2, Gather 3, Matrices 7, Mul 5, PagedAttention 2, ReduceMean 5, Sqrt 5, Squeeze", 15, false},
		{"llama-optimum", optimum, 15, true},
		{"qwen2-optimum", optimum, 15, true},
		{"draft-optimum", optimum, 15, true},
		{"qwen3-optimum", "Add 13, Concat 9, Cos, Div 9, Expand, Gated 2, Gather 5, MatMul, Matrices 7, Mul 28, Neg 4, PagedAttention 2, Pow 9, ReduceMean 9, Reshape 8, Shape 2, Sin, Slice 8, Sqrt 9, Squeeze, Transpose 9, Unsqueeze 7", 15, true},
		{"phi3-optimum", "Add 9, Concat 13, Cos, Div 5, Expand, Gather 6, MatMul, Matrices 9, Mul 24, Neg 4, PagedAttention 2, Pow 5, ReduceMean 5, Reshape 8, Shape 2, Sigmoid 2, Sin, Slice 26, Sqrt 5, Squeeze, Transpose 9, Unsqueeze 7", 9, true},
		{"gemma2-optimum", "Add 17, Concat 9, Cos, Div 10, Expand, Gated 2, Gather 5, MatMul, Matrices 7, Mul 30, Neg 4, PagedAttention 2, Pow 9, ReduceMean 9, Reshape 8, Shape 2, Sin, Slice 8, Sqrt 9, Squeeze, Tanh, Transpose 9, Unsqueeze 7", 15, true},
		{"gpt2-optimum", "Add 9, Gather 4, LayerNormalization 5, Matrices 9, Mul 8, PagedAttention 2, Pow 2, Reshape 16, Split 2, Squeeze, Tanh 2", 9, true},
		{"growing", "Add 9, Concat 4, Div 5, Gated 2, Gather 5, Matrices 7, Mul 21, PagedAttention 2, ReduceMean 5, Reshape 8, Split 4, Sqrt 5, Squeeze, Sub 4, Transpose 8, Unsqueeze 2", 15, true},
		{"float16", "Add 9, Concat 4, Div 5, Gated 2, Gather 5, Matrices 7, Mul 21, PagedAttention 2, ReduceMean 5, Reshape 12, Split 4, Sqrt 5, Squeeze, Sub 4, Transpose 12, Unsqueeze 2", 15, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := readModelT(t, c.name)
			before, _ := proto.Marshal(m)
			r := raggedT(t, m, takeAll())
			if after, _ := proto.Marshal(m); !bytes.Equal(before, after) {
				t.Error("the model itself was changed")
			}
			if got := summary(r.Model.Graph); got != c.ops {
				t.Errorf("operators %s,\nwant      %s", got, c.ops)
			}
			if len(r.Matrices) != c.matrices || r.Positions != c.positions {
				t.Errorf("%d matrices, positions %v, want %d, %v", len(r.Matrices), r.Positions, c.matrices, c.positions)
			}
			checkRagged(t, m, r)
			for _, x := range r.Matrices {
				if x.K <= 0 || x.N <= 0 || x.Weights == nil || (x.Bits > 0) != (x.Scales != nil) {
					t.Errorf("matrix %+v", x)
				}
				if x.Bits == 0 && (x.Weights.Dims[0] != int64(x.K) || x.Weights.Dims[1] != int64(x.N)) != x.Transposed {
					t.Errorf("matrix %s: %d by %d of %v", x.Name, x.K, x.N, x.Weights.Dims)
				}
			}
		})
	}
}

// checkRagged sees that a rewritten graph has its inputs and outputs, that what
// nodes read is there before them, and that matrices have their numbers.
func checkRagged(t *testing.T, m *onnxpb.ModelProto, r *Ragged) {
	t.Helper()
	s := Describe(r.Model, "")
	var names []string
	for _, v := range s.Inputs {
		names = append(names, v.Name)
	}
	want := []string{InputIDs}
	if r.Positions {
		want = append(want, PositionIDs)
	}
	want = append(want, CumulativeLengths, PastLengths, BlockTable, LogitRows)
	if r.Crossed {
		want = append(want, InputLengths)
	}
	if slices.ContainsFunc(s.Inputs, func(v Tensor) bool { return v.Name == Copies }) { // as the options say
		want = append(want, Copies)
	}
	if want = append(want, r.Caches...); !slices.Equal(names, want) {
		t.Errorf("inputs %v, want %v", names, want)
	}
	names = nil
	for _, v := range s.Outputs {
		names = append(names, v.Name)
	}
	if want = append([]string{Logits}, r.CachesOut...); !slices.Equal(names, want) {
		t.Errorf("outputs %v, want %v", names, want)
	}
	known := map[string]bool{}
	for _, v := range s.Inputs {
		known[v.Name] = true
	}
	for _, w := range r.Model.Graph.Initializer {
		known[w.GetName()] = true
	}
	used := map[int64]bool{}
	for _, n := range r.Model.Graph.Node {
		for _, name := range n.Input {
			if name != "" && !known[name] {
				t.Errorf("node %s (%s) reads %s, which is not there", n.GetName(), n.GetOpType(), name)
			}
		}
		for _, name := range n.Output {
			known[name] = true
		}
		if a := Attribute(n, "matrices"); a != nil {
			for _, i := range a.Ints {
				used[i] = true
			}
		}
	}
	for _, v := range s.Outputs {
		if !known[v.Name] {
			t.Errorf("nothing makes %s", v.Name)
		}
	}
	if len(used) != len(r.Matrices) {
		t.Errorf("%d of %d matrices are used", len(used), len(r.Matrices))
	}
	domains := map[string]bool{}
	for _, o := range r.Model.OpsetImport {
		if domains[o.GetDomain()] {
			t.Errorf("domain %q twice", o.GetDomain())
		}
		domains[o.GetDomain()] = true
	}
	for _, n := range r.Model.Graph.Node {
		if !domains[n.GetDomain()] {
			t.Errorf("node %s: domain %q is not imported", n.GetName(), n.GetDomain())
		}
	}
}

// TestRaggedForCUDA: ONNX Runtime's own operator gets operands of two dimensions,
// and nothing else changes.
func TestRaggedForCUDA(t *testing.T) {
	m := readModelT(t, "llama-builder-fp16-cuda")
	r := raggedT(t, m, RaggedOptions{Domain: MicrosoftDomain})
	checkRagged(t, m, r)
	if r.Cache != Float16 || len(r.Matrices) != 0 {
		t.Errorf("caches of %s, %d matrices", r.Cache, len(r.Matrices))
	}
	if got, want := summary(r.Model.Graph), "Gather 3, MatMul 11, Mul 4, PagedAttention 2, Sigmoid 2, SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization 4, Squeeze 3, Unsqueeze 2"; got != want {
		t.Errorf("operators %s, want %s", got, want)
	}
	for _, n := range r.Model.Graph.Node {
		if n.GetOpType() == "PagedAttention" && (n.GetDomain() != MicrosoftDomain || n.Input[pagedTable] != BlockTable || Attribute(n, "num_heads").GetI() != 4) {
			t.Errorf("attention %v", n)
		}
	}
}

// TestRaggedTakes what it is told to: other matrices stay with their operators.
func TestRaggedTakes(t *testing.T) {
	m := readModelT(t, "llama-builder-int4")
	o := RaggedOptions{Domain: OwnDomain, Take: func(x *Matrix) bool { return x.N != 48 && x.Bits == 4 && x.Block == 32 && x.Accuracy == 4 }}
	r := raggedT(t, m, o)
	checkRagged(t, m, r)
	if got, want := summary(r.Model.Graph), "Gather 3, MatMulNBits 4, Matrices 7, Mul 4, PagedAttention 2, Sigmoid 2, SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization 4, Squeeze"; got != want {
		t.Errorf("operators %s, want %s", got, want)
	}
	for _, w := range r.Model.Graph.Initializer {
		for _, x := range r.Matrices {
			if w == x.Weights || w == x.Scales {
				t.Errorf("%s is there twice", w.GetName())
			}
		}
	}
	tied := raggedT(t, readModelT(t, "qwen2-builder-int4"), takeAll())
	if last := tied.Matrices[len(tied.Matrices)-1]; !slices.Contains(tied.Model.Graph.Initializer, last.Weights) {
		t.Error("the weights of the head are those of the embeddings, and are gone")
	}
}

func TestBind(t *testing.T) {
	r := raggedT(t, readModelT(t, "llama-builder"), takeAll())
	r.Bind(func(i int) int64 { return int64(1000 + i) }, 7)
	for _, n := range r.Model.Graph.Node {
		if n.GetDomain() != OwnDomain {
			continue
		}
		if Attribute(n, "threads").GetI() != 7 {
			t.Errorf("node %s: threads %v", n.GetName(), Attribute(n, "threads"))
		}
		for _, h := range Attribute(n, "matrices").GetInts() {
			if h < 1000 || h >= int64(1000+len(r.Matrices)) {
				t.Errorf("node %s: handle %d", n.GetName(), h)
			}
		}
	}
}

func TestRaggedRefuses(t *testing.T) {
	attention := func(m *onnxpb.ModelProto) *onnxpb.NodeProto {
		i := slices.IndexFunc(m.Graph.Node, func(n *onnxpb.NodeProto) bool { return n.GetOpType() == "GroupQueryAttention" })
		return m.Graph.Node[i]
	}
	before := func(m *onnxpb.ModelProto, op string, inputs ...string) { // the logits
		for _, n := range m.Graph.Node {
			if slices.Equal(n.Output, []string{Logits}) {
				n.Output[0] = "own"
			}
		}
		m.Graph.Node = append(m.Graph.Node, &onnxpb.NodeProto{OpType: &op, Input: inputs, Output: []string{Logits}})
	}
	for _, c := range []struct {
		name   string
		change func(m *onnxpb.ModelProto)
		want   string
	}{
		{"the mask elsewhere", func(m *onnxpb.ModelProto) { before(m, "Add", "own", "attention_mask") }, "attention_mask serves more than attention"},
		{"a cache elsewhere", func(m *onnxpb.ModelProto) { before(m, "Add", "own", "past_key_values.0.key") }, "past_key_values.0.key serves more"},
		{"an attention bias", func(m *onnxpb.ModelProto) {
			n := attention(m)
			for len(n.Input) <= gqaBias {
				n.Input = append(n.Input, "")
			}
			n.Input[gqaBias] = "bias"
		}, "an attention bias"},
		{"a further output", func(m *onnxpb.ModelProto) { n := attention(m); n.Output = append(n.Output, "qk") }, "more than its cache"},
		{"a cache of its own", func(m *onnxpb.ModelProto) { attention(m).Input[gqaPastKey] = "x" }, "not an input of the graph"},
		{"no cache out", func(m *onnxpb.ModelProto) { attention(m).Output[1] = "x" }, "not an output of the graph"},
		{"too few inputs", func(m *onnxpb.ModelProto) { n := attention(m); n.Input = n.Input[:3] }, "not an input of the graph"},
		{"tokens summed up", func(m *onnxpb.ModelProto) { before(m, "CumSum", "own", "axis") }, "nothing is known of its input"},
		{"an operator over tokens", func(m *onnxpb.ModelProto) { before(m, "LpNormalization", "own") }, "(LpNormalization): not known to treat tokens one by one"},
		{"tokens along the axis", func(m *onnxpb.ModelProto) {
			before(m, "Softmax", "own")
			m.Graph.Node[len(m.Graph.Node)-1].Attribute = []*onnxpb.AttributeProto{intAttribute("axis", 1)}
		}, "it mixes tokens"},
		{"a circle", func(m *onnxpb.ModelProto) { before(m, "Add", "own", Logits) }, "depends on itself"},
		{"made twice", func(m *onnxpb.ModelProto) { m.Graph.Node = append(m.Graph.Node, m.Graph.Node[0]) }, "made twice"},
		{"one layer's attention less", func(m *onnxpb.ModelProto) {
			i := slices.Index(m.Graph.Node, attention(m))
			m.Graph.Node = slices.Delete(m.Graph.Node, i, i+1)
		}, "1 layers with GroupQueryAttention for 2 caches"},
	} {
		m := readModelT(t, "gqa")
		c.change(m)
		if _, err := NewRagged(m, takeAll()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestPlainAttention: scales, softcaps and windows are those of the model, in
// whatever way an exporter wrote them down.
func TestPlainAttention(t *testing.T) {
	for _, c := range []struct {
		name           string
		scale, softcap float32
		windows        []int64 // by layer; 0: none
	}{
		{"llama-optimum", 0.25, 0, []int64{0, 0}},
		{"gpt2-optimum", 0.25, 0, []int64{0, 0}},
		{"qwen3-optimum", 0.25, 0, []int64{0, 0}},
		{"gemma2-optimum", 0.25, 50, []int64{12, 0}},
		{"growing", 0.25, 0, []int64{0, 0}},
	} {
		r := raggedT(t, readModelT(t, c.name), takeAll())
		layer := 0
		for _, n := range r.Model.Graph.Node {
			if n.GetOpType() != "PagedAttention" {
				continue
			}
			scale, softcap, window := Attribute(n, "scale").GetF(), Attribute(n, "softcap").GetF(), Attribute(n, "local_window_size").GetI()
			if scale < c.scale-1e-5 || scale > c.scale+1e-5 || softcap < c.softcap-1e-3 || softcap > c.softcap+1e-3 || window != c.windows[layer] {
				t.Errorf("%s, layer %d: scale %g, softcap %g, window %d, want %g, %g, %d", c.name, layer, scale, softcap, window, c.scale, c.softcap, c.windows[layer])
			}
			layer++
		}
		if layer != len(c.windows) {
			t.Errorf("%s: %d layers", c.name, layer)
		}
	}
}

// TestPlainAttentionRefused: what is not the attention of the operator is seen.
func TestPlainAttentionRefused(t *testing.T) {
	find := func(m *onnxpb.ModelProto, op, out string) *onnxpb.NodeProto {
		for _, n := range m.Graph.Node {
			if n.GetOpType() == op && (out == "" || slices.Contains(n.Output, out)) {
				return n
			}
		}
		t.Fatalf("no %s of %s", op, out)
		return nil
	}
	for _, c := range []struct {
		name, want string
		change     func(m *onnxpb.ModelProto)
	}{
		{"tokens see what is later", "a mask by which token", func(m *onnxpb.ModelProto) { find(m, "LessOrEqual", "").OpType = proto.String("GreaterOrEqual") }},
		{"tokens do not see themselves", "a mask by which token", func(m *onnxpb.ModelProto) { find(m, "LessOrEqual", "").OpType = proto.String("Less") }},
		{"no mask", "without a mask", func(m *onnxpb.ModelProto) {
			n := find(m, "Where", "")
			n.OpType, n.Input = proto.String("Identity"), n.Input[1:2]
		}},
		{"another softmax", "a Softmax over something else", func(m *onnxpb.ModelProto) {
			n := find(m, "Softmax", "")
			n.Attribute = []*onnxpb.AttributeProto{intAttribute("axis", 2)}
		}},
		{"an operator on scores", "scores in Sigmoid", func(m *onnxpb.ModelProto) {
			n := find(m, "Softmax", "")
			m.Graph.Node = append(m.Graph.Node, &onnxpb.NodeProto{OpType: proto.String("Sigmoid"), Input: []string{n.Input[0]}, Output: []string{"squashed"}})
			n.Input[0] = "squashed"
		}},
		{"a cache that grows at its front", "is not past_key_values.0.key with more behind it", func(m *onnxpb.ModelProto) {
			slices.Reverse(find(m, "Concat", "present.0.key").Input)
		}},
	} {
		m := readModelT(t, "growing")
		c.change(m)
		if _, err := NewRagged(m, takeAll()); err == nil || !strings.Contains(err.Error(), "the attention of layer 0 is not recognized") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := NewRagged(readModelT(t, "llama-optimum-int8"), takeAll()); err == nil || !strings.Contains(err.Error(), "(DynamicQuantizeLinear): all tokens of a pass get one scale together") {
		t.Errorf("one scale for all tokens of a pass: got %v", err)
	}
}

// TestRaggedDamaged: graphs with nodes that lack something, read something else
// or are something else are refused or rewritten, without a panic.
func TestRaggedDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"gemma2-builder", "qwen2-builder-int4", "phi3-builder", "growing", "llama-optimum", "gpt2-optimum", "gemma2-optimum"} {
		original := readModelT(t, name)
		refused := 0
		for range 10 {
			m := proto.CloneOf(original)
			for range 1 + rng.IntN(3) {
				damage(rng, m.Graph)
			}
			for _, o := range []RaggedOptions{takeAll(), {Domain: MicrosoftDomain}} {
				r, err := NewRagged(m, o)
				if err != nil {
					refused++
				} else if _, err := proto.Marshal(r.Model); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if refused == 0 {
			t.Errorf("%s: no damage was found", name)
		}
	}
}

func damage(rng *rand.Rand, g *onnxpb.GraphProto) {
	n, other := g.Node[rng.IntN(len(g.Node))], g.Node[rng.IntN(len(g.Node))]
	switch rng.IntN(9) {
	case 0:
		n.Input = n.Input[:rng.IntN(len(n.Input)+1)]
	case 1:
		n.Output = n.Output[:rng.IntN(len(n.Output)+1)]
	case 2:
		n.Attribute = nil
	case 3:
		n.OpType = other.OpType
	case 4:
		if len(n.Input) > 0 && len(other.Output) > 0 {
			n.Input[rng.IntN(len(n.Input))] = other.Output[rng.IntN(len(other.Output))]
		}
	case 5:
		n.Attribute = other.Attribute
	case 6:
		if len(g.Initializer) > 0 {
			w := g.Initializer[rng.IntN(len(g.Initializer))]
			w.Dims = append(w.Dims, int64(rng.IntN(5))-1)
		}
	case 7:
		if len(n.Attribute) > 0 {
			a := n.Attribute[rng.IntN(len(n.Attribute))]
			a.I, a.Ints = proto.Int64(rng.Int64()-rng.Int64()), append(slices.Clone(a.Ints), rng.Int64N(9)-4)
		}
	case 8:
		i := rng.IntN(len(g.Node))
		g.Node = slices.Delete(g.Node, i, i+1)
	}
}
