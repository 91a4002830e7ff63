package graph

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// TestRaggedCrossed: what is left of the decoders of encoder-decoder models.
func TestRaggedCrossed(t *testing.T) {
	for _, c := range []struct {
		dir, ops         string
		matrices, tables int
		positions        bool
	}{
		{"models/t5-optimum", "Add 7, CrossAttention 2, Div 7, Gather 3, Matrices 13, Mul 15, PagedAttention 2, Pow 7, ReduceMean 7, Relu 2, Sqrt 7, Squeeze", 17, 1, false},
		{"models/t5-optimum-split", "Add 7, CrossAttention 2, Div 7, Gather 3, Matrices 13, Mul 15, PagedAttention 2, Pow 7, ReduceMean 7, Relu 2, Sqrt 7, Squeeze", 17, 1, false},
		{"models/mt5-optimum", "Add 7, CrossAttention 2, Div 7, Gated 2, Gather 3, Matrices 11, Mul 14, PagedAttention 2, Pow 7, ReduceMean 7, Sqrt 7, Squeeze", 19, 1, false},
		{"models/bart-optimum", "Add 5, CrossAttention 2, Div 2, Erf 2, Gather 4, LayerNormalization 7, Matrices 13, Mul 5, PagedAttention 2, Squeeze", 17, 0, true},
		{"models/bart-optimum-split", "Add 5, CrossAttention 2, Div 2, Erf 2, Gather 4, LayerNormalization 7, Matrices 13, Mul 5, PagedAttention 2, Squeeze", 17, 0, true},
		{"models/marian-optimum", "Add 4, CrossAttention 2, Div 2, Erf 2, Gather 4, LayerNormalization 6, Matrices 13, Mul 5, PagedAttention 2, Squeeze 2", 17, 0, true},
	} {
		t.Run(c.dir, func(t *testing.T) {
			first, next, l := readCrossedT(t, crossedDir(c.dir))
			r, err := NewRaggedCrossed(next, l, 64, takeAll())
			if err != nil {
				t.Fatal(err)
			}
			if got := summary(r.Model.Graph); got != c.ops {
				t.Errorf("operators %s,\nwant      %s", got, c.ops)
			}
			tables := 0
			for _, w := range r.Model.Graph.Initializer {
				if strings.HasPrefix(w.GetName(), "ragged.distances.") {
					tables++
				}
			}
			if len(r.Matrices) != c.matrices || r.Positions != c.positions || tables != c.tables || !r.Crossed {
				t.Errorf("%d matrices, positions %v, %d tables, want %d, %v, %d", len(r.Matrices), r.Positions, tables, c.matrices, c.positions, c.tables)
			}
			checkRagged(t, next, r)
			k, err := NewCrossKeys(first, l)
			if err != nil {
				t.Fatal(err)
			}
			s := Describe(k, "")
			var names []string
			for _, v := range s.Outputs {
				names = append(names, v.Name)
			}
			if len(s.Inputs) != 1 || s.Inputs[0].Name != "encoder_hidden_states" || !slices.Equal(names, l.Cross.Present) || s.Ops["MatMul"] != 2*l.Layers {
				t.Errorf("keys of inputs: %v to %v with %v", s.Inputs, names, s.Ops)
			}
		})
	}
}

// TestRaggedCrossedTranslate: the translation pair's decoders, whose weights are int8
// times a number for each column, become eleven nodes of a layer that compute, beside
// three norms.
func TestRaggedCrossedTranslate(t *testing.T) {
	for _, name := range []string{"target", "draft"} {
		_, next, l := readCrossedT(t, crossedDir("translate/"+name))
		r, err := NewRaggedCrossed(next, l, 256, takeAll())
		if err != nil {
			t.Fatal(err)
		}
		checkRagged(t, next, r)
		ops := map[string]int{}
		for _, n := range r.Model.Graph.Node {
			ops[n.GetOpType()]++
		}
		for op, n := range map[string]int{"PagedAttention": 1, "CrossAttention": 1, "Matrices": 5, "Gated": 1, "ReduceMean": 3} {
			extra := ops[op] - n*l.Layers
			if op == "Matrices" || op == "ReduceMean" {
				extra-- // the head, and the norm before it
			}
			if extra != 0 {
				t.Errorf("%s: %d %s in %d layers", name, ops[op], op, l.Layers)
			}
		}
		for _, m := range r.Matrices {
			if m.Columns == nil || m.Columns.Dims[len(m.Columns.Dims)-1] != int64(m.N) {
				t.Errorf("%s: %s has no numbers of columns", name, m.Name)
			}
		}
	}
}

// TestRaggedCrossedTables: what a decoder adds to scores is found for each head and
// distance, as the exporter's table of buckets says.
func TestRaggedCrossedTables(t *testing.T) {
	_, next, l := readCrossedT(t, crossedDir("models/t5-optimum-split"))
	const most = 50
	r, err := NewRaggedCrossed(next, l, most, takeAll())
	if err != nil {
		t.Fatal(err)
	}
	var buckets, got []float64
	for _, w := range next.Graph.Initializer {
		if strings.HasSuffix(w.GetName(), "relative_attention_bias.weight") {
			buckets = floatsOf(w)
		}
	}
	for _, w := range r.Model.Graph.Initializer {
		if strings.HasPrefix(w.GetName(), "ragged.distances.") {
			got = floatsOf(w)
		}
	}
	const heads = 3
	if len(buckets) != 8*heads || len(got) != heads*most {
		t.Fatalf("%d numbers in buckets, %d in the table", len(buckets), len(got))
	}
	// Eight buckets: distances 0 to 3, then four by their logarithm up to 20.
	for d := range most {
		bucket := d
		if d >= 4 {
			bucket = min(7, 4+int(math.Log(float64(d)/4)/math.Log(20.0/4)*4))
		}
		for h := range heads {
			if got[h*most+d] != buckets[bucket*heads+h] {
				t.Errorf("head %d, distance %d: %g, want that of bucket %d, %g", h, d, got[h*most+d], bucket, buckets[bucket*heads+h])
			}
		}
	}
	// Where the buckets lie in another file they are read, or the graph is left alone.
	o := takeAll()
	for i, w := range next.Graph.Initializer {
		if strings.HasSuffix(w.GetName(), "relative_attention_bias.weight") {
			moved := proto.CloneOf(w)
			SetExternal(moved, "weights.bin", 0, len(w.RawData))
			next.Graph.Initializer[i] = moved
			o.Read = func(*onnxpb.TensorProto) []byte { return w.RawData }
		}
	}
	again, err := NewRaggedCrossed(next, l, most, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range again.Model.Graph.Initializer {
		if strings.HasPrefix(w.GetName(), "ragged.distances.") && !slices.Equal(floatsOf(w), got) {
			t.Error("a table that was read is another")
		}
	}
	if _, err := NewRaggedCrossed(next, l, most, takeAll()); err == nil || !strings.Contains(err.Error(), "numbers are not known") {
		t.Errorf("got %v", err)
	}
}

// TestRaggedCrossedRefuses: graphs that compute something else are left alone.
func TestRaggedCrossedRefuses(t *testing.T) {
	const attention = "/decoder/block.0/layer.0/SelfAttention/"
	node := func(t *testing.T, g *onnxpb.GraphProto, output string) *onnxpb.NodeProto {
		t.Helper()
		for _, n := range g.Node {
			if slices.Contains(n.Output, output) {
				return n
			}
		}
		t.Fatalf("nothing makes %s", output)
		return nil
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, m *onnxpb.ModelProto, l *Layout)
		want   string
	}{
		"half precision": {func(_ *testing.T, _ *onnxpb.ModelProto, l *Layout) { l.Cache = Float16 }, "in float32 only"},
		"what is added depends on more than the distance": {func(t *testing.T, m *onnxpb.ModelProto, _ *Layout) {
			sub := node(t, m.Graph, attention+"Sub_output_0")
			m.Graph.Node = append([]*onnxpb.NodeProto(nil), m.Graph.Node...)
			at := slices.Index(m.Graph.Node, sub)
			twice := &onnxpb.NodeProto{OpType: proto.String("Add"), Name: proto.String("twice"), Input: []string{sub.Input[1], sub.Input[1]}, Output: []string{"twice"}}
			m.Graph.Node = slices.Insert(m.Graph.Node, at, twice)
			sub.Input[1] = "twice"
		}, "and elsewhere"},
		"a token does not see itself": {func(t *testing.T, m *onnxpb.ModelProto, _ *Layout) {
			node(t, m.Graph, "/decoder/Greater_output_0").OpType = proto.String("GreaterOrEqual")
		}, "a mask by which token"},
		"it hides some of the input": {func(t *testing.T, m *onnxpb.ModelProto, _ *Layout) {
			for _, n := range m.Graph.Node { // what the mask is taken from: 1
				if n.GetOpType() == "Sub" && n.Output[0] == "/decoder/Sub_output_0" {
					n.Input[0] = "two"
				}
			}
			m.Graph.Initializer = append(m.Graph.Initializer, &onnxpb.TensorProto{Name: proto.String("two"), DataType: proto.Int32(int32(Float32)), FloatData: []float32{2}})
		}, "a mask that hides some"},
		"keys serve something else": {func(t *testing.T, m *onnxpb.ModelProto, l *Layout) {
			node(t, m.Graph, Logits).Output[0] = "own"
			m.Graph.Node = append(m.Graph.Node,
				&onnxpb.NodeProto{OpType: proto.String("ReduceMax"), Name: proto.String("most"), Input: []string{l.Cross.Past[0]}, Output: []string{"most"}, Attribute: []*onnxpb.AttributeProto{intAttribute("keepdims", 0)}},
				&onnxpb.NodeProto{OpType: proto.String("Add"), Name: proto.String("sum"), Input: []string{"own", "most"}, Output: []string{Logits}})
		}, "serves more than attention"},
		"an operator that mixes tokens": {func(t *testing.T, m *onnxpb.ModelProto, _ *Layout) {
			node(t, m.Graph, Logits).Output[0] = "own"
			m.Graph.Node = append(m.Graph.Node, &onnxpb.NodeProto{OpType: proto.String("CumSum"), Name: proto.String("sum"), Input: []string{"own", "own"}, Output: []string{Logits}})
		}, "not known to treat tokens one by one"},
	} {
		t.Run(name, func(t *testing.T) {
			_, next, l := readCrossedT(t, crossedDir("models/t5-optimum-split"))
			c.change(t, next, l)
			if _, err := NewRaggedCrossed(next, l, 64, takeAll()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	merged, _, l := readCrossedT(t, crossedDir("models/t5-optimum"))
	for _, n := range merged.Graph.Node {
		if n.GetOpType() == "If" {
			n.Input[0] = "another"
		}
	}
	for _, f := range []func() error{
		func() error { _, err := NewRaggedCrossed(merged, l, 64, takeAll()); return err },
		func() error { _, err := NewCrossKeys(merged, l); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "chooses no branch") {
			t.Errorf("got %v", err)
		}
	}
	first, _, l := readCrossedT(t, crossedDir("models/bart-optimum-split"))
	node(t, first.Graph, l.Cross.Present[1]).Attribute = []*onnxpb.AttributeProto{intsAttribute("perm", 0, 2, 3, 1)}
	if _, err := NewCrossKeys(first, l); err == nil || !strings.Contains(err.Error(), "is not made of rows") {
		t.Errorf("got %v", err)
	}
}

func crossedDir(name string) string { return filepath.Join("..", "..", "testdata", name) }

func readCrossedT(t *testing.T, dir string) (first, next *onnxpb.ModelProto, l *Layout) {
	t.Helper()
	read := func(name string) (*onnxpb.ModelProto, *Summary) {
		m, err := Read(filepath.Join(dir, name))
		if err != nil {
			return nil, nil
		}
		return m, Describe(m, name)
	}
	_, encoder := read("encoder_model.onnx")
	first, s := read("decoder_model_merged.onnx")
	next = first
	var s2 *Summary
	if first == nil {
		first, s = read("decoder_model.onnx")
		next, s2 = read("decoder_with_past_model.onnx")
	}
	l, err := ReadCrossLayout(encoder, s, s2)
	if err != nil {
		t.Fatal(err)
	}
	return first, next, l
}

// FuzzRaggedCrossed: no decoder file makes reading or rewriting it panic or run for
// ever.
func FuzzRaggedCrossed(f *testing.F) {
	encoder, err := Read(filepath.Join(crossedDir("models/t5-optimum"), "encoder_model.onnx"))
	if err != nil {
		f.Fatal(err)
	}
	states := Describe(encoder, "")
	for _, name := range []string{"t5-optimum", "bart-optimum", "marian-optimum"} {
		data, err := os.ReadFile(filepath.Join(crossedDir("models/"+name), "decoder_model_merged.onnx"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data, "model.onnx")
		if err != nil {
			return
		}
		l, err := ReadCrossLayout(states, Describe(m, "model.onnx"), nil)
		if err != nil {
			return
		}
		if r, err := NewRaggedCrossed(m, l, 64, takeAll()); err == nil {
			if _, err := proto.Marshal(r.Model); err != nil {
				t.Error(err)
			}
		}
		if k, err := NewCrossKeys(m, l); err == nil {
			if _, err := proto.Marshal(k); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRaggedCrossedDamaged: graphs with something exchanged are rewritten or refused,
// and make nothing panic.
func TestRaggedCrossedDamaged(t *testing.T) {
	first, next, l := readCrossedT(t, crossedDir("models/t5-optimum-split"))
	refused := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 17))
		if _, err := NewRaggedCrossed(damaged(r, next), l, 64, takeAll()); err != nil {
			refused++
		}
		if _, err := NewCrossKeys(damaged(r, first), l); err != nil {
			refused++
		}
	}
	if refused < 30 {
		t.Errorf("%d graphs were refused", refused)
	}
}

// damaged is a model with some things exchanged.
func damaged(r *rand.Rand, whole *onnxpb.ModelProto) *onnxpb.ModelProto {
	m := proto.CloneOf(whole)
	nodes := m.Graph.Node
	for range 1 + r.IntN(3) {
		n, other := nodes[r.IntN(len(nodes))], nodes[r.IntN(len(nodes))]
		switch r.IntN(5) {
		case 0:
			n.OpType = other.OpType
		case 1:
			n.Input, other.Input = other.Input, n.Input
		case 2:
			n.Attribute = other.Attribute
		case 3:
			n.Input = n.Input[:len(n.Input)/2]
		default:
			if value := Attribute(n, "value").GetT(); value != nil {
				value.Dims = []int64{int64(r.IntN(3)) - 1}
				for i := range value.RawData {
					value.RawData[i] = byte(r.IntN(256))
				}
			}
		}
	}
	return m
}
