package mutants

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// coupling is the loop of the rule coupled, cut into the steps that a mutant
// replaces.
type coupling struct {
	// draftNoise and targetNoise are what each draws with at a position.
	draftNoise, targetNoise func(c spec.Coins, position int) spec.Noise
	// draw is the target's draw at a position, standardized q at hand and the
	// logits that it was made of.
	draw func(w *world, logits []float32, q *spec.Dist, n spec.Noise) int32
	// accept compares a drafted token with the target's.
	accept func(x, y int32, p, q *spec.Dist) bool
}

func soundCoupling() *coupling {
	noise := func(c spec.Coins, position int) spec.Noise { return c.Noise(position) }
	return &coupling{
		draftNoise: noise, targetNoise: noise,
		draw: func(_ *world, _ []float32, q *spec.Dist, n spec.Noise) int32 {
			x, _ := q.Race(n)
			return x
		},
		accept: func(x, y int32, _, _ *spec.Dist) bool { return x == y },
	}
}

// decode extends the prompt by length tokens, with K = w.k, and calls examined
// with every drafted token that verification comes to.
func (s *coupling) decode(w *world, coins spec.Coins, length int, examined func(p, q *spec.Dist, accepted bool)) []int32 {
	chain, err := spec.NewChain(w.sampling, w.target.Vocab, nil)
	if err != nil {
		panic(err)
	}
	if err := chain.Begin(w.prompt); err != nil {
		panic(err)
	}
	standardize := func(m *spectest.Model, tokens []int32, d *spec.Dist) []float32 {
		logits := m.Logits(tokens)
		if err := chain.Standardize(logits, tokens, d); err != nil {
			panic(err)
		}
		return logits
	}
	tokens := slices.Clone(w.prompt)
	end := len(tokens) + length
	for len(tokens) < end {
		n := len(tokens)
		p := make([]spec.Dist, w.k)
		for t := range p {
			standardize(w.draft, tokens, &p[t])
			x, _ := p[t].Race(s.draftNoise(coins, n+t))
			tokens = append(tokens, x)
		}
		drafted := slices.Clone(tokens[n:])
		tokens = tokens[:n]
		for t := 0; ; t++ {
			var q spec.Dist
			logits := standardize(w.target, tokens, &q)
			y := s.draw(w, logits, &q, s.targetNoise(coins, n+t))
			if t == len(drafted) {
				tokens = append(tokens, y)
				break
			}
			ok := s.accept(drafted[t], y, &p[t], &q)
			examined(&p[t], &q, ok)
			if !ok {
				tokens = append(tokens, y)
				break
			}
			tokens = append(tokens, drafted[t])
		}
	}
	return tokens[len(w.prompt):end]
}

var couplingCheckers = []struct {
	name  string
	check func(s *coupling) string
}{
	{"law of two tokens", couplingLaw},
	{"acceptance has its closed form", couplingAcceptance},
	{"the same tokens as autoregressive sampling", couplingInvariance},
}

func ignore(_, _ *spec.Dist, _ bool) {}

// couplingLaw draws many pairs of tokens and compares their counts with the
// target's joint law.
func couplingLaw(s *coupling) string {
	const vocab, length, samples = 4, 2, 20_000
	w := newWorld(vocab, 3, spec.Sampling{Temperature: 1, TopK: 3})
	counts := map[string]float64{}
	for row := range uint64(samples) {
		counts[fmt.Sprint(s.decode(w, spec.Coins{Seed: 6, Row: row}, length, ignore))]++
	}
	chain, err := spec.NewChain(w.sampling, vocab, nil)
	if err != nil {
		return err.Error()
	}
	var sum, bins float64
	law := spectest.Joint(w.prompt, length, func(tokens []int32, d *spec.Dist) {
		if err := chain.Standardize(w.target.Logits(tokens), tokens, d); err != nil {
			panic(err)
		}
	})
	for out, n := range counts {
		if law[out] == 0 {
			return fmt.Sprintf("%s came %v times and cannot", out, n)
		}
	}
	for out, pr := range law {
		want := pr * samples
		sum += (counts[out] - want) * (counts[out] - want) / want
		bins++
	}
	if z := spectest.ChiSquareZ(sum, bins-1); z > 5 {
		return fmt.Sprintf("chi-square %.0f of %.0f degrees", sum, bins-1)
	}
	return ""
}

// couplingAcceptance compares how often drafted tokens are accepted with sum
// over x of 1 / sum over y of max(p(y)/p(x), q(y)/q(x)).
func couplingAcceptance(s *coupling) string {
	w := newWorld(6, 3, spec.Sampling{Temperature: 1})
	var hits, expected, variance float64
	for row := range uint64(3000) {
		s.decode(w, spec.Coins{Seed: 7, Row: row}, 6, func(p, q *spec.Dist, accepted bool) {
			var chance float64
			for x := range int32(len(p.W)) {
				var rate float64
				for y := range int32(len(p.W)) {
					rate += max(p.Prob(y)/p.Prob(x), q.Prob(y)/q.Prob(x))
				}
				chance += 1 / rate
			}
			if accepted {
				hits++
			}
			expected += chance
			variance += chance * (1 - chance)
		})
	}
	if z := (hits - expected) / math.Sqrt(variance); math.Abs(z) > 5 {
		return fmt.Sprintf("%v tokens are accepted, it should be %.0f", hits, expected)
	}
	return ""
}

// couplingInvariance compares with autoregressive sampling by package spec.
func couplingInvariance(s *coupling) string {
	rule, err := spec.ParseRule("coupled")
	if err != nil {
		return err.Error()
	}
	for _, sampling := range []spec.Sampling{{Temperature: 1}, {Temperature: 1, TopK: 2}} {
		w := newWorld(6, 3, sampling)
		chain, err := spec.NewChain(sampling, 6, nil)
		if err != nil {
			return err.Error()
		}
		for row := range uint64(100) {
			coins, tokens := spec.Coins{Row: row}, slices.Clone(w.prompt)
			for range 12 {
				var q spec.Dist
				if err := chain.Standardize(w.target.Logits(tokens), tokens, &q); err != nil {
					return err.Error()
				}
				x, _ := rule.Draw(&q, coins, len(tokens))
				tokens = append(tokens, x)
			}
			if got := s.decode(w, coins, 12, ignore); !slices.Equal(got, tokens[len(w.prompt):]) {
				return fmt.Sprintf("row %d is %v, autoregressively %v", row, got, tokens[len(w.prompt):])
			}
		}
	}
	return ""
}

var couplingMutants = []struct {
	name   string
	mutate func(s *coupling)
}{
	{"noise shared between positions", func(s *coupling) {
		s.draftNoise = func(c spec.Coins, _ int) spec.Noise { return c.Noise(0) }
		s.targetNoise = s.draftNoise
	}},
	{"noise redrawn for the target", func(s *coupling) {
		s.targetNoise = func(c spec.Coins, position int) spec.Noise { return c.Noise(position + 1<<20) }
	}},
	{"noise of the position before for the draft", func(s *coupling) {
		s.draftNoise = func(c spec.Coins, position int) spec.Noise { return c.Noise(position - 1) }
	}},
	{"argmax of p accepted when it is not q's but likely", func(s *coupling) {
		s.accept = func(x, y int32, p, q *spec.Dist) bool { return x == y || q.Prob(x) >= p.Prob(x) }
	}},
	{"truncation after the noise: a race over all tokens, one that top-k drops gives way to the most probable", func(s *coupling) {
		s.draw = func(_ *world, logits []float32, q *spec.Dist, n spec.Noise) int32 {
			x, _ := unwarped(logits).Race(n)
			if q.Prob(x) == 0 {
				for y := range q.W {
					if q.W[y] > q.W[x] {
						x = int32(y)
					}
				}
			}
			return x
		}
	}},
	{"a race of weights without their noise", func(s *coupling) {
		s.draw = func(_ *world, _ []float32, q *spec.Dist, _ spec.Noise) (x int32) {
			for y := range q.W {
				if q.W[y] > q.W[x] {
					x = int32(y)
				}
			}
			return x
		}
	}},
}

// TestCouplingMutants: the sound loop passes every checker, every mutant is
// caught.
func TestCouplingMutants(t *testing.T) {
	for _, c := range couplingCheckers {
		if what := c.check(soundCoupling()); what != "" {
			t.Errorf("package spec itself: %s: %s", c.name, what)
		}
	}
	for _, m := range couplingMutants {
		var caught []string
		for _, c := range couplingCheckers {
			s := soundCoupling()
			m.mutate(s)
			if c.check(s) != "" {
				caught = append(caught, c.name)
			}
		}
		if caught == nil {
			t.Errorf("nothing catches: %s", m.name)
		}
		t.Logf("%s\n      caught by: %s", m.name, strings.Join(caught, "; "))
	}
}
