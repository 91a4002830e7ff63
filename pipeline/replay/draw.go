package replay

import (
	"cmp"
	"math"
	"slices"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
)

// source is where one of the two distributions of a position comes from, and the
// distribution: of the target, or of what drafts.
type source struct {
	model      *follower    // nil: law
	law        spec.Drafter // nil: model
	chain      *spec.Chain
	less, more *spec.Chain // truncate by a tie's distance more and less; nil likewise
	plain      *spec.Chain // does not truncate; nil likewise
	d, other   spec.Dist
	logits     []float32 // that d was made of; nil without a model
	prefix     []int32
	input      int // tokens that an encoder reads, at which chains do not look
}

func newSource(model engine.Decoder, law spec.Drafter, s spec.Sampling, vocab int, eos []int32, tie float64) (*source, error) {
	chain, err := spec.NewChain(s, vocab, eos)
	if err != nil {
		return nil, err
	}
	f := &source{law: law, chain: chain}
	if model == nil {
		return f, nil
	}
	if !s.Greedy() && (s.TopK > 0 || s.TopP > 0 && s.TopP < 1 || s.MinP > 0) {
		none := s
		none.TopK, none.TopP, none.MinP = 0, 0, 0
		if f.plain, err = spec.NewChain(none, vocab, eos); err != nil {
			return nil, err
		}
		for by, c := range map[float64]**spec.Chain{-tie: &f.less, tie: &f.more} {
			near := s
			near.MinP = min(1, s.MinP*math.Exp(-by))
			if s.TopP > 0 {
				near.TopP = max(1e-9, min(1, s.TopP+2*by))
			}
			if *c, err = spec.NewChain(near, vocab, eos); err != nil {
				return nil, err
			}
		}
	}
	f.model, err = newFollower(model)
	return f, err
}

func (f *source) free() {
	if f.model != nil {
		f.model.free()
	}
}

func (f *source) begin(prompt []int32, input int) error {
	f.input = input
	if f.model != nil {
		f.model.begin(input)
	}
	for _, c := range []*spec.Chain{f.less, f.more, f.plain, f.chain} {
		if c == nil {
			continue
		}
		if err := c.Begin(prompt[input:]); err != nil {
			return err
		}
	}
	return nil
}

// at makes the distribution of the token after prefix; logits are the model's
// for it. It reports false where there is none to draft from.
func (f *source) at(logits []float32, prefix []int32) (bool, error) {
	f.logits, f.prefix = logits, prefix[f.input:]
	if f.model == nil {
		return f.law.Law(prefix, func(logits []float32, prefix []int32, d *spec.Dist) error {
			return f.chain.Standardize(logits, prefix[f.input:], d)
		}, &f.d)
	}
	return true, f.chain.Standardize(logits, f.prefix, &f.d)
}

// mostCuts is how many places of a truncation are tried where it may have fallen.
const mostCuts = 64

// near calls try with the distribution, and until try likes one with those that
// its truncation might have left had the model been off by a tie. They are the
// most probable tokens, so many of them as remain where top-p and min-p are a
// little smaller, up to as many as remain where they are a little larger and equals
// are within a tie, and the same with x, which is asked about, in place of one that
// is about as probable. It reports whether try liked one.
func (f *source) near(tie float64, x int32, try func(*spec.Dist) bool) bool {
	if try(&f.d) {
		return true
	}
	if f.plain == nil {
		return false
	}
	var cuts []int
	for _, c := range []*spec.Chain{f.less, f.more} {
		if c.Standardize(f.logits, f.prefix, &f.other) != nil {
			return false
		}
		n := 0
		for _, w := range f.other.W {
			if w > 0 {
				n++
			}
		}
		cuts = append(cuts, n)
	}
	if f.plain.Standardize(f.logits, f.prefix, &f.other) != nil {
		return false
	}
	w := f.other.W
	order := make([]int32, len(w))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(w[b], w[a]) })
	from, to := cuts[0], cuts[1]
	for edge := float64(w[order[from-1]]) * math.Exp(tie); from > 1 && float64(w[order[from-2]]) <= edge; {
		from--
	}
	for edge := float64(w[order[to-1]]) * math.Exp(-tie); to < len(w) && float64(w[order[to]]) >= edge; {
		to++
	}
	for n := from; n <= to; n += 1 + (to-from)/mostCuts {
		kept := order[:n]
		if try(only(w, kept)) {
			return true
		}
		if last := order[n-1]; int(x) < len(w) && !slices.Contains(kept, x) && float64(w[x]) >= float64(w[last])*math.Exp(-2*tie) {
			if try(only(w, append(slices.Clone(kept[:n-1]), x))) {
				return true
			}
		}
	}
	return false
}

// only is the distribution of some tokens of a larger one.
func only(w []float32, ids []int32) *spec.Dist {
	d := &spec.Dist{W: make([]float32, len(w))}
	for _, x := range ids {
		d.W[x] = w[x]
		d.Sum += float64(w[x])
	}
	return d
}

// distance is how far the distribution, or its truncation, is from giving x by
// this draw.
func (f *source) distance(tie float64, how draw, x int32) float64 {
	nearest := math.Inf(1)
	f.near(tie, x, func(d *spec.Dist) bool {
		nearest = min(nearest, how.distance(d, x))
		return nearest <= tie
	})
	return nearest
}

// draw is the number that a token is drawn with: the noise of its position, or a
// uniform.
type draw struct {
	noise *spec.Noise // nil: u
	u     float64
}

// draws says how a rule draws at a position, for a purpose.
func draws(rule spec.Rule, coins spec.Uniforms, purpose spec.Purpose, position int) draw {
	if !rule.Replays() { // coupled
		n := coins.Noise(position)
		return draw{noise: &n}
	}
	return draw{u: coins.Uniform(purpose, position)}
}

// from is the token drawn from d.
func (h draw) from(d *spec.Dist) int32 {
	if h.noise != nil {
		x, _ := d.Race(*h.noise)
		return x
	}
	return d.Sample(h.u)
}

// distance is how far log-probabilities (at temperature 0, logits) have to be off
// for the draw from d to be x: 0 where it is, infinity where it cannot be.
func (h draw) distance(d *spec.Dist, x int32) float64 {
	if x < 0 || int(x) >= len(d.W) {
		return math.Inf(1)
	}
	y := h.from(d)
	if x == y {
		return 0
	}
	if gap := -math.Log(d.Unadjusted(x)); !math.IsNaN(gap) { // temperature 0
		return gap
	}
	switch {
	case d.W[x] <= 0:
		return math.Inf(1)
	case h.noise != nil:
		return math.Log(h.noise.At(x)/float64(d.W[x])) - math.Log(h.noise.At(y)/float64(d.W[y]))
	}
	return outside(h.u, d.Below(x), d.Prob(x))
}

// residualDistance is the same of a recovered token, drawn from (q - p)+ at u.
func residualDistance(p, q *spec.Dist, u float64, x int32) float64 {
	switch {
	case x < 0 || int(x) >= len(q.W):
		return math.Inf(1)
	case spec.Residual(p, q, u) == x:
		return 0
	}
	var below, mass float64
	for y := range int32(len(q.W)) {
		w := max(0, q.Prob(y)-p.Prob(y))
		if y < x {
			below += w
		}
		mass += w
	}
	if w := q.Prob(x) - p.Prob(x); w > 0 {
		return outside(u*mass, below, w)
	}
	return math.Inf(1)
}

// outside is how far u lies from an interval.
func outside(u, from, length float64) float64 { return max(0, from-u, u-(from+length)) }

// apart is how far two probabilities are from each other, as logarithms.
func apart(a, b float64) float64 {
	if a == b {
		return 0
	}
	return math.Abs(math.Log(a) - math.Log(b))
}
