package spec_test

import (
	"math/rand/v2"
	"testing"

	"github.com/draftmill/draftmill/spec"
)

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		name   string
		n      int
		prefix []int32
		want   int32 // -1: nothing
	}{
		{"empty", 4, nil, -1},
		{"one token", 4, []int32{1}, -1},
		{"nothing repeats", 4, []int32{1, 2, 3}, -1},
		{"the last token stood before", 4, []int32{5, 6, 7, 5}, 6},
		{"the latest of equal matches", 4, []int32{5, 6, 5, 7, 5}, 7},
		{"the longer match before the later", 4, []int32{1, 5, 6, 5, 7, 1, 5}, 6},
		{"no longer than n", 1, []int32{1, 5, 6, 5, 7, 1, 5}, 7},
		{"a run copies itself", 4, []int32{3, 3, 3}, 3},
		{"a period", 4, []int32{1, 2, 1, 2, 1}, 2},
		{"the match begins the sequence", 8, []int32{1, 2, 3, 1, 2}, 3},
		{"outside the vocabulary", 4, []int32{5, 99, 5}, -1},
	} {
		var p spec.Dist
		ok, err := spec.Lookup{Vocab: 10, N: c.n}.Law(c.prefix, nil, &p)
		if err != nil || ok != (c.want >= 0) {
			t.Errorf("%s: %v, %v", c.name, ok, err)
			continue
		}
		if ok && (p.Prob(c.want) != 1 || p.Sample(0.99) != c.want) {
			t.Errorf("%s: weights %v, want %d alone", c.name, p.W, c.want)
		}
	}
}

// TestLookupAgreesWithTheDefinition looks for the longest suffix by trying
// them all.
func TestLookupAgreesWithTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var p spec.Dist
	for range 3000 {
		prefix := make([]int32, r.IntN(25))
		for i := range prefix {
			prefix[i] = int32(r.IntN(3))
		}
		n, want := 1+r.IntN(5), int32(-1)
	search:
		for length := min(n, len(prefix)-1); length > 0; length-- {
			for end := len(prefix) - 1; end >= length; end-- {
				same := true
				for i := range length {
					same = same && prefix[end-1-i] == prefix[len(prefix)-1-i]
				}
				if same {
					want = prefix[end]
					break search
				}
			}
		}
		ok, err := spec.Lookup{Vocab: 3, N: n}.Law(prefix, nil, &p)
		if err != nil || ok != (want >= 0) || ok && p.Prob(want) != 1 {
			t.Fatalf("suffixes of %d in %v: %v %v %v, want %d", n, prefix, ok, err, p.W, want)
		}
	}
}

func TestUniform(t *testing.T) {
	var p spec.Dist
	if ok, err := (spec.Uniform{Vocab: 8}).Law([]int32{1}, nil, &p); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for x := range int32(8) {
		if p.Prob(x) != 0.125 || p.Sample((float64(x)+0.5)/8) != x {
			t.Errorf("p(%d) = %v", x, p.Prob(x))
		}
	}
}

// TestDraftCoinsAreFresh: the coins that loops draft with, inner and outer, are
// shared with no other loop and no other purpose.
func TestDraftCoinsAreFresh(t *testing.T) {
	type at struct {
		start, inner, position int
		purpose                spec.Purpose
		nested                 bool
	}
	seen := map[float64]at{}
	note := func(u float64, a at) {
		if before, ok := seen[u]; ok {
			t.Fatalf("%+v and %+v share the coin %v", before, a, u)
		}
		seen[u] = a
	}
	coins := spec.Coins{Seed: 1, Row: 2, Sample: 3}
	purposes := []spec.Purpose{spec.DraftCoin, spec.AcceptCoin, spec.ResidualCoin, spec.BonusCoin}
	for start := 1; start < 120; start++ {
		for _, purpose := range purposes[1:] {
			note(coins.Uniform(purpose, start), at{start, start, start, purpose, false})
		}
		d := spec.DraftCoins{Uniforms: coins, Start: start}
		for position := start; position < start+10; position++ {
			note(d.Uniform(spec.DraftCoin, position), at{start, 0, position, spec.DraftCoin, false})
			inner := spec.InnerCoins{Uniforms: &d, Start: position}
			for place := range spec.MaxInnerLookahead + 1 {
				for _, purpose := range purposes {
					note(inner.Uniform(purpose, position+place), at{start, position, position + place, purpose, true})
				}
			}
		}
	}
	last := spec.DraftCoins{Uniforms: coins, Start: spec.MaxPositions - 1}
	note(last.Uniform(spec.DraftCoin, spec.MaxPositions-1+spec.MaxLookahead), at{})
}
