package spec_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// bench is one way of decoding a pair of small models.
type bench struct {
	q, p   *spectest.Model
	chain  *spec.Chain
	rule   spec.Rule
	k      int
	prompt []int32
}

func newBench(t testing.TB, s spec.Sampling, rule string, vocab, k int) *bench {
	t.Helper()
	b := &bench{
		q: &spectest.Model{Vocab: vocab, Seed: 11}, p: &spectest.Model{Vocab: vocab, Seed: 7},
		k: k, prompt: []int32{1, 0},
	}
	r, err := spec.ParseRule(rule)
	if err != nil {
		t.Fatal(err)
	}
	b.rule = r.For(s)
	if b.chain, err = spec.NewChain(s, vocab, []int32{0}); err != nil {
		t.Fatal(err)
	}
	if err := b.chain.Begin(b.prompt); err != nil {
		t.Fatal(err)
	}
	return b
}

// dist fills d with the law of a model after tokens.
func (b *bench) dist(m *spectest.Model, tokens []int32, d *spec.Dist) {
	if err := b.chain.Standardize(m.Logits(tokens), tokens, d); err != nil {
		panic(err)
	}
}

// loop is one draft-verify round behind the prompt, as the decode loop does it,
// continued by draws from q so that every output has k+1 tokens.
func (b *bench) loop(coins *spectest.Coins) string {
	n := len(b.prompt)
	tokens := append([]int32(nil), b.prompt...)
	p, q := make([]spec.Dist, b.k), make([]spec.Dist, b.k+1)
	for t := range p {
		b.dist(b.p, tokens, &p[t])
		tokens = append(tokens, p[t].Sample(coins.Uniform(spec.DraftCoin, n+t)))
		coins.Note(spectest.Key(tokens))
	}
	for t := range q {
		b.dist(b.q, tokens[:n+t], &q[t])
	}
	var out spec.Outcome
	if err := spec.Verify(b.rule, tokens[n:], p, q, coins, n, &out); err != nil {
		panic(err)
	}
	tokens = append(tokens[:n+out.Accepted], out.Token)
	for len(tokens) < n+b.k+1 {
		coins.Note(spectest.Key(tokens))
		b.dist(b.q, tokens, &q[0])
		// Positions past the loop's last token belong to later loops.
		tokens = append(tokens, q[0].Sample(coins.Uniform(spec.BonusCoin, 1000+len(tokens))))
	}
	return fmt.Sprint(tokens[n:])
}

// target is the law of autoregressive sampling.
func (b *bench) target() map[string]float64 {
	return spectest.Joint(b.prompt, b.k+1, func(tokens []int32, d *spec.Dist) { b.dist(b.q, tokens, d) })
}

func compare(t *testing.T, got, want map[string]float64) {
	t.Helper()
	var total float64
	for out, pr := range got {
		if math.Abs(pr-want[out]) > 1e-9 {
			t.Errorf("law of %s is %.12f, want %.12f", out, pr, want[out])
		}
		total += pr
	}
	for out, pr := range want {
		if _, ok := got[out]; !ok && pr > 1e-9 {
			t.Errorf("%s never comes, want %.12f", out, pr)
		}
	}
	if math.Abs(total-1) > 1e-9 {
		t.Errorf("the law sums to %.12f", total)
	}
}

var samplings = map[string]spec.Sampling{
	"plain":       {Temperature: 1},
	"temperature": {Temperature: 0.6},
	"top-k":       {Temperature: 1, TopK: 2},
	"top-p":       {Temperature: 0.9, TopP: 0.7},
	"min-p":       {Temperature: 1.2, MinP: 0.4},
	"penalties":   {Temperature: 1, RepetitionPenalty: 1.7, PresencePenalty: 0.9, FrequencyPenalty: 0.5},
	"bans":        {Temperature: 1, NoRepeatNGramSize: 3, MinNewTokens: 1, LogitBias: map[int32]float64{1: 1.5}},
	"greedy":      {},
}

// sizes are vocabularies and lookaheads; the powers of the ones to the others
// are what an enumeration takes.
var (
	small = []size{{5, 0}, {2, 1}, {5, 1}, {3, 2}, {2, 3}}
	sizes = append([]size{{4, 2}, {5, 2}, {3, 3}, {2, 4}}, small...)
)

type size struct{ vocab, k int }

// TestLoopHasTheTargetsLaw integrates over every coin of a loop and compares
// the joint law of its k+1 tokens with the target's, exactly (Chen et al.,
// Theorem 1), under every lossless rule.
func TestLoopHasTheTargetsLaw(t *testing.T) {
	every := slices.Collect(maps.Keys(samplings))
	for _, c := range []struct {
		rule      string
		samplings []string
		sizes     []size
	}{
		{"rejection", every, sizes},
		{"match", every, small},
		{"lenient:1", []string{"plain"}, small},
		{"capped:1", []string{"plain"}, small},
	} {
		for _, name := range c.samplings {
			for _, size := range c.sizes {
				t.Run(fmt.Sprintf("%s/%s/v%dk%d", c.rule, name, size.vocab, size.k), func(t *testing.T) {
					t.Parallel()
					b := newBench(t, samplings[name], c.rule, size.vocab, size.k)
					if b.rule.Lossy() {
						t.Errorf("%s calls itself lossy", b.rule)
					}
					compare(t, spectest.Law(b.loop), b.target())
				})
			}
		}
	}
}

// TestTrimmedDraftHasTheTargetsLaw: a draft that cannot propose some tokens leaves
// the target's law as it is, though the target gives them probability.
func TestTrimmedDraftHasTheTargetsLaw(t *testing.T) {
	for rule, names := range map[string][]string{"rejection": {"plain", "temperature", "top-k", "top-p", "penalties", "greedy"}, "match": {"plain"}} {
		for _, name := range names {
			for _, only := range [][]int32{{2}, {0, 3}, {1, 2, 4}} {
				t.Run(fmt.Sprint(rule, "/", name, only), func(t *testing.T) {
					b := newBench(t, samplings[name], rule, 5, 2)
					b.p.Only = only
					compare(t, spectest.Law(b.loop), b.target())
				})
			}
		}
	}
}

// lossy is the law of one loop under a rule that accepts x with chance
// accept(p, q), worked out from the definition.
func (b *bench) lossy(accept func(p, q *spec.Dist, x int32) float64) map[string]float64 {
	n, law := len(b.prompt), map[string]float64{}
	var rest func(tokens []int32, weight float64)
	rest = func(tokens []int32, weight float64) { // draws from q
		if len(tokens) == n+b.k+1 {
			law[fmt.Sprint(tokens[n:])] += weight
			return
		}
		var q spec.Dist
		b.dist(b.q, tokens, &q)
		for x := range int32(b.q.Vocab) {
			if pr := q.Prob(x); pr > 0 {
				rest(append(tokens[:len(tokens):len(tokens)], x), weight*pr)
			}
		}
	}
	var draft func(tokens []int32, weight float64)
	draft = func(tokens []int32, weight float64) {
		if len(tokens) == n+b.k {
			rest(tokens, weight)
			return
		}
		var p, q spec.Dist
		b.dist(b.p, tokens, &p)
		b.dist(b.q, tokens, &q)
		next := func(x int32) []int32 { return append(tokens[:len(tokens):len(tokens)], x) }
		rejected, surplus := 0.0, 0.0
		for x := range int32(b.q.Vocab) {
			surplus += max(q.Prob(x)-p.Prob(x), 0)
			if p.Prob(x) > 0 {
				a := accept(&p, &q, x)
				rejected += p.Prob(x) * (1 - a)
				if a > 0 {
					draft(next(x), weight*p.Prob(x)*a)
				}
			}
		}
		for x := range int32(b.q.Vocab) {
			if r := max(q.Prob(x)-p.Prob(x), 0); r > 0 && rejected > 0 {
				rest(next(x), weight*rejected*r/surplus)
			}
		}
	}
	draft(b.prompt, 1)
	return law
}

// TestLossyRules compares the law of a loop under the lossy rules with their
// definition, exactly, and holds it to the bound that they promise: no first
// token above 1/l times its target probability, and no run of n above (1/l)^n.
func TestLossyRules(t *testing.T) {
	for _, name := range []string{"plain", "top-p", "penalties"} {
		for _, rule := range []string{"lenient:0.5", "lenient:0.1", "capped:0.8"} {
			for _, size := range small {
				t.Run(fmt.Sprintf("%s/%s/v%dk%d", rule, name, size.vocab, size.k), func(t *testing.T) {
					t.Parallel()
					b := newBench(t, samplings[name], rule, size.vocab, size.k)
					if !b.rule.Lossy() {
						t.Errorf("%s does not call itself lossy", b.rule)
					}
					got, l := spectest.Law(b.loop), b.rule.Factor()
					compare(t, got, b.lossy(func(p, q *spec.Dist, x int32) float64 {
						return min(1, q.Prob(x)/(l*p.Prob(x)))
					}))
					target := b.target()
					for n := 1; n <= size.k+1; n++ {
						was, is := first(target, n), first(got, n)
						for out, pr := range is {
							if pr > was[out]*math.Pow(1/l, float64(n))+1e-9 {
								t.Errorf("%s has %.9f, more than (1/%g)^%d times its %.9f", out, pr, l, n, was[out])
							}
						}
					}
				})
			}
		}
	}
}

// first is the law of the first n tokens of outputs.
func first(law map[string]float64, n int) map[string]float64 {
	short := map[string]float64{}
	for out, pr := range law {
		short[out[:2*n]] += pr // "[a b c]": tokens of one digit
	}
	return short
}

// TestTheBoundIsReached: a draft that overrates a token twofold, a target that
// gives it little: lenient:0.5 emits it exactly twice as often.
func TestTheBoundIsReached(t *testing.T) {
	rule, err := spec.ParseRule("lenient:0.5")
	if err != nil {
		t.Fatal(err)
	}
	law := spectest.Law(func(u *spectest.Coins) string {
		p := []spec.Dist{{W: []float32{1, 0}, Sum: 1}}
		q := []spec.Dist{{W: []float32{1, 3}, Sum: 4}, {W: []float32{1, 0}, Sum: 1}}
		var out spec.Outcome
		if err := spec.Verify(rule, []int32{0}, p, q, u, 0, &out); err != nil {
			panic(err)
		}
		return fmt.Sprint(out.Accepted)
	})
	if math.Abs(law["1"]-0.5) > 1e-9 {
		t.Errorf("accepted with chance %v, want 0.5: twice 1/4", law["1"])
	}
}

// TestLeniencyAtTemperatureZero: what is kept has at least l times the
// unadjusted probability of the most probable token, what is rejected has
// less, and the coin has no part in it; capped changes nothing.
func TestLeniencyAtTemperatureZero(t *testing.T) {
	for _, l := range []float64{0.9, 0.5, 0.2} {
		for _, size := range sizes {
			b := newBench(t, spec.Sampling{}, fmt.Sprintf("lenient:%g", l), size.vocab, size.k)
			got := spectest.Law(b.loop)
			compare(t, got, b.lossy(func(_, q *spec.Dist, x int32) float64 {
				if q.Unadjusted(x) >= l {
					return 1
				}
				return 0
			}))
			if len(got) != 1 {
				t.Errorf("%s: %d outputs of greedy decoding", b.rule, len(got))
			}
			exact := newBench(t, spec.Sampling{}, fmt.Sprintf("capped:%g", l), size.vocab, size.k)
			compare(t, spectest.Law(exact.loop), exact.target())
			if exact.rule.Lossy() {
				t.Error("capped calls itself lossy at temperature zero")
			}
		}
	}
}

// TestInvariantRulesAreAutoregressiveSampling: with the same seed, speculative
// sampling by the rules match and coupled gives the very tokens of
// autoregressive sampling, whatever K is and whatever drafts.
func TestInvariantRulesAreAutoregressiveSampling(t *testing.T) {
	const tokens = 40
	for name, s := range samplings {
		if s.NoRepeatNGramSize > 0 {
			continue // runs out of n-grams
		}
		for _, c := range []struct {
			rule string
			k    int
			seed uint64 // of the draft
		}{{"match", 3, 7}, {"coupled", 1, 7}, {"coupled", 4, 7}, {"coupled", 4, 99}, {"coupled", 3, 11}} {
			b := newBench(t, s, c.rule, 5, c.k)
			b.p.Seed = c.seed
			if !b.rule.Invariant() {
				t.Fatalf("%s does not call itself invariant", b.rule)
			}
			accepted, drafted := 0, 0
			for row := range uint64(20) {
				coins := spec.Coins{Row: row}
				ars := append([]int32(nil), b.prompt...)
				var d spec.Dist
				for range tokens {
					b.dist(b.q, ars, &d)
					x, _ := b.rule.Draw(&d, coins, len(ars))
					ars = append(ars, x)
				}
				sps := append([]int32(nil), b.prompt...)
				p, q := make([]spec.Dist, b.k), make([]spec.Dist, b.k+1)
				var out spec.Outcome
				for len(sps) < len(ars) {
					n := len(sps)
					for t := range p {
						b.dist(b.p, sps, &p[t])
						sps = append(sps, b.rule.Draft(&p[t], &spec.DraftCoins{Uniforms: coins, Start: n}, n+t))
					}
					for t := range q {
						b.dist(b.q, sps[:n+t], &q[t])
					}
					if err := spec.Verify(b.rule, sps[n:], p, q, coins, n, &out); err != nil {
						t.Fatal(err)
					}
					sps = append(sps[:n+out.Accepted], out.Token)
					accepted, drafted = accepted+out.Accepted, drafted+b.k
				}
				if got, want := fmt.Sprint(sps[:len(ars)]), fmt.Sprint(ars); got != want {
					t.Errorf("%s, %s: row %d is %s, autoregressively %s", name, b.rule, row, got, want)
				}
			}
			if c.rule == "coupled" && c.seed == b.q.Seed && accepted != drafted {
				t.Errorf("%s: the target drafts for itself and %d of %d tokens are accepted", name, accepted, drafted)
			}
		}
	}
}

// TestAcceptanceIsTheOverlap checks Theorem 3.5 of Leviathan et al. through
// Verify: a drafted token is accepted with chance sum min(p, q), and the
// outcome's Overlap says so; match accepts with chance sum p q.
func TestAcceptanceIsTheOverlap(t *testing.T) {
	for rule, chance := range map[string]func(p, q *spec.Dist, x int32) float64{
		"rejection": func(p, q *spec.Dist, x int32) float64 { return min(p.Prob(x), q.Prob(x)) },
		"match":     func(p, q *spec.Dist, x int32) float64 { return p.Prob(x) * q.Prob(x) },
	} {
		b := newBench(t, spec.Sampling{Temperature: 1}, rule, 5, 1)
		var p, q spec.Dist
		b.dist(b.p, b.prompt, &p)
		b.dist(b.q, b.prompt, &q)
		var want, overlap float64
		for x := range int32(5) {
			want += chance(&p, &q, x)
		}
		law := spectest.Law(func(u *spectest.Coins) string {
			x := p.Sample(u.Uniform(spec.DraftCoin, 0))
			u.Note(x)
			var out spec.Outcome
			if err := spec.Verify(b.rule, []int32{x}, []spec.Dist{p}, []spec.Dist{q, q}, u, 0, &out); err != nil {
				t.Fatal(err)
			}
			overlap = out.Overlap[0]
			return fmt.Sprint(out.Accepted)
		})
		if math.Abs(law["1"]-want) > 1e-9 || want <= 0 || want >= 1 {
			t.Errorf("%s: accepted with chance %.12f, want %.12f", rule, law["1"], want)
		}
		if rule == "rejection" && math.Abs(overlap-want) > 1e-12 {
			t.Errorf("overlap %.15f, want %.15f", overlap, want)
		}
	}
}
