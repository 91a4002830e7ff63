package spec_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// states is how many different contexts the models of the Monte Carlo test
// have: a distribution depends on the last token modulo this. That keeps the
// exact law of every position a product of small matrices, while a loop that
// conditions on the wrong token is seen.
const states = 4

// family is a model's distributions, by state.
func family(t testing.TB, vocab int, seed uint64, s spec.Sampling) []spec.Dist {
	chain, err := spec.NewChain(s, vocab, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, seed))
	d := make([]spec.Dist, states)
	row := make([]float32, vocab)
	for i := range d {
		for x := range row {
			row[x] = float32(r.NormFloat64() * 1.5)
		}
		if err := chain.Standardize(row, nil, &d[i]); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// TestMonteCarlo runs many loops with production coins, each continued to k+1
// tokens by draws from the target, and compares the counts at every position
// with the target's exact law by chi-square: the instrument for vocabularies
// that no enumeration reaches.
func TestMonteCarlo(t *testing.T) {
	loops := 200_000
	if testing.Short() {
		loops = 20_000
	}
	for _, c := range []struct {
		vocab int
		s     spec.Sampling
		rule  string
		lossy bool
	}{
		{16, spec.Sampling{Temperature: 1}, "rejection", false},
		{16, spec.Sampling{Temperature: 0.8, TopP: 0.9}, "rejection", false},
		{16, spec.Sampling{Temperature: 1}, "match", false},
		{16, spec.Sampling{Temperature: 1}, "coupled", false},
		{16, spec.Sampling{Temperature: 1}, "lenient:0.8", true},
		{4096, spec.Sampling{Temperature: 1}, "rejection", false},
		{4096, spec.Sampling{Temperature: 1, TopK: 2000, TopP: 0.95}, "rejection", false},
		{4096, spec.Sampling{Temperature: 1, TopK: 500}, "coupled", false},
	} {
		t.Run(fmt.Sprintf("%s/v%d/top-p%v", c.rule, c.vocab, c.s.TopP), func(t *testing.T) {
			t.Parallel()
			rule, err := spec.ParseRule(c.rule)
			if err != nil {
				t.Fatal(err)
			}
			const k = 3
			families := func() (p, q []spec.Dist) { return family(t, c.vocab, 2, c.s), family(t, c.vocab, 1, c.s) }
			_, q := families()
			counts := sample(t, rule, families, c.vocab, k, loops)

			// The law of position t is that of the state before it, times q.
			state := make([]float64, states)
			state[0] = 1
			worst := 0.0
			for at := range k + 1 {
				want := make([]float64, c.vocab)
				next := make([]float64, states)
				for i, weight := range state {
					for x := range want {
						pr := weight * q[i].Prob(int32(x))
						want[x] += pr * float64(loops)
						next[x%states] += pr
					}
				}
				state = next
				var sum, bins, rare, rareWant float64
				for x, n := range counts[at] {
					if want[x] == 0 && n > 0 {
						t.Errorf("position %d: token %d came %v times and cannot", at, x, n)
					}
					if want[x] < 10 {
						rare, rareWant = rare+n, rareWant+want[x]
						continue
					}
					sum += (n - want[x]) * (n - want[x]) / want[x]
					bins++
				}
				if rareWant >= 10 {
					sum += (rare - rareWant) * (rare - rareWant) / rareWant
					bins++
				}
				z := spectest.ChiSquareZ(sum, bins-1)
				worst = max(worst, z)
				if z > 4.5 && !c.lossy {
					t.Errorf("position %d: chi-square %.0f of %.0f degrees, %.1f deviations", at, sum, bins-1, z)
				}
			}
			if c.lossy && worst < 10 {
				t.Errorf("a lossy rule passes for lossless: %.1f deviations", worst)
			}
		})
	}
}

// sample counts the tokens at every position of many loops.
func sample(t *testing.T, rule spec.Rule, families func() (p, q []spec.Dist), vocab, k, loops int) [][]float64 {
	workers := runtime.GOMAXPROCS(0)
	total := make([][]float64, k+1)
	for i := range total {
		total[i] = make([]float64, vocab)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range workers {
		p, q := families() // a Dist is used by one goroutine
		wg.Go(func() {
			counts := make([][]float64, k+1)
			for i := range counts {
				counts[i] = make([]float64, vocab)
			}
			rows, drafts := make([]spec.Dist, k+1), make([]spec.Dist, k)
			tokens := make([]int32, 0, k+1)
			var out spec.Outcome
			for row := w; row < loops; row += workers {
				var coins spec.Uniforms = spec.Coins{Seed: 9, Row: uint64(row)}
				tokens, rows[0] = tokens[:0], q[0]
				for i, state := 0, int32(0); i < k; i++ {
					drafts[i] = p[state]
					x := rule.Draft(&drafts[i], coins, i)
					tokens, state = append(tokens, x), x%states
					rows[i+1] = q[state]
				}
				if err := spec.Verify(rule, tokens, drafts, rows, coins, 0, &out); err != nil {
					t.Error(err)
					return
				}
				tokens = append(tokens[:out.Accepted], out.Token)
				for len(tokens) <= k {
					x, _ := rule.Draw(&q[tokens[len(tokens)-1]%states], coins, 100+len(tokens))
					tokens = append(tokens, x)
				}
				for i, x := range tokens {
					counts[i][x]++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range counts {
				for x, n := range counts[i] {
					total[i][x] += n
				}
			}
		})
	}
	wg.Wait()
	return total
}
