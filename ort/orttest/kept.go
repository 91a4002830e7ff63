package orttest

import (
	"context"
	"math"
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/graph"
)

// Kept leaves the logits of passes on the device, where a sampler finds the rows
// that Forward brings: of several sequences, some without any, and of passes of one
// shape often enough to be recorded.
func Kept(t *testing.T, s Subject) {
	m := s.mirror(t, ort.Options{})
	sampler, err := ort.NewSampler(s.Device, graph.SamplerOptions{Vocab: m.device.Vocab(), Temperature: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sampler.Close(); err != nil {
			t.Error(err)
		}
	}()
	a, b, c := m.sequence(21), m.sequence(22), m.sequence(23)
	m.feed(9, a, b, c)
	span := func(q *sequence, n, rows int) ort.Span {
		return ort.Span{Slot: q.device, Past: 9, Tokens: q.text[9 : 9+n], Rows: rows}
	}
	one := []ort.Span{span(a, 1, 1), span(b, 1, 1), span(c, 1, 1)}
	for i, spans := range [][]ort.Span{
		{span(a, 5, 5), span(b, 3, 3), span(c, 4, 0)}, {span(b, 6, 2), span(c, 1, 1)}, {span(a, 2, 0)}, one, one, one, one, one, {span(c, 4, 3)},
	} {
		logits, err := m.device.Forward(context.Background(), spans)
		if err != nil {
			t.Fatal(err)
		}
		laws := softmaxes(logits, m.device.Vocab())
		rows := make([]ort.SamplerRow, len(laws))
		if _, _, err := sampler.Weights(m.device, rows); err == nil {
			t.Errorf("pass %d: a sampler draws from logits that were not kept", i)
		}
		if err := m.device.Keep(context.Background(), spans); err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			continue
		}
		if _, _, err := sampler.Weights(m.device, append(rows, ort.SamplerRow{})); err == nil {
			t.Errorf("pass %d: more rows are drawn from than there are", i)
		}
		_, weights, err := sampler.Weights(m.device, rows)
		if err != nil {
			t.Fatal(err)
		}
		for row, law := range laws {
			sum := 0.0
			for _, w := range weights[row] {
				sum += float64(w)
			}
			for x, w := range weights[row] {
				if off := math.Abs(float64(w)/sum - law[x]); !(off <= max(1e-5, s.Tolerance)) {
					t.Errorf("pass %d, row %d, token %d: the law is off by %.3g", i, row, x, off)
					break
				}
			}
		}
	}
}

// softmaxes are the laws of rows of logits.
func softmaxes(logits []float32, vocab int) (laws [][]float64) {
	for ; len(logits) > 0; logits = logits[vocab:] {
		top, sum := math.Inf(-1), 0.0
		for _, l := range logits[:vocab] {
			top = max(top, float64(l))
		}
		law := make([]float64, vocab)
		for x := range law {
			law[x] = math.Exp(float64(logits[x]) - top)
			sum += law[x]
		}
		for x := range law {
			law[x] /= sum
		}
		laws = append(laws, law)
	}
	return laws
}
