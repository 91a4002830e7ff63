package ort

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"time"
)

// BareRun measures the mean time of n bare runs of the session that feed s
// tokens after past cached ones: inputs, caches and outputs stay bound, and a
// loop in C does nothing but run. It is the floor that the engine's overhead is
// measured against, and the cost t(S) of the theory of speculative sampling.
func (m *Model) BareRun(past, s, n int) (time.Duration, error) { return m.BareLanes(1, past, s, n) }

// BareLanes is BareRun for runs of several lanes, at most m.Lanes().
func (m *Model) BareLanes(lanes, past, s, n int) (time.Duration, error) {
	mean, err := m.bareRun(lanes, past, s, n)
	if err != nil {
		return 0, fmt.Errorf("bare run of %s: %w", m.bundle.Dir, err)
	}
	return mean, nil
}

func (m *Model) bareRun(lanes, past, s, n int) (time.Duration, error) {
	if past < 0 || s < 1 || n < 1 || lanes < 1 || lanes > m.Lanes() {
		return 0, fmt.Errorf("%d runs of %d tokens after %d in %d lanes of %d", n, s, past, lanes, m.Lanes())
	}
	d, err := m.NewDecoder()
	if err != nil {
		return 0, err
	}
	defer d.Close()
	var slots, pasts []int
	var tokens [][]int32
	for lane := range lanes {
		slot, err := d.Alloc()
		if err != nil {
			return 0, err
		}
		if err := d.fill(slot, past); err != nil {
			return 0, err
		}
		slots, pasts = append(slots, slot), append(pasts, past)
		tokens = append(tokens, selfTestTokens(lane+s, d.Vocab())[lane:])
	}
	// What this binds stays bound.
	if _, err := d.Forward(context.Background(), slots, pasts, tokens); err != nil {
		return 0, err
	}
	d.device().lock()
	defer d.device().unlock()
	loop := func(n int) error { return goError(C.dm_loop(d.runtime, d.run(), C.size_t(n))) }
	if err := loop(1 + n/10); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := loop(n); err != nil {
		return 0, err
	}
	return time.Since(start) / time.Duration(n), nil
}

// fill caches past tokens in the slot, piece by piece.
func (d *Decoder) fill(slot, past int) error {
	const piece = 64
	tokens := selfTestTokens(past, d.Vocab())
	for from := 0; from < past; from += piece {
		to := min(from+piece, past)
		if _, err := d.Forward(context.Background(), []int{slot}, []int{from}, [][]int32{tokens[from:to]}); err != nil {
			return err
		}
	}
	return nil
}
