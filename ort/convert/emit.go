package convert

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// element is ONNX's TensorProto.DataType.
type element int32

const (
	float32Type  element = 1
	uint8Type    element = 2
	int32Type    element = 6
	int64Type    element = 7
	float16Type  element = 10
	bfloat16Type element = 16
)

func (e element) width() int {
	switch e {
	case uint8Type:
		return 1
	case float16Type, bfloat16Type:
		return 2
	case int64Type:
		return 8
	}
	return 4
}

// operators of ONNX Runtime's own domain.
var contrib = map[string]bool{
	"GroupQueryAttention": true, "SkipSimplifiedLayerNormalization": true, "SkipLayerNormalization": true,
	"MatMulNBits": true, "GatherBlockQuantized": true,
}

// emitter writes an ONNX graph. Names of nodes are paths, and the first output
// of node /a/b is /a/b/output_0, as onnxruntime-genai's model builder has it.
type emitter struct {
	graph  *onnxpb.GraphProto
	known  map[string]bool // constants and initializers
	blobs  []blob
	length int64 // of the external data
}

// blob is an initializer's bytes in the file of external data.
type blob struct {
	name   string
	offset int64
	size   int64
	fill   filler
}

// filler writes a blob's bytes.
type filler func(*filling) error

const (
	opset     = 22
	irVersion = 10
	dataName  = "model.onnx.data"
)

// attributes of a node, by name; values are int, float64, string or []int64.
type attributes map[string]any

// node adds a node and returns its first output. A name in outputs that is
// empty stands for one that nobody asks for.
func (e *emitter) node(op, name string, inputs []string, a attributes, outputs ...string) string {
	if len(outputs) == 0 {
		outputs = []string{strings.TrimSuffix(name, "/") + "/output_0"}
	}
	n := &onnxpb.NodeProto{Input: inputs, Output: outputs, Name: &name, OpType: &op}
	if contrib[op] {
		n.Domain = proto.String("com.microsoft")
	}
	for _, key := range sorted(a) {
		n.Attribute = append(n.Attribute, attribute(key, a[key]))
	}
	e.graph.Node = append(e.graph.Node, n)
	return outputs[0]
}

func attribute(key string, value any) *onnxpb.AttributeProto {
	p := &onnxpb.AttributeProto{Name: &key}
	switch v := value.(type) {
	case int:
		p.I, p.Type = proto.Int64(int64(v)), proto.Int32(2)
	case float64:
		p.F, p.Type = proto.Float32(float32(v)), proto.Int32(1)
	case string:
		p.S, p.Type = []byte(v), proto.Int32(3)
	case []int64:
		p.Ints, p.Type = v, proto.Int32(7)
	case *onnxpb.TensorProto:
		p.T, p.Type = v, proto.Int32(4)
	}
	return p
}

// ints is a constant of int64, one number where scalar.
func (e *emitter) ints(scalar bool, values ...int64) string {
	name := fmt.Sprint(values)
	t := &onnxpb.TensorProto{DataType: proto.Int32(int32(int64Type))}
	if scalar {
		name = fmt.Sprint(values[0])
	} else {
		name = strings.ReplaceAll(name, " ", ", ")
		t.Dims = []int64{int64(len(values))}
	}
	for _, v := range values {
		t.RawData = binary.LittleEndian.AppendUint64(t.RawData, uint64(v))
	}
	return e.constant("INT64", name, t)
}

// number is a constant of a float type.
func (e *emitter) number(value float64, to element) string {
	t := &onnxpb.TensorProto{DataType: proto.Int32(int32(to)), RawData: floatBytes([]float32{float32(value)}, to)}
	return e.constant(map[element]string{float32Type: "FLOAT", float16Type: "FLOAT16", bfloat16Type: "BFLOAT16"}[to], fmt.Sprint(value), t)
}

func (e *emitter) constant(kind, value string, t *onnxpb.TensorProto) string {
	out := "/model/constants/" + kind + "/" + value
	if !e.known[out] {
		e.known[out] = true
		e.node("Constant", "/model/constant_nodes/"+kind+"/"+value, nil, attributes{"value": t}, out)
	}
	return out
}

// initializer adds an initializer in the external data.
func (e *emitter) initializer(name string, t element, fill filler, dims ...int) string {
	if e.known[name] {
		return name
	}
	e.known[name] = true
	size, shape := int64(t.width()), make([]int64, len(dims))
	for i, n := range dims {
		size *= int64(n)
		shape[i] = int64(n)
	}
	// Whole pages for what is worth mapping, cache lines for the rest.
	align := int64(64)
	if size >= 1<<16 {
		align = 4096
	}
	offset := (e.length + align - 1) / align * align
	e.length = offset + size
	e.blobs = append(e.blobs, blob{name, offset, size, fill})
	p := &onnxpb.TensorProto{Name: &name, DataType: proto.Int32(int32(t)), Dims: shape, DataLocation: proto.Int32(1)}
	for _, kv := range [][2]string{{"location", dataName}, {"offset", fmt.Sprint(offset)}, {"length", fmt.Sprint(size)}} {
		p.ExternalData = append(p.ExternalData, &onnxpb.StringStringEntryProto{Key: proto.String(kv[0]), Value: proto.String(kv[1])})
	}
	e.graph.Initializer = append(e.graph.Initializer, p)
	return name
}

// floats adds an initializer of a few floats.
func (e *emitter) floats(name string, values []float32, t element, dims ...int) string {
	return e.initializer(name, t, func(f *filling) error { return f.write(floatBytes(values, t), 0) }, dims...)
}

// value describes an input or output. A dimension is an int, or a string where
// it varies.
func value(name string, t element, dims ...any) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, d := range dims {
		p := &onnxpb.TensorShapeProto_Dimension{}
		switch d := d.(type) {
		case int:
			p.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)}
		case string:
			p.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d}
		}
		shape.Dim = append(shape.Dim, p)
	}
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(t)), Shape: shape}}}
}

// bytes is the model file; properties are its metadata.
func (e *emitter) bytes(properties map[string]string) ([]byte, error) {
	m := &onnxpb.ModelProto{
		IrVersion: proto.Int64(irVersion), Graph: e.graph,
		OpsetImport: []*onnxpb.OperatorSetIdProto{
			{Domain: proto.String(""), Version: proto.Int64(opset)}, {Domain: proto.String("com.microsoft"), Version: proto.Int64(1)},
		},
	}
	// producer_name (2) and metadata_props (14), which onnxpb does not name.
	raw := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "draftmill")
	for _, key := range sorted(properties) {
		entry, err := proto.Marshal(&onnxpb.StringStringEntryProto{Key: &key, Value: proto.String(properties[key])})
		if err != nil {
			return nil, err
		}
		raw = protowire.AppendBytes(protowire.AppendTag(raw, 14, protowire.BytesType), entry)
	}
	m.ProtoReflect().SetUnknown(raw)
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// float32Bytes is the number as float32 stores it.
func float32Bytes(dst []byte, values []float32) {
	for i, v := range values {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}
