package graph

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// Summary is the little of an ONNX file that a bundle needs: what goes in and
// out, which operators occur, and which other files hold its weights.
type Summary struct {
	Inputs, Outputs []Tensor
	Ops             map[string]int // operator type -> number of nodes
	Windowed        string         // the first attention whose cache is as long as its window only
	Branches        int64          // tokens of a sequence beyond which another branch is taken, 0: no branches
	External        []string       // locations of external data, relative to the model, sorted
}

// Tensor is a graph input or output. A dimension without a fixed size is -1.
type Tensor struct {
	Name  string
	Type  ElementType
	Shape []int64
}

// Read reads the ONNX file at path, all but its weights: where the file
// holds them itself, they are described as external data in this very file.
// Reading it costs no session, no runtime and little memory.
func Read(path string) (*onnxpb.ModelProto, error) {
	data, err := MapFile(path)
	if err != nil {
		return nil, err
	}
	m, err := Parse(data, filepath.Base(path))
	return m, errors.Join(err, syscall.Munmap(data))
}

// MapFile maps a file for reading. The caller unmaps it.
func MapFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, errors.New("the file is empty")
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	return data, nil
}

// Parse reads a ModelProto from the file named self. It keeps no part of
// the data.
func Parse(data []byte, self string) (*onnxpb.ModelProto, error) {
	m := &onnxpb.ModelProto{}
	// From a model to its graph (7), to an initializer (5), to raw_data (9).
	rest, err := outline(data, 0, self, 7, 5, 9)
	if err == nil {
		err = proto.Unmarshal(rest, m)
	}
	if err == nil && m.Graph == nil {
		err = errors.New("no graph inside")
	}
	if err != nil {
		return nil, fmt.Errorf("not an ONNX model, or cut short: %w", err)
	}
	return m, nil
}

// inlineLimit is the size in bytes up to which weights inside an ONNX file are
// read with it. They are the numbers that shapes and constants are made of.
const inlineLimit = 1 << 10

// outline copies a message without the large bytes at the end of path, a list
// of field numbers. They become external data of the file named self, where
// msg begins at byte at.
func outline(msg []byte, at int, self string, path ...protowire.Number) ([]byte, error) {
	var out, moved []byte
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeField(msg)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		field := msg[:n]
		if num == path[0] && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(field)
			value, _ := protowire.ConsumeBytes(field[tag:])
			start := at + n - len(value)
			switch {
			case len(path) > 1:
				inner, err := outline(value, start, self, path[1:]...)
				if err != nil {
					return nil, err
				}
				out = protowire.AppendBytes(protowire.AppendTag(out, num, typ), inner)
				field = nil
			case len(value) > inlineLimit:
				// Last, so that it prevails over what the message says.
				t := &onnxpb.TensorProto{}
				SetExternal(t, self, start, len(value))
				moved, _ = proto.MarshalOptions{}.MarshalAppend(nil, t) // cannot fail: nothing is required
				field = nil
			}
		}
		out = append(out, field...)
		msg, at = msg[n:], at+n
	}
	return append(out, moved...), nil
}

// SetExternal says that a tensor's data are length bytes of a file.
func SetExternal(t *onnxpb.TensorProto, location string, offset, length int) {
	entry := func(key, value string) *onnxpb.StringStringEntryProto {
		return &onnxpb.StringStringEntryProto{Key: &key, Value: &value}
	}
	t.RawData, t.DataLocation = nil, proto.Int32(External)
	t.ExternalData = []*onnxpb.StringStringEntryProto{
		entry("location", location), entry("offset", strconv.Itoa(offset)), entry("length", strconv.Itoa(length)),
	}
}

// External is TensorProto.EXTERNAL.
const External = 1

// ExternalData is the value of a key of a tensor's external data, or "".
func ExternalData(t *onnxpb.TensorProto, key string) string {
	for _, e := range t.ExternalData {
		if e.GetKey() == key {
			return e.GetValue()
		}
	}
	return ""
}

// Describe sums up the model of the file named self.
func Describe(m *onnxpb.ModelProto, self string) *Summary {
	g := &Summary{Ops: map[string]int{}}
	g.count(m.Graph, self)
	for _, limit := range lengthBranches(m.Graph) {
		if g.Branches == 0 || limit < g.Branches {
			g.Branches = limit
		}
	}
	weights := map[string]bool{}
	for _, t := range m.Graph.Initializer {
		weights[t.GetName()] = true
	}
	slices.Sort(g.External)
	g.External = slices.Compact(g.External)
	for _, v := range m.Graph.Input {
		if !weights[v.GetName()] { // old files list their weights as inputs with a default
			g.Inputs = append(g.Inputs, describeValue(v))
		}
	}
	for _, v := range m.Graph.Output {
		g.Outputs = append(g.Outputs, describeValue(v))
	}
	return g
}

// count adds the operators and files of a graph, and of the graphs in its
// branches.
func (g *Summary) count(in *onnxpb.GraphProto, self string) {
	for _, n := range in.Node {
		g.Ops[n.GetOpType()]++
		if g.Windowed == "" && Attribute(n, "sliding_window_cache").GetI() != 0 {
			g.Windowed = n.GetOpType() + " " + n.GetName()
		}
		for _, a := range n.Attribute {
			if a.G != nil {
				g.count(a.G, self)
			}
		}
	}
	for _, t := range in.Initializer {
		if location := ExternalData(t, "location"); location != "" && location != self {
			g.External = append(g.External, location)
		}
	}
}

// Attribute is a node's attribute of that name, or nil, whose getters give
// zero values.
func Attribute(node *onnxpb.NodeProto, name string) *onnxpb.AttributeProto {
	for _, a := range node.Attribute {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

func describeValue(v *onnxpb.ValueInfoProto) Tensor {
	tensor := v.GetType().GetTensorType()
	t := Tensor{Name: v.GetName(), Type: ElementType(tensor.GetElemType())}
	for _, d := range tensor.GetShape().GetDim() {
		size := int64(-1)
		if _, fixed := d.Value.(*onnxpb.TensorShapeProto_Dimension_DimValue); fixed {
			size = d.GetDimValue()
		}
		t.Shape = append(t.Shape, size)
	}
	return t
}
