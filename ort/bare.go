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
func (m *Model) BareRun(past, s, n int) (time.Duration, error) {
	mean, err := m.bareRun(past, s, n)
	if err != nil {
		return 0, fmt.Errorf("bare run of %s: %w", m.bundle.Dir, err)
	}
	return mean, nil
}

func (m *Model) bareRun(past, s, n int) (time.Duration, error) {
	if past < 0 || s < 1 || n < 1 {
		return 0, fmt.Errorf("%d runs of %d tokens after %d", n, s, past)
	}
	d, err := m.NewDecoder()
	if err != nil {
		return 0, err
	}
	defer d.Close()
	slot, err := d.Alloc()
	if err != nil {
		return 0, err
	}
	if err := d.fill(slot, past, s); err != nil {
		return 0, err
	}
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

// fill caches past tokens in the slot, piece by piece, and feeds s more, which
// stay bound.
func (d *Decoder) fill(slot, past, s int) error {
	const piece = 64
	tokens := selfTestTokens(past+s, d.Vocab())
	for from := 0; from < past+s; {
		to := min(from+piece, past)
		if from == past {
			to = past + s
		}
		if _, err := d.Forward(context.Background(), []int{slot}, []int{from}, [][]int32{tokens[from:to]}); err != nil {
			return err
		}
		from = to
	}
	return nil
}
