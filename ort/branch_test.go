package ort

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestBranches: sequences that begin alike, in one pass that feeds every token of
// theirs once, have the logits that each of them has alone, and go on from there.
func TestBranches(t *testing.T) {
	for _, way := range []string{"in one run", "in several", "as exported"} {
		for _, name := range slices.Concat(tiny, demo) {
			t.Run(name+"/"+way, func(t *testing.T) {
				const most = 64
				m := loadT(t, modelDir(name), Options{Context: most, AsExported: way == "as exported"})
				d, alone := decoderT(t, m), sequenceT(t, decoderT(t, m))
				if p, ok := d.caches.(*paged); ok && way == "in several" { // as on devices
					p.paging.copies = false
				}
				x := selfTestTokens(most, m.Vocab())
				for _, n := range []int{1, 14, 16, 29, 33} { // branches within a block, and over the end of one
					base := alloc(t, d)
					if _, err := d.Forward(t.Context(), []Span{{Slot: base, Tokens: x[:n]}}); err != nil {
						t.Fatal(err)
					}
					slots := []int{base}
					for range 3 {
						s := alloc(t, d)
						if err := d.Share(s, base, n); err != nil {
							t.Fatal(err)
						}
						slots = append(slots, s)
					}
					// A tree: a path, two branches of it, of which one has a branch, and another path.
					path := slices.Concat(x[:n], x[40:44])
					branch := slices.Concat(path[:n+2], x[50:52])
					twig := slices.Concat(branch[:n+3], x[60:61])
					other := slices.Concat(x[:n], x[55:56])
					spans := []Span{
						{Slot: slots[0], Past: n, Tokens: path[n:], Rows: 4},
						{Slot: slots[1], Past: n + 2, Tokens: branch[n+2:], Rows: 2, From: 1},
						{Slot: slots[2], Past: n + 3, Tokens: twig[n+3:], Rows: 1, From: 2},
						{Slot: slots[3], Past: n, Tokens: other[n:], Rows: 1},
					}
					logits, err := d.Forward(t.Context(), spans)
					if err != nil {
						t.Fatal(err)
					}
					logits = slices.Clone(logits) // the next pass overwrites them
					for i, tokens := range [][]int32{path, branch, twig, other} {
						rows := spans[i].Rows * m.Vocab()
						want := slices.Clone(alone.feed(0, tokens...))
						same(t, d, fmt.Sprintf("span %d behind %d tokens", i, n), logits[:rows], want[len(want)-rows:])
						logits = logits[rows:]
						next, err := d.Forward(t.Context(), []Span{{Slot: slots[i], Past: len(tokens), Tokens: x[:1], Rows: 1}})
						if err != nil {
							t.Fatal(err)
						}
						same(t, d, fmt.Sprintf("behind span %d", i), slices.Clone(next), alone.feed(len(tokens), x[0]))
						d.Free(slots[i])
					}
				}
			})
		}
	}
}

func same(t *testing.T, d *Decoder, what string, got, want []float32) {
	t.Helper()
	if d.model.Exact() {
		bitEqual(t, what, got, want)
		return
	}
	near(t, what, got, want, d.model.bundle.tolerance)
}

func TestBranchesThatAreNone(t *testing.T) {
	m := loadT(t, modelDir("target"), Options{Context: 40})
	d := decoderT(t, m)
	a, b := alloc(t, d), alloc(t, d)
	if _, err := d.Forward(t.Context(), []Span{{Slot: a, Tokens: []int32{1, 2, 3}}}); err != nil {
		t.Fatal(err)
	}
	for want, spans := range map[string][]Span{
		"is not before its own": {{Slot: a, Past: 3, Tokens: []int32{4}, From: 1}},
		"which has fewer":       {{Slot: a, Past: 3, Tokens: []int32{4}}, {Slot: b, Past: 5, Tokens: []int32{4}, From: 1}},
		"0 tokens are cached":   {{Slot: a, Past: 3, Tokens: []int32{4}}, {Slot: b, Past: 3, Tokens: []int32{4}}},
		"is named twice":        {{Slot: a, Past: 3, Tokens: []int32{4}}, {Slot: a, Past: 4, Tokens: []int32{4}, From: 1}},
		"context is full":       {{Slot: a, Past: 3, Tokens: []int32{4}}, {Slot: b, Past: 4, Tokens: make([]int32, 40), From: 1}},
	} {
		if _, err := d.Forward(context.Background(), spans); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := d.Forward(t.Context(), []Span{{Slot: a, Past: 3, Tokens: []int32{4}, Rows: 1}}); err != nil {
		t.Errorf("after the errors: %v", err)
	}
}

// TestCrossedBranches is TestBranches for encoder-decoder models.
func TestCrossedBranches(t *testing.T) {
	for _, name := range crossedModels {
		t.Run(name, func(t *testing.T) {
			g := readCrossedGolden(t, name)
			d := decoderT(t, loadT(t, exportedDir(name), Options{Threads: 1}))
			in := len(g.source)
			forward := func(spans ...Span) []float32 {
				t.Helper()
				got, err := d.Forward(t.Context(), spans)
				if err != nil {
					t.Fatal(err)
				}
				return slices.Clone(got)
			}
			a, b, c := alloc(t, d), alloc(t, d), alloc(t, d)
			forward(Span{Slot: a, Tokens: slices.Concat(g.source, g.text[:4]), Input: in})
			if err := d.Share(b, a, in+4); err != nil {
				t.Fatal(err)
			}
			path, branch := slices.Concat(g.text[:4], []int32{5, 6, 7}), slices.Concat(g.text[:4], []int32{5, 8})
			got := forward(Span{Slot: a, Past: in + 4, Tokens: path[4:], Rows: 3, Input: in}, Span{Slot: b, Past: in + 5, Tokens: branch[5:], Rows: 1, Input: in, From: 1})
			want := forward(Span{Slot: c, Tokens: slices.Concat(g.source, path), Rows: 3, Input: in})
			d.Truncate(c, 0)
			want = append(want, forward(Span{Slot: c, Tokens: slices.Concat(g.source, branch), Rows: 1, Input: in})...)
			if off := relative(got, want, g.vocab); !(off <= exact) {
				t.Errorf("%.2g off", off)
			}
		})
	}
}
