package ort

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// BenchmarkForward measures a decoder's step of S tokens after a past of 100
// and, in the metric bare-ns/op, the bare run of the session: their difference
// is the engine's own cost. ORT_BENCH_MODEL names a model folder in place of
// the tiny one.
func BenchmarkForward(b *testing.B) {
	dirs := []string{modelDir("gqa"), modelDir("growing")}
	if dir := os.Getenv("ORT_BENCH_MODEL"); dir != "" {
		dirs = []string{dir}
	}
	for _, dir := range dirs {
		m := loadT(b, dir, Options{})
		for _, s := range []int{1, 5} {
			b.Run(fmt.Sprintf("%s/S=%d", dir, s), func(b *testing.B) {
				past := min(100, m.Context()-s)
				d := decoderT(b, m)
				sequence := sequenceT(b, d)
				if err := d.fill(sequence.slot, past); err != nil {
					b.Fatal(err)
				}
				slots, pasts, tokens := []int{sequence.slot}, []int{past}, [][]int32{selfTestTokens(s, m.Vocab())}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := d.Forward(ctx, slots, pasts, tokens); err != nil {
						b.Fatal(err)
					}
				}
				bare, err := m.BareRun(past, s, b.N)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(bare.Nanoseconds()), "bare-ns/op")
			})
		}
	}
}

// BenchmarkLanes measures a Forward of several lanes against as many forwards
// of one lane, S tokens after a past of 100 in each. The two take turns, and
// each metric is the least of its times, so that load on the machine disturbs
// the ratio little: together-ms, the sum alone-ms, and alone/together.
// ORT_BENCH_MODEL names a model folder in place of the demo's target.
func BenchmarkLanes(b *testing.B) {
	dir := modelDir("target")
	if other := os.Getenv("ORT_BENCH_MODEL"); other != "" {
		dir = other
	}
	const most = 8
	m := loadT(b, dir, Options{Lanes: most})
	if why := m.OneLane(); why != nil {
		b.Fatal(why)
	}
	d := decoderT(b, m)
	var slots, pasts []int
	for range most {
		slot := sequenceT(b, d).slot
		pasts = append(pasts, min(100, m.Context()-5))
		if err := d.fill(slot, pasts[0]); err != nil {
			b.Fatal(err)
		}
		slots = append(slots, slot)
	}
	ctx := context.Background()
	for _, n := range []int{1, 2, 3, 4, 8} {
		for _, s := range []int{1, 5} {
			b.Run(fmt.Sprintf("lanes=%d/S=%d", n, s), func(b *testing.B) {
				var tokens [][]int32
				for i := range n {
					tokens = append(tokens, selfTestTokens(i+s, m.Vocab())[i:])
				}
				forward := func(from, to int) time.Duration {
					start := time.Now()
					if _, err := d.Forward(ctx, slots[from:to], pasts[from:to], tokens[from:to]); err != nil {
						b.Fatal(err)
					}
					return time.Since(start)
				}
				forward(0, n)
				together := time.Duration(1 << 62)
				alone := make([]time.Duration, n)
				for i := range alone {
					alone[i] = together
				}
				for b.Loop() {
					together = min(together, forward(0, n))
					for i := range alone {
						alone[i] = min(alone[i], forward(i, i+1))
					}
				}
				sum := time.Duration(0)
				for _, t := range alone {
					sum += t
				}
				b.ReportMetric(together.Seconds()*1e3, "together-ms")
				b.ReportMetric(sum.Seconds()*1e3, "alone-ms")
				b.ReportMetric(sum.Seconds()/together.Seconds(), "alone/together")
			})
		}
	}
}
