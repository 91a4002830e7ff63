package graph

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// Places among the inputs of GroupQueryAttention, whose kernels refuse more
// than one sequence when several tokens follow a past.
const (
	gqaValue     = 2 // query, key and value come first
	gqaPastKey   = 3
	gqaPastValue = 4
	gqaSeqlens   = 5
	gqaTotal     = 6
	gqaPositions = 9
	gqaBias      = 10
)

// Lanes rewrites a GQA model so that one run takes n sequences, each with a
// cache and a length of its own:
//
//	            +- GroupQueryAttention, lane 0 -+
//	qkv - Split +- GroupQueryAttention, lane 1 -+ Concat - ...
//	            +- ...                         -+
//
// and every other node works on all lanes together, [n, S, hidden]. Inputs
// and outputs that the lanes do not share are named by LaneName; a lane's
// lengths are inputs too, in place of attention_mask. The model is left as it
// is and shares what does not change with the result. The error says why a
// graph cannot be rewritten.
func Lanes(m *onnxpb.ModelProto, n int) (*onnxpb.ModelProto, error) {
	for _, o := range m.OpsetImport {
		if o.GetDomain() == "" && o.GetVersion() < 13 {
			return nil, fmt.Errorf("opset %d: its Split cannot be given sizes", o.GetVersion())
		}
	}
	r := &rewriter{n: n}
	var nodes []*onnxpb.NodeProto
	branches := lengthBranches(m.Graph)
	for i, node := range m.Graph.Node {
		if branches[node] > 0 {
			nodes = append(nodes, withinLimit(node)...)
			continue
		}
		if node.GetOpType() != "GroupQueryAttention" {
			nodes = append(nodes, node)
			continue
		}
		if err := r.attention(node, i); err != nil {
			return nil, fmt.Errorf("node %s: %w", node.GetName(), err)
		}
		nodes = append(nodes, r.nodes...)
		r.nodes = nil
	}
	g := &onnxpb.GraphProto{Name: m.Graph.Name, Initializer: append(slices.Clone(m.Graph.Initializer), r.ones())}
	r.values(m.Graph, g)
	for name := range Prune(g, nodes) {
		// The lanes have lengths and caches of their own instead.
		if name == "attention_mask" || pastName.MatchString(name) {
			return nil, fmt.Errorf("%s serves more than GroupQueryAttention", name)
		}
	}
	// What ModelProto and GraphProto hold besides is copied as unknown fields.
	g.ProtoReflect().SetUnknown(m.Graph.ProtoReflect().GetUnknown())
	out := &onnxpb.ModelProto{IrVersion: m.IrVersion, Graph: g, OpsetImport: m.OpsetImport}
	out.ProtoReflect().SetUnknown(m.ProtoReflect().GetUnknown())
	return out, nil
}

// LaneName is the name of a lane's own input or output.
func LaneName(lane int, name string) string { return fmt.Sprintf("lane.%d.%s", lane, name) }

// A lane's inputs besides its cache: how long it is once the fed tokens are in
// it, minus one, int32 [1], and the same without the subtraction, int32 [].
const (
	SeqlensName = "seqlens_k"
	TotalName   = "total_sequence_length"
)

const lanesOnes = "lanes.ones" // the sizes of a Split: 1 for every lane

type rewriter struct {
	n     int
	nodes []*onnxpb.NodeProto
}

// ones is the initializer lanesOnes.
func (r *rewriter) ones() *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: proto.String(lanesOnes), Dims: []int64{int64(r.n)}, DataType: proto.Int32(int32(Int64))}
	for range r.n {
		t.RawData = append(t.RawData, 1, 0, 0, 0, 0, 0, 0, 0) // little-endian
	}
	return t
}

// attention appends the nodes that stand for one GroupQueryAttention, the
// number-th node of the graph.
func (r *rewriter) attention(node *onnxpb.NodeProto, number int) error {
	in := func(i int) string {
		if i < len(node.Input) {
			return node.Input[i]
		}
		return ""
	}
	switch {
	case in(gqaBias) != "":
		return errors.New("an attention bias belongs to all lanes together")
	case len(node.Output) > 3 && strings.Join(node.Output[3:], "") != "":
		return errors.New("it returns more than its cache")
	case !pastName.MatchString(in(gqaPastKey)) || !pastName.MatchString(in(gqaPastValue)):
		return errors.New("its cache is not an input of the graph")
	case in(gqaSeqlens) == "" || in(gqaTotal) == "":
		return errors.New("it has no lengths")
	case len(node.Output) < 3 || !presentName.MatchString(node.Output[1]) || !presentName.MatchString(node.Output[2]):
		return errors.New("its cache is not an output of the graph")
	}
	prefix := fmt.Sprintf("lanes.%d", number)
	split := map[int][]string{}
	for _, i := range []int{0, 1, gqaValue, gqaPositions} {
		if in(i) == "" {
			continue
		}
		for lane := range r.n {
			split[i] = append(split[i], fmt.Sprintf("%s.in.%d.%d", prefix, i, lane))
		}
		r.add("Split", fmt.Sprintf("%s.split.%d", prefix, i), []string{in(i), lanesOnes}, split[i])
	}
	var outs []string
	for lane := range r.n {
		c := proto.CloneOf(node)
		c.Name = proto.String(fmt.Sprintf("%s.lane.%d", prefix, lane))
		for i, names := range split {
			c.Input[i] = names[lane]
		}
		for _, i := range []int{gqaPastKey, gqaPastValue} {
			c.Input[i] = LaneName(lane, in(i))
		}
		c.Input[gqaSeqlens], c.Input[gqaTotal] = LaneName(lane, SeqlensName), LaneName(lane, TotalName)
		c.Output[0] = fmt.Sprintf("%s.out.%d", prefix, lane)
		for _, i := range []int{1, 2} {
			c.Output[i] = LaneName(lane, node.Output[i])
		}
		outs = append(outs, c.Output[0])
		r.nodes = append(r.nodes, c)
	}
	r.add("Concat", prefix+".concat", outs, node.Output[:1])
	return nil
}

// add appends a node that works along the first axis.
func (r *rewriter) add(op, name string, inputs, outputs []string) {
	const attributeInt = 2 // AttributeProto.INT
	r.nodes = append(r.nodes, &onnxpb.NodeProto{
		Input: inputs, Output: outputs, Name: &name, OpType: &op,
		Attribute: []*onnxpb.AttributeProto{{Name: proto.String("axis"), I: proto.Int64(0), Type: proto.Int32(attributeInt)}},
	})
}

// values gives g the inputs and outputs of the rewritten graph.
func (r *rewriter) values(from, g *onnxpb.GraphProto) {
	for _, v := range from.Input {
		if name := v.GetName(); name != "attention_mask" && !pastName.MatchString(name) {
			g.Input = append(g.Input, v)
		}
	}
	for _, v := range from.Output {
		if !presentName.MatchString(v.GetName()) {
			g.Output = append(g.Output, v)
		}
	}
	for lane := range r.n {
		g.Input = append(g.Input,
			Value(LaneName(lane, SeqlensName), Int32, -1),
			Value(LaneName(lane, TotalName), Int32))
		for _, side := range []struct {
			from []*onnxpb.ValueInfoProto
			to   *[]*onnxpb.ValueInfoProto
			is   func(string) bool
		}{{from.Input, &g.Input, pastName.MatchString}, {from.Output, &g.Output, presentName.MatchString}} {
			for _, v := range side.from {
				if side.is(v.GetName()) {
					t := describeValue(v)
					*side.to = append(*side.to, Value(LaneName(lane, t.Name), t.Type, 1, t.Shape[1], -1, t.Shape[3]))
				}
			}
		}
	}
}

// Value describes a tensor; a negative size is left open.
func Value(name string, typ ElementType, shape ...int64) *onnxpb.ValueInfoProto {
	s := &onnxpb.TensorShapeProto{}
	for i, size := range shape {
		d := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: size}}
		if size < 0 {
			d.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: name + "." + strconv.Itoa(i)}
		}
		s.Dim = append(s.Dim, d)
	}
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(typ)), Shape: s},
	}}
}

// Prune gives g those of the nodes that its outputs need, drops initializers
// that nobody needs, and returns the names that are needed.
func Prune(g *onnxpb.GraphProto, nodes []*onnxpb.NodeProto) map[string]bool {
	needed := map[string]bool{}
	for _, v := range g.Output {
		needed[v.GetName()] = true
	}
	for _, node := range slices.Backward(nodes) { // producers stand before their users
		if slices.ContainsFunc(node.Output, func(name string) bool { return needed[name] }) {
			g.Node = append(g.Node, node)
			need(node, needed)
		}
	}
	slices.Reverse(g.Node)
	g.Initializer = slices.DeleteFunc(g.Initializer, func(t *onnxpb.TensorProto) bool { return !needed[t.GetName()] })
	return needed
}

// need marks what a node reads, its subgraphs included.
func need(node *onnxpb.NodeProto, needed map[string]bool) {
	for _, name := range node.Input {
		needed[name] = true
	}
	for _, a := range node.Attribute {
		for _, g := range append(slices.Clone(a.Graphs), a.G) {
			for _, inner := range g.GetNode() {
				need(inner, needed)
			}
			for _, v := range g.GetOutput() {
				needed[v.GetName()] = true
			}
		}
	}
}
