package mutants

import (
	"strings"
	"testing"

	"github.com/draftmill/draftmill/spec"
)

// mutant is the loop with one step replaced.
type mutant struct {
	name   string
	mutate func(s *steps)
}

// part makes a mutant of the verification.
func part(name string, change func(m *parts)) mutant {
	return mutant{name, func(s *steps) {
		m := soundParts()
		change(m)
		s.verify = m.verify
	}}
}

var mutants = []mutant{
	part("ratio inverted: accepts with p/q", func(m *parts) {
		m.accept = func(u, p, q float64) bool { return u*q < p }
	}),
	part("accepts whatever is likely enough, without a coin", func(m *parts) {
		m.accept = func(_, p, q float64) bool { return q >= p/2 }
	}),
	part("accepts when u <= q/p: a token with q = 0 at u = 0", func(m *parts) {
		m.accept = func(u, p, q float64) bool { return u*p <= q }
	}),
	part("accepts a drafted token with p = 0", func(m *parts) {
		check := m.check
		m.check = func(x int32, p, q *spec.Dist) error {
			if p.Prob(x) == 0 {
				return nil
			}
			return check(x, p, q)
		}
		m.accept = func(u, p, q float64) bool { return p == 0 || u < q/p }
	}),
	part("accepts what is not a number", func(m *parts) {
		m.check = func(int32, *spec.Dist, *spec.Dist) error { return nil }
		m.accept = func(u, p, q float64) bool { return !(u*p >= q) }
	}),
	part("leniency left on", func(m *parts) {
		m.accept = func(u, p, q float64) bool { return u*0.9*p < q }
	}),
	part("accept coin reused between positions", func(m *parts) {
		m.coin = func(u spec.Uniforms, n, _ int) float64 { return u.Uniform(spec.AcceptCoin, n) }
	}),
	part("accept coin reused for the residual", func(m *parts) {
		m.recoverCoin = m.coin
	}),
	part("last accept coin reused for the bonus token", func(m *parts) {
		m.bonusCoin = func(u spec.Uniforms, n, k int) float64 { return u.Uniform(spec.AcceptCoin, n+max(k-1, 0)) }
	}),
	part("draft coin reused for accepting", func(m *parts) {
		m.coin = func(u spec.Uniforms, n, t int) float64 {
			fresh := spec.DraftCoins{Uniforms: u, Start: n}
			return fresh.Uniform(spec.DraftCoin, n+t)
		}
	}),
	part("residual not normalized", func(m *parts) {
		m.recover = residual(func(p, q *spec.Dist, x int32) float64 { return q.Prob(x) - p.Prob(x) }, false)
	}),
	part("residual inverted: (p - q)+", func(m *parts) {
		m.recover = residual(func(p, q *spec.Dist, x int32) float64 { return p.Prob(x) - q.Prob(x) }, true)
	}),
	part("recovers from q instead of the residual", func(m *parts) {
		m.recover = func(_, q *spec.Dist, u float64) int32 { return q.Sample(u) }
	}),
	part("residual of unnormalized weights", func(m *parts) {
		m.recover = residual(func(p, q *spec.Dist, x int32) float64 { return float64(q.W[x]) - float64(p.W[x]) }, true)
	}),
	part("sparse residual aligned by index", func(m *parts) {
		m.recover = func(p, q *spec.Dist, u float64) int32 {
			ps, qs := support(p), support(q)
			weight := func(i int) float64 {
				w := q.Prob(qs[i])
				if i < len(ps) {
					w -= p.Prob(ps[i])
				}
				return w
			}
			return qs[invert(len(qs), weight, u, true)]
		}
	}),
	{"residual from q without top-k, top-p and temperature", func(s *steps) {
		s.verify = func(rows [][]float32, drafted []int32, p, q []spec.Dist, coins spec.Uniforms, n int, out *spec.Outcome) error {
			m := soundParts()
			m.recover = func(pt, qt *spec.Dist, u float64) int32 {
				for t := range rows {
					if qt == &q[t] {
						qt = unwarped(rows[t])
						break
					}
				}
				return spec.Residual(pt, qt, u)
			}
			return m.verify(rows, drafted, p, q, coins, n, out)
		}
	}},
	part("bonus token drawn from p", func(m *parts) {
		m.bonus = func(p, q []spec.Dist, u float64) int32 {
			if len(p) == 0 {
				return q[0].Sample(u)
			}
			return p[len(p)-1].Sample(u)
		}
	}),
	part("bonus token drawn from the row before", func(m *parts) {
		m.bonus = func(_, q []spec.Dist, u float64) int32 { return q[max(len(q)-2, 0)].Sample(u) }
	}),
	part("stale p row: that of the position before", func(m *parts) {
		m.row = func(t int) (p, q int) { return max(t-1, 0), t }
		m.check = lax(m.check)
	}),
	part("target rows shifted by one", func(m *parts) {
		m.row = func(t int) (p, q int) { return t, t + 1 }
	}),
	part("goes on after a rejection", func(m *parts) { m.stop = false }),
	{"bonus token skipped", func(s *steps) {
		emit := s.emit
		s.emit = func(drafted []int32, out *spec.Outcome) []int32 {
			tokens := emit(drafted, out)
			if out.Kind == spec.Bonus && len(drafted) > 0 {
				tokens = tokens[:len(drafted)]
			}
			return tokens
		}
	}},
	{"rejected token used", func(s *steps) {
		s.emit = func(drafted []int32, out *spec.Outcome) []int32 {
			if out.Kind == spec.Recovered {
				return drafted[:out.Accepted+1]
			}
			return append(drafted[:out.Accepted:out.Accepted], out.Token)
		}
	}},
	{"drafted tokens behind a rejection kept", func(s *steps) {
		s.emit = func(drafted []int32, out *spec.Outcome) []int32 {
			tokens := append(drafted[:out.Accepted:out.Accepted], out.Token)
			return append(tokens, drafted[min(out.Accepted+1, len(drafted)):]...)
		}
	}},
	// Drawing from an untruncated p and saying so would be lossless: the mistake
	// is to compare with another p than was drawn from.
	{"top-p on q only: p is reported without it", func(s *steps) {
		s.reported = func(_ *world, logits []float32, _ *spec.Dist) *spec.Dist { return unwarped(logits) }
	}},
	{"top-p on p only", func(s *steps) {
		s.scored = func(_ *world, logits []float32, _ *spec.Dist) *spec.Dist { return unwarped(logits) }
	}},
	{"drafts greedily and reports p", func(s *steps) {
		s.drawn = func(_ *world, logits []float32, p *spec.Dist) *spec.Dist {
			chain, err := spec.NewChain(spec.Sampling{}, len(logits), nil)
			if err != nil {
				panic(err)
			}
			var d spec.Dist
			if err := chain.Standardize(logits, nil, &d); err != nil {
				panic(err)
			}
			return &d
		}
	}},
	{"transformers issue 47932: draws with the default top-k, and returns p without it", func(s *steps) {
		s.drawn = func(_ *world, logits []float32, _ *spec.Dist) *spec.Dist {
			chain, err := spec.NewChain(spec.Sampling{Temperature: 1, TopK: 2}, len(logits), nil)
			if err != nil {
				panic(err)
			}
			var d spec.Dist
			if err := chain.Standardize(logits, nil, &d); err != nil {
				panic(err)
			}
			return &d
		}
	}},
	{vllmNoise, func(s *steps) {
		s.draw = func(p *spec.Dist, u spec.Uniforms, position int) int32 {
			x, _ := p.Race(u.Noise(position))
			return x
		}
		m := soundParts()
		var noise spec.Noise
		m.recoverCoin = func(u spec.Uniforms, n, t int) float64 {
			noise = u.Noise(n + t)
			return 0
		}
		m.recover = func(p, q *spec.Dist, _ float64) int32 {
			var r spec.Dist
			r.Reset(len(q.W))
			r.Sum = 0
			for x := range r.W {
				r.W[x] = float32(max(q.Prob(int32(x))-p.Prob(int32(x)), 0))
				r.Sum += float64(r.W[x])
			}
			x, _ := r.Race(noise)
			return x
		}
		s.verify = m.verify
	}},
	{"penalties ignore the drafted prefix", func(s *steps) {
		s.context = func(tokens []int32, n int, _ []int32) []int32 { return tokens[:n] }
	}},
	{"penalties remember rejected tokens", func(s *steps) {
		s.context = func(tokens []int32, _ int, ghosts []int32) []int32 {
			return append(tokens[:len(tokens):len(tokens)], ghosts...)
		}
	}},
	{"K chosen after seeing the draw: the last token is withdrawn if it is 0", func(s *steps) {
		s.withdraw = func(drafted []int32) int {
			if n := len(drafted); n > 0 && drafted[n-1] == 0 {
				return n - 1
			}
			return len(drafted)
		}
	}},
	{"re-seeded in every loop", func(s *steps) {
		s.coins = func(u spec.Uniforms, n int) spec.Uniforms { return reseeded{u, n} }
	}},
	{"position not advanced past every other token", func(s *steps) {
		s.coins = func(u spec.Uniforms, n int) spec.Uniforms { return reseeded{u, n % 2} }
	}},
}

// reseeded shifts positions.
type reseeded struct {
	spec.Uniforms
	by int
}

func (r reseeded) Uniform(purpose spec.Purpose, position int) float64 {
	return r.Uniforms.Uniform(purpose, position-r.by)
}

// lax lets a token pass to which the row gives nothing.
func lax(check func(int32, *spec.Dist, *spec.Dist) error) func(int32, *spec.Dist, *spec.Dist) error {
	return func(x int32, p, q *spec.Dist) error {
		if p.Prob(x) == 0 {
			return nil
		}
		return check(x, p, q)
	}
}

// residual draws from positive weights; where they are not normalized, as if
// they summed to one.
func residual(weight func(p, q *spec.Dist, x int32) float64, normalized bool) func(p, q *spec.Dist, u float64) int32 {
	return func(p, q *spec.Dist, u float64) int32 {
		return int32(invert(len(q.W), func(i int) float64 { return weight(p, q, int32(i)) }, u, normalized))
	}
}

func invert(n int, weight func(int) float64, u float64, normalized bool) int {
	mass, acc, last := 1.0, 0.0, 0
	if normalized {
		mass = 0
		for i := range n {
			mass += max(weight(i), 0)
		}
	}
	for i := range n {
		if w := weight(i); w > 0 {
			last = i
			if acc += w; acc > u*mass {
				break
			}
		}
	}
	return last
}

func support(d *spec.Dist) (ids []int32) {
	for x, w := range d.W {
		if w > 0 {
			ids = append(ids, int32(x))
		}
	}
	return ids
}

// vllmNoise is a mutant whose noise no integral goes over: only counts catch it.
const vllmNoise = "vLLM pull request 54282: the draft's Gumbel noise is used again in the residual"

// TestMutants: the sound loop, and the loop whose verification is put together
// from sound parts, pass every checker; every mutant is caught.
func TestMutants(t *testing.T) {
	for _, m := range []mutant{{"package spec itself", func(*steps) {}}, part("the parts that mutants are made from", func(*parts) {})} {
		t.Run(m.name, func(t *testing.T) {
			for _, c := range checkers {
				s := sound()
				m.mutate(s)
				if what := c.check(s); what != "" {
					t.Errorf("%s: %s", c.name, what)
				}
			}
		})
	}
	caught := make([][]string, len(mutants))
	t.Run("mutants", func(t *testing.T) {
		for i, m := range mutants {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				for _, c := range checkers {
					if m.name == vllmNoise && c.name != "chi-square" {
						continue
					}
					s := sound()
					m.mutate(s)
					if c.check(s) != "" {
						caught[i] = append(caught[i], c.name)
					}
				}
				if caught[i] == nil {
					t.Error("nothing catches it")
				}
			})
		}
	})
	var list strings.Builder
	for i, m := range mutants {
		list.WriteString("\n  " + m.name + "\n      caught by: " + strings.Join(caught[i], "; "))
	}
	t.Logf("%d mutants, %d checkers%s", len(mutants), len(checkers), list.String())
}
