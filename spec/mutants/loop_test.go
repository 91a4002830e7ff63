package mutants

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// world is what a loop decodes in: two models and a sampling.
type world struct {
	target, draft *spectest.Model
	sampling      spec.Sampling
	prompt        []int32
	k             int
}

func newWorld(vocab, k int, s spec.Sampling) *world {
	return &world{
		target: &spectest.Model{Vocab: vocab, Seed: 21}, draft: &spectest.Model{Vocab: vocab, Seed: 33},
		sampling: s, prompt: []int32{1, 0}, k: k,
	}
}

// steps are those of a decode loop. sound runs package spec; a mutant replaces
// one.
type steps struct {
	// context is the sequence that the chain is shown for a row: n tokens are
	// kept, the rest is drafted, and ghosts were drafted and rejected before.
	context func(tokens []int32, n int, ghosts []int32) []int32
	// drawn turns the standardized law of the draft into the one that a token
	// is drawn from, and reported into the one that is said to be it. Both see
	// the logits.
	drawn, reported func(w *world, logits []float32, p *spec.Dist) *spec.Dist
	// draw draws a drafted token.
	draw func(p *spec.Dist, u spec.Uniforms, position int) int32
	// scored does so with the target's.
	scored func(w *world, logits []float32, q *spec.Dist) *spec.Dist
	// withdraw is how many of the drafted tokens are verified.
	withdraw func(drafted []int32) int
	verify   verifier
	// coins are those of the loop that begins at position n.
	coins func(u spec.Uniforms, n int) spec.Uniforms
	// emit is what a loop adds to the sequence.
	emit func(drafted []int32, out *spec.Outcome) []int32
}

// A verifier also sees the target's logits, which only a mutant looks at.
type verifier func(rows [][]float32, drafted []int32, p, q []spec.Dist, coins spec.Uniforms, n int, out *spec.Outcome) error

func same(_ *world, _ []float32, d *spec.Dist) *spec.Dist { return d }

func sound() *steps {
	return &steps{
		context:  func(tokens []int32, _ int, _ []int32) []int32 { return tokens },
		drawn:    same,
		draw:     func(p *spec.Dist, u spec.Uniforms, position int) int32 { return spec.Rejection.Draft(p, u, position) },
		reported: same,
		scored:   same,
		withdraw: func(drafted []int32) int { return len(drafted) },
		verify: func(_ [][]float32, drafted []int32, p, q []spec.Dist, coins spec.Uniforms, n int, out *spec.Outcome) error {
			return spec.Verify(spec.Rejection, drafted, p, q, coins, n, out)
		},
		coins: func(u spec.Uniforms, _ int) spec.Uniforms { return u },
		emit: func(drafted []int32, out *spec.Outcome) []int32 {
			return append(slices.Clone(drafted[:out.Accepted]), out.Token)
		},
	}
}

// round is what one loop did, for those who watch.
type round struct {
	n       int // where it began
	drafted []int32
	out     *spec.Outcome
	tokens  int // added
}

// decode extends the prompt by tokens, and calls watch after every loop; it is
// Algorithm 2 as the decode loop of package pipeline has it.
func (w *world) decode(s *steps, coins spec.Uniforms, length int, note func(...any), watch func(round)) ([]int32, error) {
	chain, err := spec.NewChain(w.sampling, w.target.Vocab, nil)
	if err != nil {
		return nil, err
	}
	if err := chain.Begin(w.prompt); err != nil {
		return nil, err
	}
	tokens, ghosts := slices.Clone(w.prompt), []int32(nil)
	end := len(tokens) + length
	for len(tokens) < end {
		n := len(tokens)
		k := min(w.k, end-n-1)
		u := s.coins(coins, n)
		fresh := &spec.DraftCoins{Uniforms: u, Start: n}
		p, q := make([]spec.Dist, k), make([]spec.Dist, k+1)
		for t := range p {
			logits := w.draft.Logits(tokens)
			if err := chain.Standardize(logits, s.context(tokens, n, ghosts), &p[t]); err != nil {
				return nil, err
			}
			x := s.draw(s.drawn(w, logits, &p[t]), fresh, n+t)
			p[t] = *s.reported(w, logits, &p[t])
			tokens = append(tokens, x)
			note(spectest.Key(tokens))
		}
		k = s.withdraw(tokens[n:])
		tokens, p, q = tokens[:n+k], p[:k], q[:k+1]
		rows := make([][]float32, k+1)
		for t := range q {
			logits := w.target.Logits(tokens[:n+t])
			rows[t] = logits
			if err := chain.Standardize(logits, s.context(tokens[:n+t], n, ghosts), &q[t]); err != nil {
				return nil, err
			}
			q[t] = *s.scored(w, logits, &q[t])
		}
		var out spec.Outcome
		drafted := slices.Clone(tokens[n:])
		if err := s.verify(rows, drafted, p, q, u, n, &out); err != nil {
			return nil, err
		}
		added := s.emit(drafted, &out)
		added = added[:min(len(added), end-n)]
		ghosts = append(ghosts, drafted[out.Accepted:]...)
		tokens = append(tokens[:n], added...)
		note(spectest.Key(tokens))
		watch(round{n, drafted, &out, len(added)})
	}
	return tokens[len(w.prompt):], nil
}

// unwarped is the softmax of the logits at temperature 1.
func unwarped(logits []float32) *spec.Dist {
	chain, err := spec.NewChain(spec.Sampling{Temperature: 1}, len(logits), nil)
	if err != nil {
		panic(err)
	}
	var d spec.Dist
	if err := chain.Standardize(logits, nil, &d); err != nil {
		panic(err)
	}
	return &d
}

// parts are those of a verification. A mutant replaces one.
type parts struct {
	check  func(x int32, p, q *spec.Dist) error
	accept func(u, p, q float64) bool
	// coin is the accept coin of the t-th drafted token.
	coin func(u spec.Uniforms, n, t int) float64
	// row is which of the draft's and of the target's rows the t-th drafted
	// token is compared with.
	row func(t int) (p, q int)
	// recover draws the token in place of the t-th, at a coin.
	recover     func(p, q *spec.Dist, u float64) int32
	recoverCoin func(u spec.Uniforms, n, t int) float64
	bonus       func(p, q []spec.Dist, u float64) int32
	bonusCoin   func(u spec.Uniforms, n, k int) float64
	// stop ends the loop at a rejection.
	stop bool
}

func soundParts() *parts {
	return &parts{
		check: func(x int32, p, q *spec.Dist) error {
			var out spec.Outcome // of a loop that is thrown away
			return spec.Verify(spec.Rejection, []int32{x}, []spec.Dist{*p}, []spec.Dist{*q, *q}, spec.Coins{}, 0, &out)
		},
		accept:      spec.Accept,
		coin:        func(u spec.Uniforms, n, t int) float64 { return u.Uniform(spec.AcceptCoin, n+t) },
		row:         func(t int) (p, q int) { return t, t },
		recover:     spec.Residual,
		recoverCoin: func(u spec.Uniforms, n, t int) float64 { return u.Uniform(spec.ResidualCoin, n+t) },
		bonus:       func(_, q []spec.Dist, u float64) int32 { return q[len(q)-1].Sample(u) },
		bonusCoin:   func(u spec.Uniforms, n, k int) float64 { return u.Uniform(spec.BonusCoin, n+k) },
		stop:        true,
	}
}

// verify is spec.Verify, put together from the parts.
func (m *parts) verify(_ [][]float32, drafted []int32, p, q []spec.Dist, coins spec.Uniforms, n int, out *spec.Outcome) error {
	*out = spec.Outcome{}
	for t, x := range drafted {
		i, j := m.row(t)
		if err := m.check(x, &p[i], &q[j]); err != nil {
			return err
		}
		out.P, out.Q = append(out.P, p[i].Prob(x)), append(out.Q, q[j].Prob(x))
		out.Overlap = append(out.Overlap, spec.Overlap(&p[i], &q[j]))
	}
	for t := range drafted {
		u := m.coin(coins, n, t)
		out.Coins = append(out.Coins, u)
		if m.accept(u, out.P[t], out.Q[t]) {
			out.Accepted++
			continue
		}
		if !m.stop {
			continue
		}
		i, j := m.row(t)
		out.Kind, out.Token = spec.Recovered, m.recover(&p[i], &q[j], m.recoverCoin(coins, n, t))
		return nil
	}
	out.Kind, out.Token = spec.Bonus, m.bonus(p, q, m.bonusCoin(coins, n, len(drafted)))
	return nil
}

// TestPartsAreVerify: the verification that mutants are made from is the
// production one, decision by decision, so that a mutant differs from it in its
// one part alone.
func TestPartsAreVerify(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for row := range uint64(3000) {
		const k, vocab = 3, 6
		p, q := make([]spec.Dist, k), make([]spec.Dist, k+1)
		for i := range 2*k + 1 {
			d := &spec.Dist{W: make([]float32, vocab)}
			for x := range d.W {
				if r.IntN(3) > 0 {
					d.W[x] = r.Float32()
				}
			}
			d.W[r.IntN(vocab)] += 0.1
			for _, w := range d.W {
				d.Sum += float64(w)
			}
			if i < k {
				p[i] = *d
			} else {
				q[i-k] = *d
			}
		}
		coins := spec.Coins{Row: row}
		drafted := make([]int32, k)
		for i := range drafted {
			drafted[i] = p[i].Sample(r.Float64())
		}
		var got, want spec.Outcome
		if err := soundParts().verify(nil, drafted, p, q, coins, 9, &got); err != nil {
			t.Fatal(err)
		}
		if err := spec.Verify(spec.Rejection, drafted, p, q, coins, 9, &want); err != nil {
			t.Fatal(err)
		}
		if got.Accepted != want.Accepted || got.Token != want.Token || got.Kind != want.Kind || !slices.Equal(got.Coins, want.Coins) {
			t.Fatalf("row %d: %+v, spec.Verify %+v", row, got, want)
		}
	}
}
