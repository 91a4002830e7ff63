package spec

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkLoop is everything between the two models' outputs and their next
// inputs, of one loop with K = 4: four rows of the draft, five of the target,
// drawing, verifying, and the margin of greedy decoding.
func BenchmarkLoop(b *testing.B) {
	for _, c := range []struct {
		name  string
		vocab int
		s     Sampling
	}{
		{"temperature/2048", 2048, Sampling{Temperature: 0.8}},
		{"nucleus/2048", 2048, Sampling{Temperature: 0.8, TopP: 0.95}},
		{"temperature/50257", 50257, Sampling{Temperature: 0.8}},
		{"nucleus/50257", 50257, Sampling{Temperature: 0.8, TopP: 0.95}},
		{"nucleus/151936", 151936, Sampling{Temperature: 0.8, TopP: 0.95}},
		{"top-k/50257", 50257, Sampling{Temperature: 0.8, TopK: 50}},
		{"penalties/50257", 50257, Sampling{Temperature: 0.8, TopP: 0.95, RepetitionPenalty: 1.1, FrequencyPenalty: 0.2, NoRepeatNGramSize: 4}},
		{"greedy/50257", 50257, Sampling{}},
	} {
		for _, k := range []kernel{native{}, plain{}} {
			name := c.name
			if k == (plain{}) {
				name += "/plain"
			}
			b.Run(name, func(b *testing.B) { benchmarkLoop(b, k, c.vocab, c.s) })
		}
	}
}

func benchmarkLoop(b *testing.B, kern kernel, vocab int, s Sampling) {
	const k, context = 4, 1000
	r := rand.New(rand.NewPCG(1, 1))
	rows := make([][]float32, 2*k+1)
	for i := range rows {
		rows[i] = make([]float32, vocab)
		for j := range rows[i] {
			rows[i][j] = float32(r.NormFloat64() * 3)
		}
	}
	chain, err := NewChain(s, vocab, nil)
	if err != nil {
		b.Fatal(err)
	}
	chain.kernel = kern
	tokens := make([]int32, context, context+k+1)
	for i := range tokens {
		tokens[i] = int32(r.IntN(vocab))
	}
	if err := chain.Begin(tokens[:100]); err != nil {
		b.Fatal(err)
	}
	p, q := make([]Dist, k), make([]Dist, k+1)
	var out Outcome
	var coins Uniforms = Coins{}
	loop := func(n int) {
		tokens = tokens[:context]
		for i := range p {
			if err := chain.Standardize(rows[i], tokens, &p[i]); err != nil {
				b.Fatal(err)
			}
			tokens = append(tokens, p[i].Sample(coins.Uniform(DraftCoin, n+i)))
		}
		for i := range q {
			if err := chain.Standardize(rows[k+i], tokens[:context+i], &q[i]); err != nil {
				b.Fatal(err)
			}
		}
		if err := verify(kern, Rejection, tokens[context:], p, q, coins, n, &out); err != nil {
			b.Fatal(err)
		}
		if s.Greedy() && q[out.Accepted].Margin() < 0 {
			b.Fatal("margin")
		}
	}
	for n := range 20 { // the buffers grow
		loop(n)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		loop(n)
	}
}
