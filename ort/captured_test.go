package ort

import (
	"context"
	"math/rand/v2"
	"testing"
)

// recordedPaging fills passes up and runs them at fixed addresses, three times
// each, as a device does that records them.
var recordedPaging = paging{block: 16, sequences: 8, metadata: true, capture: true, repeats: 2}

// TestRecordedPasses decodes sequences in loops of one number of tokens each, as
// drafts and verifications are, with passes that are filled up, and compares every
// logit with that of the sequence alone, to the bit. Sequences that were not in a
// pass go on afterwards as if nothing had been.
func TestRecordedPasses(t *testing.T) {
	for _, name := range []string{"gqa", "growing", "float16"} {
		t.Run(name, func(t *testing.T) {
			m := loadT(t, modelDir(name), Options{Context: 48, paging: &recordedPaging})
			d := decoderT(t, m)
			reference := decoderT(t, loadT(t, modelDir(name), Options{Context: 48}))
			r := rand.New(rand.NewPCG(5, 9))
			var pairs []*pair
			for i := range 7 {
				p := &pair{slot: sequenceT(t, d).slot, alone: sequenceT(t, reference)}
				for range d.Context() {
					p.text = append(p.text, r.Int32N(int32(d.Vocab())))
				}
				pairs = append(pairs, p)
				if i%2 == 1 { // shares blocks with the one before it
					copy(p.text, pairs[i-1].text[:pairs[i-1].past])
					if err := d.Share(p.slot, pairs[i-1].slot, pairs[i-1].past); err != nil {
						t.Fatal(err)
					}
					p.past = pairs[i-1].past
					p.alone.feed(0, p.text[:p.past]...)
					continue
				}
				feedPairs(t, d, []*pair{p}, func() (int, int) { return 2 + i, 1 })
			}
			for step := range 60 {
				n, rows := []int{1, 4, 1, 4, 2}[step%5], 0
				if rows = n; n == 2 {
					rows = 1
				}
				some := pairs[:1+step%len(pairs)]
				for _, p := range some {
					if p.past+n > d.Context() {
						p.past = r.IntN(p.past)
					}
				}
				feedPairs(t, d, some, func() (int, int) { return n, rows })
				for _, p := range some {
					p.past -= r.IntN(n) // rejected
				}
				r.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
			}
			got := d.caches.(*paged).capturing
			if len(got.shapes) < 6 {
				t.Errorf("recorded %v of %v", got.shapes, got.seen)
			}
			for s := range got.shapes {
				if s.sequences&(s.sequences-1) != 0 || s.tokens != 1 && s.tokens != 2 && s.tokens != 4 {
					t.Errorf("recorded %+v", s)
				}
			}
		})
	}
}

// TestRecordedCompany plays the game of company with such passes among others.
func TestRecordedCompany(t *testing.T) {
	for _, name := range []string{"gqa", "growing"} {
		m := loadT(t, modelDir(name), Options{Context: 48, paging: &recordedPaging})
		playCompany(t, decoderT(t, m), decoderT(t, loadT(t, modelDir(name), Options{Context: 48})), rand.New(rand.NewPCG(2, 8)), 60)
	}
}

// TestShapes: which passes are recorded, and what they are filled up to.
func TestShapes(t *testing.T) {
	p := &paged{paging: paging{block: 64, sequences: 256}}
	spans := func(n, tokens, rows int) (all []span) {
		for range n {
			all = append(all, span{Span: Span{Tokens: make([]int32, tokens), Rows: rows}})
		}
		return all
	}
	for _, c := range []struct {
		spans []span
		want  shape
		ok    bool
	}{
		{spans(1, 1, 1), shape{1, 1, 1}, true},
		{spans(3, 5, 5), shape{4, 5, 5}, true},
		{spans(8, 1, 1), shape{8, 1, 1}, true},
		{spans(9, 2, 1), shape{16, 2, 1}, true},
		{spans(256, 1, 1), shape{256, 1, 1}, true},
		{spans(2, 17, 17), shape{}, false},                          // a prompt
		{spans(2, 5, 0), shape{}, false},                            // a chunk of one
		{append(spans(2, 5, 5), spans(1, 4, 4)...), shape{}, false}, // another lookahead
		{append(spans(2, 2, 1), spans(1, 2, 2)...), shape{}, false},
	} {
		if s, ok := p.shapeOf(c.spans); ok != c.ok || ok && s != c.want {
			t.Errorf("%d spans: got %+v, %v, want %+v, %v", len(c.spans), s, ok, c.want, c.ok)
		}
	}
}

// TestRecordedPassesAllocateNothing in Go, once they are recorded.
func TestRecordedPassesAllocateNothing(t *testing.T) {
	d := decoderT(t, loadT(t, modelDir("gqa"), Options{Context: 48, paging: &recordedPaging}))
	spans := []Span{{Slot: sequenceT(t, d).slot, Tokens: []int32{1}, Rows: 1}, {Slot: sequenceT(t, d).slot, Tokens: []int32{1}, Rows: 1}, {Slot: sequenceT(t, d).slot, Tokens: []int32{1}, Rows: 1}}
	pass := func() {
		if _, err := d.Forward(context.Background(), spans); err != nil {
			t.Fatal(err)
		}
	}
	for range capturedAfter {
		pass()
	}
	if n := testing.AllocsPerRun(20, pass); n > 0 {
		t.Errorf("%v allocations a pass", n)
	}
}

// TestRecords: graphs are recorded where the provider's options say so, and by no
// session but that of paged attention.
func TestRecords(t *testing.T) {
	for _, c := range []struct {
		device, value string
		want          bool
	}{{"cuda", "1", true}, {"cuda:1", "True", true}, {"cuda", "0", false}, {"cuda", "", false}} {
		d, err := parseDevice(Options{Device: c.device, ProviderOptions: map[string]string{recordsGraphs: c.value}})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.records(); got != c.want {
			t.Errorf("%s with %s=%q: %v", c.device, recordsGraphs, c.value, got)
		}
	}
}

func blockT(t *testing.T, size int) block {
	t.Helper()
	rt, err := current()
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBlock(rt, nil, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.free)
	clear(view[byte](&b, 0, size))
	return b
}
