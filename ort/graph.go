package ort

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"google.golang.org/protobuf/encoding/protowire"
)

// graph is the little of an ONNX file that a bundle needs: what goes in and
// out, which operators occur, and which other files hold its weights. Reading
// it costs no session and no runtime. Field numbers are those of onnx.proto.
type graph struct {
	inputs, outputs []tensorInfo
	ops             map[string]int // operator type -> number of nodes
	external        []string       // locations of external data, relative to the model, sorted
}

// tensorInfo is a graph input or output. A dimension without a fixed size is -1.
type tensorInfo struct {
	name  string
	typ   elementType
	shape []int64
}

// fields calls f for every field of a message. Length-delimited fields give
// their bytes, varints their value; others are skipped.
func fields(msg []byte, f func(num protowire.Number, data []byte, v uint64) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return protowire.ParseError(n)
		}
		msg = msg[n:]
		var data []byte
		var v uint64
		switch typ {
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(msg)
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(msg)
		default:
			n = protowire.ConsumeFieldValue(num, typ, msg)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		msg = msg[n:]
		if err := f(num, data, v); err != nil {
			return err
		}
	}
	return nil
}

// readGraph reads the ONNX file at path. The file is mapped, not copied.
func readGraph(path string) (*graph, error) {
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
	model, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	g, err := parseGraph(model)
	return g, errors.Join(err, syscall.Munmap(model))
}

// parseGraph reads a ModelProto. The graph keeps no part of it.
func parseGraph(model []byte) (*graph, error) {
	g := &graph{ops: map[string]int{}}
	found := false
	err := fields(model, func(num protowire.Number, data []byte, _ uint64) error {
		if num != 7 { // ModelProto.graph
			return nil
		}
		found = true
		return g.read(data)
	})
	if err == nil && !found {
		err = errors.New("no graph inside")
	}
	if err != nil {
		return nil, fmt.Errorf("not an ONNX model, or cut short: %w", err)
	}
	slices.Sort(g.external)
	g.external = slices.Compact(g.external)
	return g, nil
}

func (g *graph) read(msg []byte) error {
	weights := map[string]bool{}
	err := fields(msg, func(num protowire.Number, data []byte, _ uint64) error {
		switch num {
		case 1: // GraphProto.node
			return g.readNode(data)
		case 5: // initializer
			return g.readWeight(data, weights)
		case 11: // input
			return readValue(data, &g.inputs)
		case 12: // output
			return readValue(data, &g.outputs)
		}
		return nil
	})
	// Old files list their weights as inputs with a default.
	g.inputs = slices.DeleteFunc(g.inputs, func(t tensorInfo) bool { return weights[t.name] })
	return err
}

func (g *graph) readNode(msg []byte) error {
	return fields(msg, func(num protowire.Number, data []byte, _ uint64) error {
		if num == 4 { // NodeProto.op_type
			g.ops[string(data)]++
		}
		return nil
	})
}

func (g *graph) readWeight(msg []byte, weights map[string]bool) error {
	return fields(msg, func(num protowire.Number, data []byte, _ uint64) error {
		switch num {
		case 8: // TensorProto.name
			weights[string(data)] = true
		case 13: // external_data, a list of key and value
			var key, value string
			err := fields(data, func(num protowire.Number, data []byte, _ uint64) error {
				switch num {
				case 1:
					key = string(data)
				case 2:
					value = string(data)
				}
				return nil
			})
			if key == "location" && (len(g.external) == 0 || g.external[len(g.external)-1] != value) {
				g.external = append(g.external, value)
			}
			return err
		}
		return nil
	})
}

// readValue appends a ValueInfoProto: name, and the type and shape of a tensor.
func readValue(msg []byte, to *[]tensorInfo) error {
	var t tensorInfo
	dim := func(num protowire.Number, data []byte, _ uint64) error {
		if num != 1 { // TensorShapeProto.dim
			return nil
		}
		size := int64(-1)
		err := fields(data, func(num protowire.Number, _ []byte, v uint64) error {
			if num == 1 { // dim_value; a dim_param leaves -1
				size = int64(v)
			}
			return nil
		})
		t.shape = append(t.shape, size)
		return err
	}
	tensor := func(num protowire.Number, data []byte, v uint64) error {
		switch num {
		case 1: // TypeProto.Tensor.elem_type
			t.typ = elementType(v)
		case 2: // shape
			return fields(data, dim)
		}
		return nil
	}
	err := fields(msg, func(num protowire.Number, data []byte, _ uint64) error {
		switch num {
		case 1: // ValueInfoProto.name
			t.name = string(data)
		case 2: // type
			return fields(data, func(num protowire.Number, data []byte, _ uint64) error {
				if num == 1 { // TypeProto.tensor_type
					return fields(data, tensor)
				}
				return nil
			})
		}
		return nil
	})
	*to = append(*to, t)
	return err
}
