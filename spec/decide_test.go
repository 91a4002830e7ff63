package spec

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestEditsAreWhatStandardizeDoes applies edits to a row of logits and compares it,
// to the bit, with what Standardize makes of it before the temperature.
func TestEditsAreWhatStandardizeDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	const vocab = 40
	for range 2000 {
		s := Sampling{Temperature: 1}
		if r.IntN(2) == 0 {
			s.RepetitionPenalty = []float64{1, 1.3, 0.7}[r.IntN(3)]
		}
		if r.IntN(2) == 0 {
			s.FrequencyPenalty, s.PresencePenalty = 0.3, -0.2
		}
		if r.IntN(2) == 0 {
			s.LogitBias = map[int32]float64{3: 1.5, int32(r.IntN(vocab)): -2}
			s.ForbiddenTokens = []int32{int32(r.IntN(vocab)), 3}
		}
		s.NoRepeatNGramSize, s.MinNewTokens = r.IntN(3), r.IntN(8)
		c, err := NewChain(s, vocab, []int32{0, 5})
		if err != nil {
			t.Fatal(err)
		}
		tokens := make([]int32, 1+r.IntN(12))
		for i := range tokens {
			tokens[i] = int32(r.IntN(vocab / 4))
		}
		if err := c.Begin(tokens[:1]); err != nil {
			t.Fatal(err)
		}
		row := make([]float32, vocab)
		randomRow(r, row)
		want := slices.Clone(row)
		edits, err := c.Edits(tokens, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.processes(tokens) {
			if err := c.process(want, tokens); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[int32]bool{}
		for _, e := range edits {
			if seen[e.Token] {
				t.Fatalf("token %d is edited twice", e.Token)
			}
			seen[e.Token] = true
			x := row[e.Token] + e.Add
			if x < 0 {
				x *= e.Penalty
			} else {
				x /= e.Penalty
			}
			if e.Ban {
				x = float32(math.Inf(-1))
			}
			row[e.Token] = (x - e.Less) - e.Presence
		}
		if !slices.Equal(row, want) {
			t.Fatalf("%+v after %v:\n got %v\nwant %v", s, tokens, row, want)
		}
		if len(edits) > 0 && !s.Edits() {
			t.Errorf("%+v has edits", s)
		}
	}
}

// TestDecideIsVerify decides from numbers as Verify does from distributions.
func TestDecideIsVerify(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for n := range 3000 {
		s := randomSampling(r)
		rule, err := ParseRule([]string{"rejection", "match", "coupled", "lenient:0.6", "capped:0.8"}[r.IntN(5)])
		if err != nil {
			t.Fatal(err)
		}
		rule = rule.For(s)
		vocab, k := 2+r.IntN(300), r.IntN(4)
		c, err := NewChain(s, vocab, nil)
		if err != nil {
			t.Fatal(err)
		}
		coins := Coins{Seed: uint64(n)}
		p, q, rows := make([]Dist, k), make([]Dist, k+1), make([][]float32, k+1)
		var drafted []int32
		for i := range q {
			rows[i] = make([]float32, vocab)
			randomRow(r, rows[i])
			if err := c.Standardize(rows[i], nil, &q[i]); err != nil {
				t.Fatal(err)
			}
			if i < k {
				row := slices.Clone(rows[i])
				for j := range row {
					row[j] += float32(r.NormFloat64())
				}
				if err := c.Standardize(row, nil, &p[i]); err != nil {
					t.Fatal(err)
				}
				drafted = append(drafted, rule.Draft(&p[i], coins, 10+i))
			}
		}
		var want, got Outcome
		if err := Verify(rule, drafted, p, q, coins, 10, &want); err != nil {
			t.Fatal(err)
		}
		draw := func(i int) (int32, float64) {
			x, gap := rule.Draw(&q[i], coins, 10+i)
			if s.Greedy() {
				gap = q[i].Margin()
			}
			return x, gap
		}
		var scored []Scored
		for i, x := range drafted {
			v := Scored{P: p[i].Prob(x), Q: q[i].Prob(x), Overlap: Overlap(&p[i], &q[i]), Below: q[i].Below(x), Unadjusted: q[i].Unadjusted(x)}
			if v.Q > 0 {
				for y := range vocab {
					v.Scaled += min(p[i].Prob(int32(y)), v.P/v.Q*q[i].Prob(int32(y)))
				}
			}
			v.Recovered = Residual(&p[i], &q[i], coins.Uniform(ResidualCoin, 10+i))
			v.Drawn, v.Margin = draw(i)
			scored = append(scored, v)
		}
		last, margin := draw(k)
		if err := Decide(rule, drafted, scored, last, margin, coins, 10, &got); err != nil {
			t.Fatal(err)
		}
		for i := range got.Chance { // the one number that the test adds up itself
			if math.Abs(got.Chance[i]-want.Chance[i]) > 1e-9 {
				t.Errorf("chance %v, want %v", got.Chance[i], want.Chance[i])
			}
		}
		got.Chance, want.Chance = nil, nil
		for i := range got.Overlap {
			if math.Abs(got.Overlap[i]-want.Overlap[i]) > 1e-12 {
				t.Errorf("overlap %v, want %v", got.Overlap[i], want.Overlap[i])
			}
		}
		if got.Accepted != want.Accepted || got.Token != want.Token || got.Kind != want.Kind || !slices.Equal(got.P, want.P) ||
			!slices.Equal(got.Q, want.Q) || !slices.Equal(got.Coins, want.Coins) || !slices.Equal(got.Below, want.Below) || !slices.Equal(got.Margins, want.Margins) {
			t.Fatalf("rule %s, %+v:\n got %+v\nwant %+v", rule, s, got, want)
		}
	}
}

// TestDecideMatch: under match the target's draw decides, and what the outcome says of
// a token decides again as it did, where draw and probabilities were rounded apart by
// up to 1e-5; where they contradict each other it is an error.
func TestDecideMatch(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 3))
	rule := Rule{kind: match}
	moved, refused := 0, 0
	for n := range uint64(20000) {
		coins := Coins{Seed: n}
		u := rule.Coin(coins, 0, 1)
		const x = 5
		off := func() float64 { return math.Pow(10, -5-14*r.Float64()) * float64(1-2*r.IntN(2)) }
		q := []float64{r.Float64(), 1e-6 * r.Float64(), 1e-12, 1e-19}[r.IntN(4)]
		below := (1 - q) * r.Float64()
		switch r.IntN(4) { // near the coin
		case 0:
			below = u + off()
		case 1:
			below = u - q + off()
		case 2:
			below = 0
		}
		below = min(max(below, 0), 1-q)
		drawn, edge := int32(x), off()
		switch {
		case u < below+edge:
			drawn = 4
		case u >= below+q+edge:
			drawn = 6
		}
		wrong := r.IntN(50) == 0 && (u < below-1e-3 || u > below+q+1e-3 || u > below+1e-3 && u < below+q-1e-3)
		if wrong { // another token than the coin's
			if drawn == x {
				drawn = 6
			} else {
				drawn = x
			}
			refused++
		}
		var out Outcome
		err := Decide(rule, []int32{x}, []Scored{{P: 0.5, Q: q, Below: below, Drawn: drawn, Margin: math.NaN()}}, 9, math.NaN(), coins, 0, &out)
		if (err != nil) != wrong || wrong && !errors.Is(err, ErrDraw) {
			t.Fatalf("u %v, below %v, q %v, token %d is drawn: %v", u, below, q, drawn, err)
		}
		if wrong {
			continue
		}
		if out.Below[0] != below || out.Q[0] != q {
			moved++
		}
		if accepted := out.Accepted == 1; accepted != (drawn == x) || accepted != rule.Accept(u, out.P[0], out.Q[0], out.Below[0]) || !accepted && out.Token != drawn {
			t.Fatalf("u %v, below %v, q %v, token %d is drawn: %+v", u, below, q, drawn, out)
		}
		if !(out.Below[0] >= 0) || !(out.Q[0] >= 0) || out.Below[0]+out.Q[0] > 1+1e-4 || math.Abs(out.Below[0]-below) > 3e-5 || math.Abs(out.Q[0]-q) > 3e-5 {
			t.Fatalf("below %v and q %v became %v and %v", below, q, out.Below[0], out.Q[0])
		}
	}
	if moved < 100 || refused < 100 {
		t.Errorf("%d numbers were moved, %d refused", moved, refused)
	}
}

// TestDecideRefuses: numbers that decide nothing are errors.
func TestDecideRefuses(t *testing.T) {
	for _, c := range []struct {
		scored []Scored
		want   error
	}{
		{nil, ErrShape},
		{[]Scored{{P: math.NaN(), Q: 1}}, ErrNotANumber},
		{[]Scored{{P: 1, Q: math.Inf(1)}}, ErrNotANumber},
		{[]Scored{{P: 0, Q: 1}}, ErrImpossibleDraft},
	} {
		if err := Decide(Rejection, []int32{1}, c.scored, 0, 0, Coins{}, 0, new(Outcome)); !errors.Is(err, c.want) {
			t.Errorf("%+v: got %v, want %v", c.scored, err, c.want)
		}
	}
}
