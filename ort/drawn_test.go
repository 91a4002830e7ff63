package ort

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/draftmill/draftmill/ort/graph"
)

// TestDrawnTokens feeds passes what a sampler has drawn on the device, alone and among
// tokens of the host, in any order: they keep the logits that the same tokens bring from
// the host, to the bit, however passes are run.
func TestDrawnTokens(t *testing.T) {
	few := paging{block: 16, sequences: 2}
	for name, c := range map[string]struct {
		model string
		o     Options
		ring  bool // inputs go through a stream's
	}{
		"paged":               {modelDir("gqa"), Options{}, false},
		"several runs":        {modelDir("gqa"), Options{paging: &few}, false},
		"recorded":            {modelDir("gqa"), Options{paging: &recordedPaging}, false},
		"exported":            {modelDir("growing"), Options{AsExported: true}, false},
		"in a ring":           {modelDir("gqa"), Options{}, true},
		"recorded, in a ring": {modelDir("gqa"), Options{paging: &recordedPaging}, true},
		"exported, in a ring": {modelDir("growing"), Options{AsExported: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := loadT(t, c.model, c.o)
			s, err := NewSampler(Options{}, graph.SamplerOptions{Vocab: m.Vocab(), Temperature: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if c.ring { // of a driver of the test's own, whose device is the CPU
				stream, err := streamOf(driverT(t, "-DAT_ONCE"), 0, 32<<10)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range []*device{m.session.device, s.device} {
					d.stream, d.memory = stream, &memory{}
					defer func() { d.stream, d.memory = nil, nil }()
				}
			}
			d := decoderT(t, m)
			r := rand.New(rand.NewPCG(4, 2))
			const lanes, steps = 3, 3
			var slots []int
			for range lanes {
				slots = append(slots, sequenceT(t, d).slot)
			}
			for round := range 8 {
				// Steps of a draft, as the device draws them; the last has a lane less.
				var known []int32
				tokens := make([][]int32, lanes) // of the host, and -1-i
				for i := range lanes {
					tokens[i] = []int32{r.Int32N(int32(d.Vocab())), r.Int32N(int32(d.Vocab()))}
				}
				past := 0
				for step := range steps {
					var spans []Span
					for i := range lanes - step/2 {
						spans = append(spans, Span{Slot: slots[i], Past: past, Tokens: tokens[i][past:], Rows: 1})
					}
					if err := d.keep(context.Background(), spans, s.tokens()[:min(step, s.drawn)]); err != nil {
						t.Fatal(err)
					}
					past = len(tokens[0])
					rows := make([]SamplerRow, len(spans))
					for i := range rows {
						rows[i].Uniform = r.Float64()
					}
					if c.ring {
						m.session.device.stream.waited(m.session.device.stream.launched(-1))
					}
					before := Waits()
					if drawn, err := s.Draw(d, rows, step, false); err != nil || drawn != nil {
						t.Fatal(drawn, err)
					}
					if Waits() != before {
						t.Error("a draw is waited for")
					}
					for i := range spans {
						tokens[i] = append(tokens[i], int32(-1-len(known)))
						known = append(known, int32(view[int64](&s.steps[step].tokens, 0, len(rows))[i]))
					}
				}
				// What the target scores: some of them, behind other tokens, and a prompt.
				var spans, plain []Span
				for i := range lanes {
					x := tokens[i]
					spans = append(spans, Span{Slot: slots[i], Past: 1, Tokens: x[1 : len(x)-round%2], Rows: 2})
				}
				if round%3 == 2 {
					spans[1].Tokens = []int32{7, 8, 9}
				}
				for _, x := range spans {
					x.Tokens = slices.Clone(x.Tokens)
					for j, id := range x.Tokens {
						if id < 0 {
							x.Tokens[j] = known[-1-id]
						}
					}
					plain = append(plain, x)
				}
				logits, err := d.Forward(context.Background(), plain)
				if err != nil {
					t.Fatal(err)
				}
				want := slices.Clone(logits)
				if c.ring {
					m.session.device.stream.waited(m.session.device.stream.launched(-1))
				}
				before := Waits()
				if err := d.keep(context.Background(), spans, s.tokens()); err != nil {
					t.Fatal(err)
				}
				if Waits() != before {
					t.Error("a pass that keeps its rows is waited for")
				}
				rows, back, err := d.lend()
				if err != nil {
					t.Fatal(err)
				}
				got := slices.Clone(unsafe.Slice((*float32)(rows.data), rows.rows*d.Vocab()))
				back()
				if !slices.Equal(got, want) {
					t.Errorf("round %d: the pass over what was drawn keeps other rows", round)
				}
			}
			if p, ok := d.caches.(*paged); ok && c.o.paging == &recordedPaging && len(p.capturing.shapes) == 0 {
				t.Error("nothing was recorded")
			}
			if c.ring && m.session.device.stream.head < 8*lanes*256 {
				t.Error("inputs do not go through the ring")
			}
			for _, x := range []int32{-1 - lanes*steps, -1} { // more than was drawn; and none has been
				var drawn []drawnTokens
				if x != -1 {
					drawn = s.tokens()
				}
				if err := d.keep(context.Background(), []Span{{Slot: slots[0], Tokens: []int32{x}, Rows: 1}}, drawn); err == nil {
					t.Errorf("token %d is fed", x)
				}
			}
		})
	}
}
