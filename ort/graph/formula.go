package graph

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// formula is a graph of standard operators that is written down operator by
// operator. Values are strings: their names.
type formula struct {
	graph *onnxpb.GraphProto
	known map[string]bool // constants made so far
	made  int
}

func newFormula() *formula { return &formula{graph: &onnxpb.GraphProto{}, known: map[string]bool{}} }

// samplerOpset is the version of the operators.
const samplerOpset = 18

func (f *formula) model(name string) *onnxpb.ModelProto {
	f.graph.Name = &name
	return &onnxpb.ModelProto{
		IrVersion: proto.Int64(8), Graph: f.graph,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: proto.Int64(samplerOpset)}},
	}
}

func (f *formula) name() string {
	f.made++
	return fmt.Sprintf("v%d", f.made)
}

func (f *formula) node(op string, in, out []string, a ...*onnxpb.AttributeProto) {
	f.graph.Node = append(f.graph.Node, &onnxpb.NodeProto{
		OpType: &op, Name: proto.String(fmt.Sprintf("%s.%d", op, len(f.graph.Node))), Input: in, Output: out, Attribute: a,
	})
}

// op is the one output of an operator.
func (f *formula) op(op string, in ...string) string {
	out := f.name()
	f.node(op, in, []string{out})
	return out
}

// along is op along an axis.
func (f *formula) along(op string, axis int64, in ...string) string {
	out := f.name()
	f.node(op, in, []string{out}, intAttribute("axis", axis))
	return out
}

// elements takes from each row of x its numbers at the places.
func (f *formula) elements(x, places string) string { return f.along("GatherElements", 1, x, places) }

func (f *formula) cast(x string, to ElementType) string {
	out := f.name()
	f.node("Cast", []string{x}, []string{out}, intAttribute("to", int64(to)))
	return out
}

// split cuts an axis into n equal parts.
func (f *formula) split(x string, axis, n int64) []string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = f.name()
	}
	f.node("Split", []string{x}, parts, intAttribute("axis", axis), intAttribute("num_outputs", n))
	return parts
}

// reduce folds an axis to one entry.
func (f *formula) reduce(op, x string, axis int64) string {
	return f.op(op, x, f.ints(axis))
}

// slice is the entries from .. to-1 of the second axis.
func (f *formula) slice(x string, from, to int64) string {
	return f.op("Slice", x, f.ints(from), f.ints(to), f.ints(1))
}

func (f *formula) input(name string, t ElementType, shape ...int64) {
	f.graph.Input = append(f.graph.Input, Value(name, t, shape...))
}

// output gives a value a name for the outside.
func (f *formula) output(name string, t ElementType, x string, shape ...int64) {
	f.node("Identity", []string{x}, []string{name})
	f.graph.Output = append(f.graph.Output, Value(name, t, shape...))
}

func (f *formula) constant(name string, t ElementType, data []byte, dims ...int64) string {
	if !f.known[name] {
		f.known[name] = true
		f.graph.Initializer = append(f.graph.Initializer, &onnxpb.TensorProto{Name: &name, Dims: dims, DataType: proto.Int32(int32(t)), RawData: data})
	}
	return name
}

// float is a number of float32.
func (f *formula) float(x float64) string {
	bits := math.Float32bits(float32(x))
	return f.constant(fmt.Sprintf("f%08x", bits), Float32, binary.LittleEndian.AppendUint32(nil, bits))
}

// ints is a list of int64.
func (f *formula) ints(values ...int64) string {
	name, data := "ints", []byte{}
	for _, v := range values {
		name += fmt.Sprintf(".%d", v)
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	return f.constant(name, Int64, data, int64(len(values)))
}

// int is a number of int64.
func (f *formula) int(v int64) string {
	return f.constant(fmt.Sprintf("int.%d", v), Int64, binary.LittleEndian.AppendUint64(nil, uint64(v)))
}

// words are numbers of uint64, of a shape.
func (f *formula) words(name string, values []uint64, dims ...int64) string {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, v)
	}
	return f.constant(name, Uint64, data, dims...)
}

// word is a number of uint64.
func (f *formula) word(v uint64) string { return f.words(fmt.Sprintf("word.%x", v), []uint64{v}) }

// longs are numbers of int64, of a shape.
func (f *formula) longs(name string, values []int64, dims ...int64) string {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	return f.constant(name, Int64, data, dims...)
}
