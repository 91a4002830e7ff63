package convert

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// trimmed is the head for some tokens alone: those of Options.Head and the ends
// of sequence.
func (b *builder) trimmed(w *weight, bias []float32) (*weight, []float32, error) {
	tokens := slices.Clone(b.o.head)
	for _, id := range b.eos {
		tokens = append(tokens, int32(id))
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	if tokens[0] < 0 || int(tokens[len(tokens)-1]) >= b.vocab {
		return nil, nil, fmt.Errorf("a head for tokens %d to %d of a vocabulary of %d", tokens[0], tokens[len(tokens)-1], b.vocab)
	}
	if bias != nil {
		some := make([]float32, len(tokens))
		for i, id := range tokens {
			some[i] = bias[id]
		}
		bias = some
	}
	return w.picked(tokens), bias, nil
}

// spread puts scores of some tokens where they belong among the logits of all;
// the others' are -Inf.
func (b *builder) spread(at, scores string, tokens []int32) {
	places, missing := make([]byte, 4*b.vocab), make([]float32, b.vocab)
	for i := range missing {
		missing[i] = float32(math.Inf(-1))
	}
	for i, id := range tokens {
		binary.LittleEndian.PutUint32(places[4*id:], uint32(i))
		missing[id] = 0
	}
	put := func(f *filling) error { return f.write(places, 0) }
	all := b.node("Gather", at+"/spread/Gather", []string{scores, b.initializer("lm_head.spread.places", int32Type, put, b.vocab)}, attributes{"axis": -1})
	b.node("Add", at+"/spread/Add", []string{all, b.floats("lm_head.spread.missing", missing, b.o.io, b.vocab)}, nil, "logits")
}
