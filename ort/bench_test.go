package ort

import (
	"context"
	"fmt"
	"os"
	"slices"
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
				sequence.feed(0, selfTestTokens(past, m.Vocab())...)
				spans := whole([]int{sequence.slot}, []int{past}, [][]int32{selfTestTokens(s, m.Vocab())})
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := d.Forward(ctx, spans); err != nil {
						b.Fatal(err)
					}
				}
				bare, err := m.BarePass(1, past, s, b.N)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(bare.Nanoseconds()), "bare-ns/op")
			})
		}
	}
}

// BenchmarkCompany measures a pass over several sequences, S tokens after a past
// of 100 in each, against a pass of one. The two take turns, and each metric is
// the least of its times, so that load on the machine disturbs the ratio little:
// together-ms, one-ms, and the ratio of the rates, tokens/s together over alone.
// ORT_BENCH_MODEL names a model folder in place of the demo's target.
func BenchmarkCompany(b *testing.B) {
	dir := modelDir("target")
	if other := os.Getenv("ORT_BENCH_MODEL"); other != "" {
		dir = other
	}
	m := loadT(b, dir, Options{Context: 512})
	if why := m.Ragged(); why != nil {
		b.Fatal(why)
	}
	d := decoderT(b, m)
	past := min(100, m.Context()-5)
	var slots, pasts []int
	for i := range 16 {
		s := sequenceT(b, d)
		s.feed(0, selfTestTokens(i+past, m.Vocab())[i:]...)
		slots, pasts = append(slots, s.slot), append(pasts, past)
	}
	for _, n := range []int{1, 2, 3, 4, 8, 16} {
		for _, s := range []int{1, 5} {
			b.Run(fmt.Sprintf("sequences=%d/S=%d", n, s), func(b *testing.B) {
				var tokens [][]int32
				for i := range n {
					tokens = append(tokens, selfTestTokens(i+s, m.Vocab())[i:])
				}
				forward := func(spans []Span) time.Duration {
					start := time.Now()
					if _, err := d.Forward(context.Background(), spans); err != nil {
						b.Fatal(err)
					}
					return time.Since(start)
				}
				all := whole(slots[:n], pasts[:n], tokens)
				forward(all)
				together, one := time.Duration(1<<62), time.Duration(1<<62)
				for b.Loop() {
					together, one = min(together, forward(all)), min(one, forward(all[:1]))
				}
				b.ReportMetric(together.Seconds()*1e3, "together-ms")
				b.ReportMetric(one.Seconds()*1e3, "one-ms")
				b.ReportMetric(float64(n)*one.Seconds()/together.Seconds(), "rate-ratio")
			})
		}
	}
}

// BenchmarkPair measures bare passes of two models in turns, such as one that was
// imported and one of another exporter: ORT_BENCH_MODEL and ORT_BENCH_OTHER name
// their folders. Which of them comes first changes every time, because a machine
// that slows down or speeds up would favour the same one otherwise. The times are
// medians; the ratio is the median of the first model's time over the other's, pair
// by pair.
func BenchmarkPair(b *testing.B) {
	dirs := []string{os.Getenv("ORT_BENCH_MODEL"), os.Getenv("ORT_BENCH_OTHER")}
	if dirs[0] == "" || dirs[1] == "" {
		b.Skip("ORT_BENCH_MODEL and ORT_BENCH_OTHER name the models")
	}
	models := []*Model{loadT(b, dirs[0], Options{Context: 512}), loadT(b, dirs[1], Options{Context: 512})}
	for _, s := range []int{1, 5} {
		b.Run(fmt.Sprintf("S=%d", s), func(b *testing.B) {
			var times [2][]float64 // ms
			var ratios []float64
			for turn := 0; b.Loop(); turn++ {
				for i := range models {
					which := (i + turn) % 2
					mean, err := models[which].BarePass(1, 100, s, 3)
					if err != nil {
						b.Fatal(err)
					}
					times[which] = append(times[which], mean.Seconds()*1e3)
				}
				ratios = append(ratios, times[0][turn]/times[1][turn])
			}
			b.ReportMetric(median(times[0]), "model-ms")
			b.ReportMetric(median(times[1]), "other-ms")
			b.ReportMetric(median(ratios), "ratio")
		})
	}
}

// median is the middle one of the values, which it sorts.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
