package ort

import (
	"context"
	"fmt"
	"math"

	"github.com/draftmill/draftmill/ort/graph"
)

// Tolerances of the self-test where a graph runs as it is, as fractions of a
// position's range of logits. A runtime that ignores the cache or the order of
// the fed tokens changes logits by a hundredth of the range and more.
const (
	exactTolerance = 1e-3 // float32 throughout
	halfTolerance  = 3e-2 // half precision, or blocks of 4-bit weights with 8-bit activations
	quantTolerance = 2e-1 // one 8-bit scale for the activations of all S tokens together
)

// SelfTest feeds n tokens behind a short text in one pass, takes them back, and
// feeds them one by one, and then together again, beside other sequences: the
// logits must agree. Verification of drafts rests on this, and runtimes have
// been released for which it does not hold. They must agree to the bit where the
// model is Exact, else within rounding. n is the most tokens that will
// be scored at once, K+1.
func (m *Model) SelfTest(n int) error {
	if err := m.selfTest(n); err != nil {
		return fmt.Errorf("self-test of %s on onnx runtime %s: %w", m.bundle.Dir, Version(), err)
	}
	return nil
}

func (m *Model) selfTest(n int) error {
	prefix := min(16, m.context-n)
	input := 0 // tokens that an encoder reads
	if m.bundle.Encoder != nil {
		input = prefix / 2
	}
	if n < 1 || prefix < 1 || m.bundle.Encoder != nil && (input < 1 || n+prefix-input > m.bundle.Encoder.Most) {
		return fmt.Errorf("%d tokens at once do not fit into a context of %d", n, m.context)
	}
	d, err := m.NewDecoder(0)
	if err != nil {
		return err
	}
	defer d.Close()
	const company = 3 // sequences in a pass
	var slots [company]int
	for i := range slots {
		if slots[i], err = d.Alloc(); err != nil {
			return err
		}
	}
	forward := func(spans ...Span) ([]float32, error) {
		for i := range spans {
			spans[i].Input = min(input, spans[i].Past+len(spans[i].Tokens)-1)
		}
		return d.Forward(context.Background(), spans)
	}
	tokens := selfTestTokens(prefix+n, m.Vocab())
	if _, err := forward(Span{Slot: slots[0], Tokens: tokens[:prefix]}); err != nil {
		return err
	}
	scored := Span{Slot: slots[0], Past: prefix, Tokens: tokens[prefix:], Rows: n}
	first, err := forward(scored)
	if err != nil {
		return fmt.Errorf("%d tokens behind %d cannot be scored at once, so that this model cannot verify drafts; export it with GroupQueryAttention or with Optimum: %w", n, prefix, err)
	}
	together := append([]float32(nil), first...)
	for i := range n {
		single, err := forward(Span{Slot: slots[0], Past: prefix + i, Tokens: tokens[prefix+i : prefix+i+1], Rows: 1})
		if err != nil {
			return err
		}
		if err := m.agree(together[i*m.Vocab():(i+1)*m.Vocab()], single, fmt.Sprintf("token %d of %d scored together and scored alone", i+1, n)); err != nil {
			return err
		}
	}
	other := selfTestTokens(prefix+n+1, m.Vocab())[1:]
	beside, err := forward(Span{Slot: slots[1], Tokens: other[:prefix], Rows: 1}, scored, Span{Slot: slots[2], Tokens: other[:2], Rows: 1})
	if err != nil {
		return err
	}
	err = m.agree(together, beside[m.Vocab():][:n*m.Vocab()], fmt.Sprintf("%d tokens scored, taken back and scored again beside other sequences", n))
	if err != nil || input == 0 {
		return err
	}
	// Samples of one input share what was made of it.
	if err := d.Share(slots[1], slots[0], input); err != nil {
		return err
	}
	shared, err := forward(Span{Slot: slots[1], Past: input, Tokens: tokens[input:], Rows: n})
	if err != nil {
		return err
	}
	return m.agree(together, shared, fmt.Sprintf("%d tokens scored by a sequence that shares its input", n))
}

// agree compares logits of the same tokens.
func (m *Model) agree(a, b []float32, what string) error {
	tolerance := m.bundle.tolerance
	if m.Exact() {
		tolerance = 0
	}
	if off := distance(a, b); !(off <= tolerance) {
		return fmt.Errorf("%s: the logits differ by %.2g of their range (at most %.2g is right): this runtime cannot verify drafts with this model", what, off, tolerance)
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
// of the first; NaN where either has one. -Inf, of tokens that a trimmed head does
// not score, is no number of the range, and differs from all but itself.
func distance(a, b []float32) float64 {
	lo, hi, off := math.Inf(1), math.Inf(-1), 0.0
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		if x == y && math.IsInf(x, -1) {
			continue
		}
		lo, hi, off = min(lo, x), max(hi, x), max(off, math.Abs(x-y))
	}
	return off / max(hi-lo, math.SmallestNonzeroFloat32)
}
