package ort

import (
	"context"
	"fmt"
	"os"
	"testing"
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
