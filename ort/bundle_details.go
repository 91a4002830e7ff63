package ort

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
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
	// Ragged says why the graph cannot be rewritten for passes over several
	// sequences on the CPU, see Model.Ragged; nil where it can.
	Ragged error
}

// Details reads the graph again and sums it up. It needs no runtime.
func (b *Bundle) Details() (*Details, error) {
	m, err := graph.Read(b.Model)
	if err != nil {
		return nil, fmt.Errorf("model folder %s: %s: %w", b.Dir, filepath.Base(b.Model), reason(err))
	}
	d := &Details{
		Logits: b.layout.Logits.String(), Cache: b.layout.Cache.String(),
		Mask: b.layout.Mask, Positions: b.layout.Positions,
	}
	if b.Encoder == nil {
		d.Ragged = canRewrite(m)
	}
	w := graph.Weigh(m.Graph)
	d.Weights, d.Quantization, d.Parameters = w.Types, w.Quantization, w.Parameters
	if b.Encoder != nil {
		if m, err = graph.Read(b.Encoder.Model); err != nil {
			return nil, fmt.Errorf("model folder %s: %s: %w", b.Dir, filepath.Base(b.Encoder.Model), reason(err))
		}
		w = graph.Weigh(m.Graph)
		d.Parameters += w.Parameters
		for _, t := range w.Types {
			if !slices.Contains(d.Weights, t) {
				d.Weights = append(d.Weights, t)
			}
		}
		d.Mask = b.layout.Cross.EncoderMask
		if _, d.Ragged, err = rewriteCrossed(b, paging{}, func(*graph.Matrix) {}); err != nil {
			return nil, fmt.Errorf("model folder %s: %w", b.Dir, err)
		}
	}
	return d, nil
}

// canRewrite says why a graph cannot be rewritten for ragged passes.
func canRewrite(m *onnxpb.ModelProto) error {
	_, err := newRagged(m, paging{}, func(*graph.Matrix) {})
	return err
}
