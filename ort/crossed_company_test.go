package ort

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// crossedPair is a sequence of the game below.
type crossedPair struct {
	slot, input int
	text        []int32
	past        int // tokens that were fed
}

// TestCrossedCompany plays a random game with the sequences of an encoder-decoder
// model: they join with an input in pieces, or with the beginning of another's, are fed
// together in ever new company, part inside a pass, roll back into the input or behind
// it, and leave. Every row of logits has the bits that the same tokens have alone, in
// one pass of another decoder.
func TestCrossedCompany(t *testing.T) {
	for _, name := range slices.Concat(crossedModels, []string{"translate"}) {
		t.Run(name, func(t *testing.T) {
			dir := exportedDir(name)
			if name == "translate" {
				dir = "../testdata/translate/draft"
			}
			m := loadT(t, dir, Options{Threads: 1})
			if !m.Exact() {
				t.Fatal("not exact:", m.Ragged())
			}
			playCrossed(t, decoderT(t, m), decoderT(t, m), rand.New(rand.NewPCG(5, 9)), 60)
		})
	}
}

func playCrossed(t *testing.T, d, reference *Decoder, r *rand.Rand, steps int) {
	t.Helper()
	const longest = 45
	alone := alloc(t, reference)
	want := func(p *crossedPair, tokens []int32) []float32 {
		t.Helper()
		if len(tokens) <= p.input {
			return nil
		}
		logits, err := reference.Forward(t.Context(), []Span{{Slot: alone, Tokens: tokens, Rows: len(tokens) - p.input, Input: p.input}})
		if err != nil {
			t.Fatal(err)
		}
		return logits
	}
	random := func(tokens []int32) {
		for i := range tokens {
			tokens[i] = r.Int32N(int32(d.Vocab()))
		}
	}
	var pairs []*crossedPair
	for range steps {
		if len(pairs) < 2 || len(pairs) < 6 && r.IntN(3) == 0 {
			p := &crossedPair{slot: alloc(t, d), input: 1 + r.IntN(20), text: make([]int32, longest)}
			random(p.text)
			if len(pairs) > 0 && r.IntN(2) == 0 {
				src := pairs[r.IntN(len(pairs))]
				p.past = r.IntN(src.past + 1)
				if err := d.Share(p.slot, src.slot, p.past); err != nil {
					t.Fatal(err)
				}
				copy(p.text, src.text[:p.past])
				if p.input = src.input; r.IntN(6) == 0 { // the same tokens, divided otherwise
					p.input = 1 + r.IntN(20)
				}
			}
			pairs = append(pairs, p)
		}
		r.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		const most = 9
		pairs = slices.DeleteFunc(pairs, func(p *crossedPair) bool {
			full := p.past+most > longest
			if full {
				d.Free(p.slot)
			}
			return full
		})
		company := slices.Clone(pairs[:r.IntN(len(pairs)+1)])
		var spans []Span
		for _, p := range company {
			n := []int{1, 1, 2, 5, 1 + r.IntN(most)}[r.IntN(5)]
			s := Span{Slot: p.slot, Past: p.past, Tokens: p.text[p.past : p.past+n], Input: p.input}
			if behind := p.past + n - p.input; behind > 0 {
				s.Rows = r.IntN(min(n, behind) + 1)
			}
			spans = append(spans, s)
		}
		if len(company) > 0 && r.IntN(3) == 0 { // one parts from another inside the pass
			from := r.IntN(len(company))
			src, s := company[from], spans[from]
			if past := s.Past + len(s.Tokens) - r.IntN(len(s.Tokens)); past+2 <= longest {
				p := &crossedPair{slot: alloc(t, d), input: src.input, text: slices.Clone(src.text), past: past}
				random(p.text[past:])
				rows := 0
				if past+2 > p.input {
					rows = 1
				}
				company, pairs = append(company, p), append(pairs, p)
				spans = append(spans, Span{Slot: p.slot, Past: past, Tokens: p.text[past : past+2], Rows: rows, Input: p.input, From: from + 1})
			}
		}
		if len(spans) == 0 {
			continue
		}
		logits, err := d.Forward(t.Context(), spans)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range company {
			s := spans[i]
			p.past = s.Past + len(s.Tokens)
			all := want(p, p.text[:p.past])
			got := logits[:s.Rows*d.Vocab()]
			logits = logits[len(got):]
			if len(got) > 0 {
				bitEqual(t, "in company", got, all[len(all)-len(got):])
			}
		}
		if len(logits) != 0 {
			t.Fatalf("%d logits more than were wanted", len(logits))
		}
		for _, p := range company {
			if back := r.IntN(p.past + 1); r.IntN(2) == 0 {
				p.past -= min(back, 12)
				random(p.text[p.past:])
				if r.IntN(3) == 0 {
					d.Truncate(p.slot, p.past)
				}
			}
		}
	}
	for _, p := range pairs {
		d.Free(p.slot)
	}
	if c := d.caches.(*crossedPaged); len(c.pool.free) != len(c.pool.holders) {
		t.Errorf("%d of %d blocks are free in the end", len(c.pool.free), len(c.pool.holders))
	}
}

// TestCrossedRewrittenEqualsExported: the rewritten decoder computes what the exporter's
// graphs do, as far as the decoder goes.
func TestCrossedRewrittenEqualsExported(t *testing.T) {
	for _, name := range slices.Concat(crossedModels, []string{"translate/target", "translate/draft"}) {
		t.Run(name, func(t *testing.T) {
			dir := exportedDir(name)
			if strings.HasPrefix(name, "translate") {
				dir = filepath.Join("..", "testdata", name)
			}
			equalsExported(t, dir)
		})
	}
}

func equalsExported(t *testing.T, dir string) {
	t.Helper()
	ours, exported := loadT(t, dir, Options{Threads: 1}), loadT(t, dir, Options{Threads: 1, AsExported: true})
	if why := ours.Ragged(); why != nil {
		t.Fatal(why)
	}
	most := min(200, ours.Bundle().Encoder.Most)
	decoders := []*Decoder{decoderT(t, ours), decoderT(t, exported)}
	slots := []int{alloc(t, decoders[0]), alloc(t, decoders[1])}
	for _, input := range []int{1, 7, most} {
		tokens := selfTestTokens(input+most, ours.Vocab())
		past := 0
		for i, n := range []int{input + 3, 1, 5, most - 20, 1, 7} {
			span := Span{Past: past, Tokens: tokens[past : past+n], Rows: min(n, past+n-input), Input: input}
			var logits [2][]float32
			for j, d := range decoders {
				span.Slot = slots[j]
				var err error
				if logits[j], err = d.Forward(t.Context(), []Span{span}); err != nil {
					t.Fatal(err)
				}
			}
			if off := relative(logits[0], logits[1], ours.Vocab()); !(off <= exact) {
				t.Errorf("an input of %d, step %d: %.2g off, at most %.2g is allowed", input, i, off, exact)
			}
			past += n
		}
	}
}
