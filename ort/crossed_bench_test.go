package ort

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkCrossed measures passes over S tokens of an encoder-decoder model as it was
// exported and rewritten, in turns, and beside those the rewritten one's over eight
// sequences. exported-us and ours-us are medians of bare passes (exported-pass-us and
// pass-us of whole ones), the ratios of both are those of the medians, and five-to-one
// is what five tokens cost in passes over one. ORT_BENCH_MODEL names a model folder in
// place of the translation pair's.
func BenchmarkCrossed(b *testing.B) {
	dirs := []string{os.Getenv("ORT_BENCH_MODEL")}
	if dirs[0] == "" {
		dirs = nil
		for _, name := range []string{"target", "draft"} {
			dirs = append(dirs, filepath.Join("..", "testdata", "translate", name))
		}
	}
	const input, behind = 40, 20
	for _, dir := range dirs {
		models := []*Model{loadT(b, dir, Options{Threads: 1, AsExported: true}), loadT(b, dir, Options{Threads: 1})}
		if why := models[1].Ragged(); why != nil {
			b.Fatal(why)
		}
		one := [2]float64{}
		for _, s := range []int{1, 2, 5} {
			b.Run(fmt.Sprintf("%s/S=%d", filepath.Base(dir), s), func(b *testing.B) {
				var decoders [2]*Decoder
				var spans [2]Span
				for i, m := range models {
					decoders[i] = decoderT(b, m)
					spans[i] = Span{Slot: sequenceT(b, decoders[i]).slot, Tokens: selfTestTokens(input+behind, m.Vocab()), Input: input}
					if _, err := decoders[i].Forward(context.Background(), spans[i:i+1]); err != nil {
						b.Fatal(err)
					}
					spans[i].Past, spans[i].Tokens, spans[i].Rows = input+behind, selfTestTokens(s, m.Vocab()), s
				}
				var times, bare [2][]float64 // us
				for b.Loop() {
					for i, m := range models {
						const passes = 20
						start := time.Now()
						for range passes {
							if _, err := decoders[i].Forward(context.Background(), spans[i:i+1]); err != nil {
								b.Fatal(err)
							}
						}
						times[i] = append(times[i], time.Since(start).Seconds()*1e6/passes)
						mean, err := m.BarePass(1, input+behind, s, passes)
						if err != nil {
							b.Fatal(err)
						}
						bare[i] = append(bare[i], mean.Seconds()*1e6)
					}
				}
				exported, ours := median(bare[0]), median(bare[1])
				b.ReportMetric(exported, "exported-us")
				b.ReportMetric(ours, "ours-us")
				b.ReportMetric(exported/ours, "ratio")
				b.ReportMetric(median(times[0]), "exported-pass-us")
				b.ReportMetric(median(times[1]), "pass-us")
				if s == 1 {
					one = [2]float64{exported, ours}
				} else if one[1] > 0 {
					b.ReportMetric(exported/one[0], "exported-to-one")
					b.ReportMetric(ours/one[1], "to-one")
				}
			})
		}
	}
}
