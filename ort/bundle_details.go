package ort

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/ort/onnxpb"
)

// Details is what a bundle's graph says beyond what decoding needs, for people
// who choose models.
type Details struct {
	Logits    string   // type of the logits: float32, float16 or bfloat16
	Cache     string   // type of the cached keys and values
	Weights   []string // types of the weights, int4 and the like where packed; most parameters first
	Mask      bool     // the graph takes attention_mask
	Positions bool     // the graph takes position_ids

	// Quantization says how weights are stored in fewer bits, empty where none
	// are: "4 bits in blocks of 32 (MatMulNBits)".
	Quantization string
	// Parameters are the numbers among the weights, packed ones counted one by
	// one. A graph that stores tied embeddings twice has them twice; scales and
	// rotary tables are none.
	Parameters int64
	// OneLane says why a run takes no more than one sequence; nil where it can
	// take several, see Options.Lanes.
	OneLane error
}

// Details reads the graph again and sums it up. It needs no runtime.
func (b *Bundle) Details() (*Details, error) {
	m, err := readModel(b.Model)
	if err != nil {
		return nil, fmt.Errorf("model folder %s: %s: %w", b.Dir, filepath.Base(b.Model), reason(err))
	}
	d := &Details{
		Logits: b.layout.logits.String(), Cache: b.layout.cache.String(),
		Mask: b.layout.mask, Positions: b.layout.positions,
		OneLane: oneLane(b.Contract, m),
	}
	d.weigh(m.Graph)
	return d, nil
}

// oneLane says why a model cannot be rewritten for several lanes.
func oneLane(c Contract, m *onnxpb.ModelProto) error {
	if c != GQA {
		return fmt.Errorf("a graph of the %s contract takes one sequence", c)
	}
	_, err := laneGraph(m, 2)
	return err
}

// packing is how a weight of few bits is stored.
type packing struct {
	parameters int64
	bits       int64
}

// weigh looks at the weights.
func (d *Details) weigh(g *onnxpb.GraphProto) {
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
			if a := attribute(n, name); a != nil {
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
	d.Quantization = strings.Join(slices.Sorted(maps.Keys(ways)), "; ")

	types := map[string]int64{}
	for _, t := range g.Initializer {
		typ, name := elementType(t.GetDataType()), t.GetName()
		p, isPacked := packed[name]
		switch {
		case isPacked:
			types[fmt.Sprintf("int%d", p.bits)] += p.parameters
		case !aside[name] && typ.weight() && len(t.Dims) > 0:
			n := int64(1)
			for _, size := range t.Dims {
				n *= size
			}
			types[typ.String()] += n
		}
	}
	for _, n := range types {
		d.Parameters += n
	}
	d.Weights = slices.SortedFunc(maps.Keys(types), func(a, b string) int {
		return cmp.Or(cmp.Compare(types[b], types[a]), cmp.Compare(a, b))
	})
}
