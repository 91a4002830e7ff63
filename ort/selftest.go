package ort

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/draftmill/draftmill/ort/graph"
)

// Tolerances of the self-test, as fractions of a position's range of logits. A
// runtime that ignores the cache or the order of the fed tokens changes logits
// by a hundredth of the range and more.
const (
	exactTolerance = 1e-3 // float32 throughout
	halfTolerance  = 3e-2 // half precision, or blocks of 4-bit weights with 8-bit activations
	quantTolerance = 2e-1 // one 8-bit scale for the activations of all S tokens together
)

// SelfTest feeds s tokens behind a short text in one forward, takes them back,
// and feeds them one by one, and then together again: the logits must agree. So
// must those of as many lanes as the model runs, each with a text and a length
// of its own, with those of each lane alone. Verification of drafts rests on
// this, and runtimes have been released for which it does not hold. s is the
// most tokens that will be scored at once, K+1.
func (m *Model) SelfTest(s int) error {
	err := m.selfTest(s)
	if err == nil && m.Lanes() > 1 {
		err = m.selfTestLanes(s)
	}
	if err != nil {
		return fmt.Errorf("self-test of %s on onnx runtime %s: %w", m.bundle.Dir, Version(), err)
	}
	return nil
}

func (m *Model) selfTest(s int) error {
	prefix := min(16, m.context-s)
	if s < 1 || prefix < 1 {
		return fmt.Errorf("%d tokens at once do not fit into a context of %d", s, m.context)
	}
	d, err := m.NewDecoder()
	if err != nil {
		return err
	}
	defer d.Close()
	slot, err := d.Alloc()
	if err != nil {
		return err
	}
	feed := func(past int, tokens []int32) ([]float32, error) {
		return d.Forward(context.Background(), []int{slot}, []int{past}, [][]int32{tokens})
	}
	tokens, tolerance := selfTestTokens(prefix+s, m.Vocab()), m.bundle.tolerance
	if _, err := feed(0, tokens[:prefix]); err != nil {
		return err
	}
	first, err := feed(prefix, tokens[prefix:])
	if err != nil && s > 1 {
		return fmt.Errorf("%d tokens behind %d cannot be scored at once, so that this model cannot verify drafts; export it with GroupQueryAttention or with Optimum: %w", s, prefix, err)
	}
	if err != nil {
		return err
	}
	together := append([]float32(nil), first...)
	for i := range s {
		single, err := feed(prefix+i, tokens[prefix+i:prefix+i+1])
		if err != nil {
			return err
		}
		if off := distance(together[i*m.Vocab():(i+1)*m.Vocab()], single); !(off <= tolerance) {
			return fmt.Errorf("token %d of %d scored together differs from scored alone by %.2g of the logits' range (at most %.2g is rounding): this runtime cannot verify drafts with this model",
				i+1, s, off, tolerance)
		}
	}
	again, err := feed(prefix, tokens[prefix:])
	if err != nil {
		return err
	}
	if off := distance(together, again); !(off <= tolerance) {
		return fmt.Errorf("the same %d tokens after a rollback differ by %.2g of the logits' range: this runtime cannot roll this model back", s, off)
	}
	return nil
}

// selfTestLanes compares all lanes in one run with each of them alone.
func (m *Model) selfTestLanes(s int) error {
	d, err := m.NewDecoder()
	if err != nil {
		return err
	}
	defer d.Close()
	var slots, past []int
	var tokens [][]int32
	var alone [][]float32
	for lane := range m.Lanes() {
		slot, err := d.Alloc()
		if err != nil {
			return err
		}
		prefix := min(1+lane%16, m.context-s)
		text := selfTestTokens(lane+prefix+s, m.Vocab())[lane:]
		slots, past, tokens = append(slots, slot), append(past, prefix), append(tokens, text[prefix:])
		var logits []float32
		for _, piece := range []struct{ from, to int }{{0, prefix}, {prefix, prefix + s}} {
			logits, err = d.Forward(context.Background(), []int{slot}, []int{piece.from}, [][]int32{text[piece.from:piece.to]})
			if err != nil {
				return err
			}
		}
		alone = append(alone, slices.Clone(logits))
	}
	together, err := d.Forward(context.Background(), slots, past, tokens)
	if err != nil {
		return err
	}
	for lane, want := range alone {
		if off := distance(want, together[lane*len(want):(lane+1)*len(want)]); !(off <= m.bundle.tolerance) {
			return fmt.Errorf("lane %d of %d differs from the same text alone by %.2g of the logits' range (at most %.2g is rounding): this runtime cannot run lanes with this model; load it with one",
				lane+1, m.Lanes(), off, m.bundle.tolerance)
		}
	}
	return nil
}

// rounding is the tolerance for what a graph computes with.
func rounding(l *graph.Layout, g *graph.Summary) float64 {
	switch {
	case g.Ops["DynamicQuantizeLinear"]+g.Ops["DynamicQuantizeMatMul"] > 0:
		return quantTolerance
	case g.Ops["MatMulNBits"]+g.Ops["QMoE"] > 0, l.Cache != graph.Float32, l.Logits != graph.Float32:
		return halfTolerance
	}
	return exactTolerance
}

// selfTestTokens are n ids that look like noise, the same every time
// (multiplication by an odd constant, Knuth's multiplicative hashing).
func selfTestTokens(n, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(uint32(i+1) * 2654435761 % uint32(vocab))
	}
	return tokens
}

// distance is the largest difference between two lists of logits over the range
// of the first; NaN where either has one.
func distance(a, b []float32) float64 {
	lo, hi, off := math.Inf(1), math.Inf(-1), 0.0
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		lo, hi, off = min(lo, x), max(hi, x), max(off, math.Abs(x-y))
	}
	return off / max(hi-lo, math.SmallestNonzeroFloat32)
}
