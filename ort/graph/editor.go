package graph

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// editor holds a graph that is being rewritten: nodes of its own, which may be
// changed, and who makes and uses each value.
type editor struct {
	nodes   []*onnxpb.NodeProto
	weights map[string]*onnxpb.TensorProto // initializers, those added included
	added   []*onnxpb.TensorProto
	maker   map[string]*onnxpb.NodeProto
	users   map[string][]*onnxpb.NodeProto // once for each use
}

// newEditor copies the nodes of a graph.
func newEditor(g *onnxpb.GraphProto) (*editor, error) {
	e := &editor{weights: map[string]*onnxpb.TensorProto{}}
	for _, t := range g.Initializer {
		e.weights[t.GetName()] = t
	}
	made := map[string]bool{}
	for _, n := range g.Node {
		c := &onnxpb.NodeProto{
			Input: slices.Clone(n.Input), Output: slices.Clone(n.Output), Name: n.Name,
			OpType: n.OpType, Domain: n.Domain, Attribute: slices.Clone(n.Attribute),
		}
		for _, name := range n.Output {
			if name != "" && (made[name] || e.weights[name] != nil) {
				return nil, fmt.Errorf("%s is made twice", name)
			}
			made[name] = true
		}
		e.nodes = append(e.nodes, c)
	}
	e.index()
	return e, nil
}

// index finds makers and users again, after nodes have changed.
func (e *editor) index() {
	e.maker, e.users = map[string]*onnxpb.NodeProto{}, map[string][]*onnxpb.NodeProto{}
	for _, n := range e.nodes {
		for _, name := range n.Output {
			if name != "" {
				e.maker[name] = n
			}
		}
		reads := map[string]bool{}
		need(n, reads)
		for _, name := range n.Input {
			if name != "" {
				e.users[name] = append(e.users[name], n)
				delete(reads, name)
			}
		}
		for name := range reads { // by subgraphs
			e.users[name] = append(e.users[name], n)
		}
	}
}

// sort keeps the nodes that outputs need, producers before their users, and
// returns the names of all values that are needed.
func (e *editor) sort(outputs ...string) (map[string]bool, error) {
	const underWay, done = 1, 2
	e.index()
	state := map[*onnxpb.NodeProto]int{}
	needed := map[string]bool{}
	var nodes []*onnxpb.NodeProto
	var visit func(name string) error
	visit = func(name string) error {
		needed[name] = true
		n := e.maker[name]
		if n == nil || state[n] == done {
			return nil
		}
		if state[n] == underWay {
			return fmt.Errorf("%s depends on itself", name)
		}
		state[n] = underWay
		for _, name := range reads(n) {
			if err := visit(name); err != nil {
				return err
			}
		}
		state[n] = done
		nodes = append(nodes, n)
		return nil
	}
	for _, name := range outputs {
		if e.maker[name] == nil {
			return nil, fmt.Errorf("nothing makes the output %s", name)
		}
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	e.nodes = nodes
	e.index()
	return needed, nil
}

// reads are the names of what a node reads, in a fixed order.
func reads(n *onnxpb.NodeProto) []string {
	names := slices.DeleteFunc(slices.Clone(n.Input), func(name string) bool { return name == "" })
	inner := map[string]bool{}
	need(n, inner)
	for _, name := range names {
		delete(inner, name)
	}
	delete(inner, "")
	var more []string
	for name := range inner {
		more = append(more, name)
	}
	slices.Sort(more)
	return append(names, more...)
}

// input is the name of a node's i-th input, "" where it has none.
func input(n *onnxpb.NodeProto, i int) string {
	if n == nil || i >= len(n.Input) {
		return ""
	}
	return n.Input[i]
}

// only is the node that alone uses a value, once; nil where there are more or
// none.
func (e *editor) only(name string) *onnxpb.NodeProto {
	if users := e.users[name]; len(users) == 1 {
		return users[0]
	}
	return nil
}

// replace makes every user of a value read another.
func (e *editor) replace(old, with string) {
	for _, n := range e.users[old] {
		for i, name := range n.Input {
			if name == old {
				n.Input[i] = with
			}
		}
	}
}

// add appends a node; sort puts it into its place.
func (e *editor) add(domain, op, name string, inputs, outputs []string, attributes ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{OpType: &op, Name: &name, Input: inputs, Output: outputs, Attribute: attributes}
	if domain != "" {
		n.Domain = &domain
	}
	e.nodes = append(e.nodes, n)
	return n
}

// ints is an int64 initializer, made when it is first asked for.
func (e *editor) ints(values ...int64) string {
	name := "ragged.ints"
	for _, v := range values {
		name += fmt.Sprintf(".%d", v)
	}
	if e.weights[name] == nil {
		t := &onnxpb.TensorProto{Name: &name, Dims: []int64{int64(len(values))}, DataType: proto.Int32(int32(Int64)), RawData: []byte{}}
		for _, v := range values {
			t.RawData = binary.LittleEndian.AppendUint64(t.RawData, uint64(v))
		}
		e.weights[name] = t
		e.added = append(e.added, t)
	}
	return name
}

// constant is the tensor behind a name: an initializer, or what a Constant node
// holds; nil otherwise.
func (e *editor) constant(name string) *onnxpb.TensorProto {
	if t := e.weights[name]; t != nil {
		return t
	}
	if n := e.maker[name]; n.GetOpType() == "Constant" {
		if t := Attribute(n, "value").GetT(); t != nil {
			return t
		}
		if a := Attribute(n, "value_int"); a != nil {
			return &onnxpb.TensorProto{DataType: proto.Int32(int32(Int64)), Int64Data: []int64{a.GetI()}}
		}
		if a := Attribute(n, "value_ints"); a != nil {
			return &onnxpb.TensorProto{DataType: proto.Int32(int32(Int64)), Dims: []int64{int64(len(a.Ints))}, Int64Data: a.Ints}
		}
		if a := Attribute(n, "value_float"); a != nil {
			return &onnxpb.TensorProto{DataType: proto.Int32(int32(Float32)), FloatData: []float32{a.GetF()}}
		}
	}
	return nil
}

// intsOf are the numbers of a small int64 or int32 tensor.
func intsOf(t *onnxpb.TensorProto) ([]int64, bool) {
	n, ok := elements(t)
	if !ok || n > 1<<10 || t.GetDataLocation() == External {
		return nil, false
	}
	var values []int64
	switch typ := ElementType(t.GetDataType()); {
	case typ == Int64 && int64(len(t.RawData)) == 8*n:
		for i := range n {
			values = append(values, int64(binary.LittleEndian.Uint64(t.RawData[8*i:])))
		}
	case typ == Int64 && int64(len(t.Int64Data)) == n:
		values = t.Int64Data
	case typ == Int32 && int64(len(t.RawData)) == 4*n:
		for i := range n {
			values = append(values, int64(int32(binary.LittleEndian.Uint32(t.RawData[4*i:]))))
		}
	case typ == Int32 && int64(len(t.Int32Data)) == n:
		for _, v := range t.Int32Data {
			values = append(values, int64(v))
		}
	default:
		return nil, false
	}
	return values, true
}

// float is the one number of a constant of a float type.
func (e *editor) float(name string) (float64, bool) {
	t := e.constant(name)
	if n, ok := elements(t); !ok || n != 1 || t.GetDataLocation() == External {
		return 0, false
	}
	switch typ := ElementType(t.GetDataType()); {
	case typ == Float32 && len(t.RawData) == 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(t.RawData))), true
	case typ == Float32 && len(t.FloatData) == 1:
		return float64(t.FloatData[0]), true
	case typ == Float16 && len(t.RawData) == 2:
		return half(binary.LittleEndian.Uint16(t.RawData)), true
	case typ == BFloat16 && len(t.RawData) == 2:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.RawData)) << 16)), true
	}
	return 0, false
}

// half is a number of IEEE 754's binary16.
func half(h uint16) float64 {
	sign, exponent, fraction := 1.0, int(h>>10)&31, float64(h&1023)
	if h>>15 != 0 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// elements is the number of elements of a tensor, false where its sizes cannot
// be true.
func elements(t *onnxpb.TensorProto) (int64, bool) {
	if t == nil {
		return 0, false
	}
	n := int64(1)
	for _, d := range t.Dims {
		if d < 0 || d > 1<<32 || n > 1<<40/max(d, 1) {
			return 0, false
		}
		n *= d
	}
	return n, true
}

func intAttribute(name string, v int64) *onnxpb.AttributeProto {
	const kind = 2 // AttributeProto.INT
	return &onnxpb.AttributeProto{Name: &name, I: &v, Type: proto.Int32(kind)}
}

func intsAttribute(name string, v ...int64) *onnxpb.AttributeProto {
	const kind = 7 // AttributeProto.INTS
	return &onnxpb.AttributeProto{Name: &name, Ints: v, Type: proto.Int32(kind)}
}

func stringAttribute(name, v string) *onnxpb.AttributeProto {
	const kind = 3 // AttributeProto.STRING
	return &onnxpb.AttributeProto{Name: &name, S: []byte(v), Type: proto.Int32(kind)}
}

func floatAttribute(name string, v float64) *onnxpb.AttributeProto {
	const kind = 1 // AttributeProto.FLOAT
	return &onnxpb.AttributeProto{Name: &name, F: proto.Float32(float32(v)), Type: proto.Int32(kind)}
}
