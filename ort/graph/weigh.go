package graph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// Weights sums up the parameters of a graph.
type Weights struct {
	Types []string // int4 and the like where packed; most parameters first

	// Quantization says how weights are stored in fewer bits, empty where none
	// are: "4 bits in blocks of 32 (MatMulNBits)".
	Quantization string
	// Parameters are the numbers among the weights, packed ones counted one by
	// one. A graph that stores tied embeddings twice has them twice; scales and
	// rotary tables are none.
	Parameters int64
}

// packing is how a weight of few bits is stored.
type packing struct {
	parameters int64
	bits       int64
}

// Weigh sums up the weights of a
func Weigh(g *onnxpb.GraphProto) *Weights {
	w := &Weights{}
	packed, aside := map[string]packing{}, map[string]bool{}
	ways := map[string]bool{}
	for _, n := range g.Node {
		in := func(i int) string {
			if i < len(n.Input) {
				return n.Input[i]
			}
			return ""
		}
		skip := func(places ...int) {
			for _, i := range places {
				aside[in(i)] = true
			}
		}
		number := func(name string, otherwise int64) int64 {
			if a := Attribute(n, name); a != nil {
				return a.GetI()
			}
			return otherwise
		}
		switch n.GetOpType() {
		case "MatMulNBits":
			skip(2, 3, 4) // scales, zero points, order of the groups
			bits := number("bits", 4)
			packed[in(1)] = packing{number("K", 0) * number("N", 0), bits}
			ways[fmt.Sprintf("%d bits in blocks of %d (MatMulNBits)", bits, number("block_size", 0))] = true
		case "GatherBlockQuantized":
			skip(2, 3)
		case "DequantizeLinear":
			skip(1, 2)
		case "DynamicQuantizeLinear", "DynamicQuantizeMatMul":
			ways["8 bits, activations scaled at run time ("+n.GetOpType()+")"] = true
		case "QuantizeLinear":
			ways["8 bits, activations scaled beforehand (QuantizeLinear)"] = true
		case "GroupQueryAttention":
			skip(7, 8) // rotary tables
		case "RotaryEmbedding":
			skip(2, 3)
		}
	}
	w.Quantization = strings.Join(slices.Sorted(maps.Keys(ways)), "; ")

	types := map[string]int64{}
	for _, t := range g.Initializer {
		typ, name := ElementType(t.GetDataType()), t.GetName()
		p, isPacked := packed[name]
		switch {
		case isPacked:
			types[fmt.Sprintf("int%d", p.bits)] += p.parameters
		case !aside[name] && typ.Weight() && len(t.Dims) > 0:
			n := int64(1)
			for _, size := range t.Dims {
				n *= size
			}
			types[typ.String()] += n
		}
	}
	for _, n := range types {
		w.Parameters += n
	}
	w.Types = slices.SortedFunc(maps.Keys(types), func(a, b string) int {
		return cmp.Or(cmp.Compare(types[b], types[a]), cmp.Compare(a, b))
	})
	return w
}
