package sampling

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/spec"
)

// TestRace: the device draws the tokens that spec draws with the same noise, but for
// gaps within rounding, whose logarithms are spec's too; also where the candidates are
// few, and rows have to be computed again.
func TestRace(t *testing.T) {
	rule := ruleT(t, "coupled")
	eachDevice(t, func(t *testing.T, o ort.Options) {
		r := rand.New(rand.NewPCG(8, 5))
		rows, ties, reran, worst := 0, 0, 0, 0.0
		for _, c := range []struct {
			vocab, candidates int
			sampling          spec.Sampling
		}{
			{1, 0, spec.Sampling{Temperature: 1}},
			{2, 0, spec.Sampling{Temperature: 1}},
			{33, 0, spec.Sampling{Temperature: 1}},
			{301, 0, spec.Sampling{Temperature: 0.8, TopP: 0.95}},
			{5000, 0, spec.Sampling{Temperature: 1}},
			{5003, 0, spec.Sampling{Temperature: 0.7, TopP: 0.9, RepetitionPenalty: 1.3, MinNewTokens: 30}},
			{50257, 0, spec.Sampling{Temperature: 1.2}},
			{700, 100, spec.Sampling{Temperature: 1, TopK: 200}},
			{1000, 6, spec.Sampling{Temperature: 1.4}}, // often too few
		} {
			d := deviceT(t, o, c.sampling, "coupled", c.vocab, c.candidates)
			for n := range cases(o, 10) {
				var batch []Row
				for i := range 3 {
					tokens := []int32{int32(r.IntN(c.vocab)), int32(r.IntN(c.vocab))}
					logits := randomRow(r, c.vocab)
					if i == 1 && n%2 == 0 { // all alike: the noise alone decides
						clear(logits)
					}
					batch = append(batch, Row{Logits: logits, Chain: chainT(t, c.sampling, c.vocab, tokens[:1]), Tokens: tokens,
						Coins: spec.Coins{Seed: r.Uint64(), Row: uint64(i), Sample: uint32(n)}, At: 2 + r.IntN(4000)})
				}
				drawn, err := d.Draw(batch)
				if err != nil {
					t.Fatal(err)
				}
				for i, row := range batch {
					var law spec.Dist
					if err := row.Chain.Standardize(row.Logits, row.Tokens, &law); err != nil {
						t.Fatal(err)
					}
					rows++
					x, gap := rule.Draw(&law, row.Coins, row.At)
					if drawn[i].Token != x {
						if ties++; gap > 1e-5 {
							t.Errorf("%d tokens, %d candidates, row %d: token %d, want %d by a gap of %g", c.vocab, c.candidates, rows, drawn[i].Token, x, gap)
						}
						continue
					}
					margin := d.host.drawn[i].Margin
					if math.IsInf(gap, 1) { // shaders may have no infinity
						gap = max(80, margin)
					}
					if margin == gap {
						continue
					}
					off := math.Abs(margin - gap)
					if worst = max(worst, off); !(off <= 1e-5*max(1, gap)) {
						t.Errorf("%d tokens, row %d: a gap of %g, want %g", c.vocab, rows, margin, gap)
					}
				}
			}
			if n := d.host.Reran(); c.candidates == 6 && n == 0 || c.candidates == 0 && c.sampling.TopP == 0 && n > 0 {
				t.Errorf("%d tokens, %d candidates: %d rows were computed again", c.vocab, c.candidates, n)
			}
			reran += d.host.Reran()
		}
		t.Logf("%d rows, %d ties, %d computed again, gaps are %.2g off at most", rows, ties, reran, worst)
		if ties > 1 {
			t.Errorf("%d of %d tokens differ", ties, rows)
		}
	})
}

// TestCoupledLaw counts what draft and target draw on the device, of many positions at
// once: each has its own law, by chi-square, and they agree as often as the closed form
// of Daliri, Musco and Suresh says.
func TestCoupledLaw(t *testing.T) {
	o := ort.Options{Device: "cpu", Threads: 1}
	eachDevice(t, func(*testing.T, ort.Options) {}) // loads the library
	const vocab, batch, batches = 24, 400, 10
	s := spec.Sampling{Temperature: 1}
	d := deviceT(t, o, s, "coupled", vocab, 0)
	r := rand.New(rand.NewPCG(2, 7))
	q := make([]float32, vocab)
	for i := range q {
		q[i] = float32(r.NormFloat64() * 1.2)
	}
	p := mixed(r, q)
	chain := chainT(t, s, vocab, nil)
	law := func(logits []float32) (law spec.Dist) {
		if err := chain.Standardize(logits, nil, &law); err != nil {
			t.Fatal(err)
		}
		return law
	}
	laws := []spec.Dist{law(p), law(q)}
	counts := [2][vocab]float64{}
	agree := 0.0
	for b := range batches {
		var drawn [2][]int32
		for i, logits := range [][]float32{p, q} {
			var rows []Row
			for at := range batch {
				rows = append(rows, Row{Logits: logits, Chain: chain, Coins: spec.Coins{Seed: 4}, At: b*batch + at})
			}
			places, err := d.Draft(0, rows)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range places {
				drawn[i] = append(drawn[i], x.Token)
				counts[i][x.Token]++
			}
		}
		for i, x := range drawn[0] {
			if x == drawn[1][i] {
				agree++
			}
		}
	}
	const n = batch * batches
	for i, counts := range counts {
		var chi float64
		for x, c := range counts {
			e := n * laws[i].Prob(int32(x))
			chi += (c - e) * (c - e) / e
		}
		if df := vocab - 1.; chi > df+5*math.Sqrt(2*df) {
			t.Errorf("law %d: chi-square %.1f with %v degrees of freedom", i, chi, df)
		}
	}
	var want float64
	for x := range int32(vocab) {
		var rate float64
		for y := range int32(vocab) {
			rate += max(laws[0].Prob(y)/laws[0].Prob(x), laws[1].Prob(y)/laws[1].Prob(x))
		}
		want += 1 / rate
	}
	if z := (agree/n - want) / math.Sqrt(want*(1-want)/n); math.Abs(z) > 4 {
		t.Errorf("they agree in %.4f of %d draws, want %.4f", agree/n, n, want)
	}
}
