package ort

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"time"
)

// BarePass measures the mean time of n bare passes that feed tokens new tokens
// behind past cached ones to each of some sequences and score them all: inputs,
// caches and outputs stay bound, and a loop in C does nothing but run. It is the
// floor that the engine's overhead is measured against, and the cost of scoring
// in the theory of speculative sampling. Where the graph runs one sequence at a
// time, sequences is 1.
func (m *Model) BarePass(sequences, past, tokens, n int) (time.Duration, error) {
	mean, err := m.barePass(sequences, past, tokens, n)
	if err != nil {
		return 0, fmt.Errorf("bare pass of %s: %w", m.bundle.Dir, err)
	}
	return mean, nil
}

func (m *Model) barePass(sequences, past, tokens, n int) (time.Duration, error) {
	if past < 0 || tokens < 1 || n < 1 || sequences < 1 || sequences > 1 && m.Ragged() != nil {
		return 0, fmt.Errorf("%d passes of %d tokens after %d in %d sequences", n, tokens, past, sequences)
	}
	d, err := m.NewDecoder(0)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	input := 0
	if m.bundle.Encoder != nil {
		if input = past / 2; input < 1 {
			return 0, fmt.Errorf("%d tokens of past are too few for an encoder-decoder model", past)
		}
	}
	spans := make([]Span, sequences)
	for i := range spans {
		slot, err := d.Alloc()
		if err != nil {
			return 0, err
		}
		text := selfTestTokens(i+past+tokens, d.Vocab())[i:]
		if past > 0 {
			if _, err := d.Forward(context.Background(), []Span{{Slot: slot, Tokens: text[:past], Input: input}}); err != nil {
				return 0, err
			}
		}
		spans[i] = Span{Slot: slot, Past: past, Tokens: text[past:], Rows: tokens, Input: input}
	}
	// What this binds stays bound.
	if _, err := d.Forward(context.Background(), spans); err != nil {
		return 0, err
	}
	d.enter()
	defer d.leave()
	loop := func(n int) error { return d.device().again(d.caches.run(), n, true) }
	if err := loop(1 + n/10); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := loop(n); err != nil {
		return 0, err
	}
	return time.Since(start) / time.Duration(n), nil
}
