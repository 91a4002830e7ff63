package spec

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkCoupled is what the rule coupled adds to one loop at a large
// vocabulary with K = 4: drawing four tokens from the draft's distributions and
// verifying them against five of the target's. Distributions are made
// beforehand; peaked ones resemble a language model's.
func BenchmarkCoupled(b *testing.B) {
	for _, c := range []struct {
		name   string
		s      Sampling
		spread float64
	}{
		{"temperature", Sampling{Temperature: 1}, 3},
		{"temperature-flat", Sampling{Temperature: 1}, 1},
		{"temperature-peaked", Sampling{Temperature: 1}, 6},
		{"nucleus", Sampling{Temperature: 1, TopP: 0.95}, 3},
		{"nucleus-peaked", Sampling{Temperature: 1, TopP: 0.95}, 6},
	} {
		for _, rule := range []Rule{{kind: coupled}, {}} {
			b.Run(c.name+"/"+rule.String(), func(b *testing.B) { benchmarkRule(b, rule, c.s, c.spread) })
		}
	}
}

func benchmarkRule(b *testing.B, rule Rule, s Sampling, spread float64) {
	const k, vocab = 4, 151_936
	r := rand.New(rand.NewPCG(1, 1))
	chain, err := NewChain(s, vocab, nil)
	if err != nil {
		b.Fatal(err)
	}
	p, q := make([]Dist, k), make([]Dist, k+1)
	row, near := make([]float32, vocab), make([]float32, vocab)
	for t := range q {
		for i := range row {
			row[i] = float32(r.NormFloat64() * spread)
			near[i] = row[i] + float32(r.NormFloat64()/2)
		}
		if err := chain.Standardize(row, nil, &q[t]); err != nil {
			b.Fatal(err)
		}
		if t < k {
			if err := chain.Standardize(near, nil, &p[t]); err != nil {
				b.Fatal(err)
			}
		}
	}
	var coins Uniforms = Coins{Seed: 1}
	var out Outcome
	drafted := make([]int32, k)
	accepted := 0
	b.ReportAllocs()
	n := 0
	for ; b.Loop(); n++ {
		for t := range p {
			drafted[t] = rule.Draft(&p[t], coins, n*k+t)
		}
		if err := Verify(rule, drafted, p, q, coins, n*k, &out); err != nil {
			b.Fatal(err)
		}
		accepted += out.Accepted
	}
	b.ReportMetric(float64(accepted)/float64(n), "accepted/loop")
}
