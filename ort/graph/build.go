package graph

import (
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// Places among the inputs of GroupQueryAttention.
const (
	gqaValue     = 2 // query, key and value come first
	gqaPastKey   = 3
	gqaPastValue = 4
	gqaSeqlens   = 5
	gqaTotal     = 6
	gqaPositions = 9
	gqaBias      = 10
)

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
