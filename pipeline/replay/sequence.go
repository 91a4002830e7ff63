package replay

import (
	"fmt"
	"math"
	"slices"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/verify"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// walk is one sequence on its way through the models.
type walk struct {
	*run
	s      *verify.Sequence
	n      *Mode
	coins  spec.Coins
	prompt int
	tokens []int32 // prompt and all that the loops decided
}

// sequence holds one sequence against the models. Its prompt has been read.
func (r *run) sequence(s *verify.Sequence) error {
	c, n := &s.Completion, r.mode(s.Mode)
	n.Completions++
	switch {
	case r.bad != nil && c.FinishReason != storage.FinishError:
		return s.Fail("its prompt cannot be decoded: %v", r.bad)
	case r.bad != nil && c.Error != r.bad.Error():
		return s.Fail("its error is %q, the dataset's row gives %q", c.Error, r.bad)
	case r.bad != nil:
		n.Errors++
		return nil
	case int(c.PromptTokens) != len(r.prompt):
		return s.Fail("its prompt has %d tokens, the dataset's row gives %d", c.PromptTokens, len(r.prompt))
	}
	if r.job.Beams != nil {
		return r.searched(s, n)
	}
	limit := min(r.job.MaxNewTokens, r.options.Pair.Room(r.prompt, r.context))
	if length := c.FinishReason == storage.FinishLength; len(c.Tokens) > limit || length && len(c.Tokens) != limit {
		return s.Fail("it has %d tokens and ended by %s, where job and target allow %d", len(c.Tokens), c.FinishReason, limit)
	}
	w := &walk{
		run: r, s: s, n: n, prompt: len(r.prompt), tokens: slices.Clone(r.prompt),
		coins: spec.Coins{Seed: r.job.Seed, Row: uint64(c.Row), Sample: uint32(c.Sample)},
	}
	for _, f := range []*source{r.q, r.p} {
		if f == nil {
			continue
		}
		if err := f.begin(r.prompt, r.options.Pair.Input(r.prompt)); err != nil {
			return w.failed(err)
		}
	}
	for i := range s.Loops {
		w.tokens = append(w.tokens, s.Loops[i].Decided()...)
	}
	n.Tokens += int64(len(c.Tokens))
	if err := w.loops(); err != nil {
		return err
	}
	if c.FinishReason == storage.FinishError {
		return w.goOn()
	}
	return nil
}

// loops takes the loops through the models, as many positions a pass as there is
// memory for.
func (w *walk) loops() error {
	var q, p []float32
	vocab := w.options.Pair.Target.Vocab()
	from, to := w.prompt, w.prompt // of the rows in q and p
	row := func(logits []float32, at int) []float32 {
		if logits = logits[min(len(logits), (at-from)*vocab):]; len(logits) == 0 {
			return nil
		}
		return logits[:vocab]
	}
	for i := range w.s.Loops {
		l := &w.s.Loops[i]
		for t := range int(l.Accepted) + 1 {
			at := int(l.Position) + t
			if at >= to {
				var err error
				from, to = at, min(at+w.q.model.most(), len(w.tokens))
				if q, err = w.q.model.rows(w.ctx, w.tokens, from, to); err != nil {
					return err
				}
				p = nil
				if w.s.Mode == pipeline.SpS && w.p != nil && w.p.model != nil && at <= w.p.model.model.Context() {
					if p, err = w.p.model.rows(w.ctx, w.tokens, from, min(to, w.p.model.model.Context()+1)); err != nil {
						return err
					}
				}
			}
			if err := w.decide(l, t, row(q, at), row(p, at)); err != nil {
				return err
			}
		}
	}
	return nil
}

// decide holds one decided token against the models: the t-th of a loop, of which
// the target's logits are at hand, and the draft's where they are wanted.
func (w *walk) decide(l *storage.Loop, t int, target, draft []float32) error {
	at := int(l.Position) + t
	x, prefix := w.tokens[at], w.tokens[:at]
	if _, err := w.q.at(target, prefix); err != nil {
		return w.fail(l, t, "the target has no distribution: %v", err)
	}
	greedy, examined, accepted := w.job.Sampling.Greedy(), t < len(l.Drafted), t < int(l.Accepted)
	// The target draws the token, whatever was drafted.
	own := !examined || w.rule.Invariant() || greedy && (!w.rule.Lossy() || !accepted)
	if own {
		how := draws(w.rule, w.coins, spec.BonusCoin, at)
		if err := w.hold(l, t, how.from(&w.q.d), x, w.q.distance(w.options.Tie, how, x), w.options.Tie); err != nil {
			return err
		}
	}
	known := false // whether p is
	if examined {
		var err error
		if known, err = w.drafted(l, t, draft, prefix); err != nil {
			return err
		}
		if !own {
			if err := w.judge(l, t, known); err != nil {
				return err
			}
		}
	}
	if at-w.prompt < len(w.s.Completion.Tokens) {
		if own || known && w.redraws {
			w.n.Drawn++
		} else {
			w.n.Believed++
		}
	}
	return nil
}

// drafted holds the numbers of an examined token against the models, and the
// token itself where p is known.
func (w *walk) drafted(l *storage.Loop, t int, draft []float32, prefix []int32) (known bool, err error) {
	x, tie := l.Drafted[t], w.options.Tie
	if int(x) >= len(w.q.d.W) {
		return false, w.fail(l, t, "it is %d, the vocabulary has %d", x, len(w.q.d.W))
	}
	plain := !w.job.Sampling.Greedy() // else p and q are 0 or 1, and what decides is held to be the target's
	switch {
	case plain && !w.q.near(tie, x, func(q *spec.Dist) bool {
		return apart(q.Prob(x), l.Q[t]) <= 2*tie && (len(l.Below) == 0 || math.Abs(q.Below(x)-l.Below[t]) <= 2*tie)
	}):
		return false, w.fail(l, t, "its q is %v, the target gives %v", l.Q[t], w.q.d.Prob(x))
	case !plain && w.rule.Lossy() && apart(w.q.d.Unadjusted(x), l.Q[t]) > 2*tie:
		return false, w.fail(l, t, "its q is %v, the target gives %v", l.Q[t], w.q.d.Unadjusted(x))
	case w.p == nil || w.p.model != nil && draft == nil:
		return false, nil
	}
	at := int(l.Position) + t
	if some, err := w.p.at(draft, prefix); err != nil || !some {
		return false, w.fail(l, t, "nothing drafts there (%v)", err)
	}
	if plain && !w.p.near(tie, x, func(p *spec.Dist) bool { return apart(p.Prob(x), l.P[t]) <= 2*tie }) {
		return false, w.fail(l, t, "its p is %v, the draft gives %v", l.P[t], w.p.d.Prob(x))
	}
	if plain && !w.q.near(tie, x, func(q *spec.Dist) bool {
		return w.p.near(tie, x, func(p *spec.Dist) bool { return math.Abs(spec.Overlap(p, q)-l.Overlap[t]) <= 2*tie })
	}) {
		return false, w.fail(l, t, "its overlap is %v, the models give %v", l.Overlap[t], spec.Overlap(&w.p.d, &w.q.d))
	}
	if w.redraws {
		how := draws(w.rule, &spec.DraftCoins{Uniforms: w.coins, Start: int(l.Position)}, spec.DraftCoin, at)
		if far := w.p.distance(tie, how, x); far > tie {
			return false, w.fail(l, t, "it is %d, the draft draws %d", x, how.from(&w.p.d))
		}
	}
	return true, nil
}

// judge decides over an examined token again, by the target's q, and by the p of
// what drafts where it is known, else of the log.
func (w *walk) judge(l *storage.Loop, t int, known bool) error {
	at, x, tie := int(l.Position)+t, l.Drafted[t], 2*w.options.Tie
	u, greedy, accepted := w.coins.Uniform(spec.AcceptCoin, at), w.job.Sampling.Greedy(), t < int(l.Accepted)
	far := math.Inf(1)
	judged := func(p, q float64) bool {
		switch {
		case w.rule.Accept(u, p, q, 0) == accepted:
			far = 0
		case greedy: // lenient
			far = min(far, apart(w.rule.Factor(), q))
		default:
			far = min(far, apart(u*w.rule.Factor()*p, q))
		}
		return far <= tie
	}
	w.q.near(w.options.Tie, x, func(q *spec.Dist) bool {
		switch {
		case greedy:
			return judged(l.P[t], q.Unadjusted(x))
		case !known:
			return judged(l.P[t], q.Prob(x))
		}
		return w.p.near(w.options.Tie, x, func(p *spec.Dist) bool { return judged(p.Prob(x), q.Prob(x)) })
	})
	if far > tie {
		return w.fail(l, t, "accepted is %v; its coin %v, p and q do not say so", accepted, u)
	}
	if far > 0 {
		w.tie(l, t, "accepted or not", far)
	}
	if accepted {
		return nil
	}
	y := w.tokens[at]
	if !known {
		if !w.q.near(tie, y, func(q *spec.Dist) bool { return int(y) < len(q.W) && q.W[y] > 0 }) {
			return w.fail(l, t, "token %d is recovered, which the target cannot draw", y)
		}
		return nil
	}
	u = w.coins.Uniform(spec.ResidualCoin, at)
	far = math.Inf(1)
	w.q.near(w.options.Tie, y, func(q *spec.Dist) bool {
		return w.p.near(w.options.Tie, y, func(p *spec.Dist) bool {
			far = min(far, residualDistance(p, q, u, y))
			return far <= tie
		})
	})
	return w.hold(l, t, spec.Residual(&w.p.d, &w.q.d, u), y, far, tie)
}

// hold takes a token x of the log where the models draw y. far is how far they are
// from drawing x.
func (w *walk) hold(l *storage.Loop, t int, y, x int32, far, tie float64) error {
	if far > tie {
		return w.fail(l, t, "it is %d, the target draws %d; its logarithms of probabilities would have to be off by %.3g", x, y, far)
	}
	if x != y {
		w.tie(l, t, fmt.Sprintf("%d in place of %d", x, y), far)
	}
	return nil
}

func (w *walk) tie(l *storage.Loop, t int, what string, far float64) {
	w.n.Ties++
	if len(w.counts.Ties) == MaxTies {
		return
	}
	v := Tie{w.s.Mode, l.Row, l.RowID, l.Sample, int(l.Position) + t - w.prompt, what, far, nil}
	if t < len(l.Margins) && !math.IsInf(l.Margins[t], 1) {
		v.Margin = &l.Margins[t]
	}
	w.counts.Ties = append(w.counts.Ties, v)
}

// goOn looks at a sequence that is said to have failed behind its tokens: the
// target has to fail there too, in the loop that was not logged. What that loop
// drafted is not known; the target's own tokens stand in for it.
func (w *walk) goOn() error {
	steps := 1
	if w.s.Mode == pipeline.SpS {
		steps += w.job.K
	}
	for range steps {
		at := len(w.tokens)
		if at >= w.context {
			break
		}
		for _, f := range []*source{w.q, w.p} {
			if f == nil || f.model == nil || f == w.p && (w.s.Mode == pipeline.ArS || at > f.model.model.Context()) {
				continue
			}
			logits, err := f.model.rows(w.ctx, w.tokens, at, at+1)
			if err != nil {
				return err
			}
			if _, err := f.at(logits, w.tokens); err != nil {
				w.n.Errors++
				return nil
			}
		}
		w.tokens = append(w.tokens, draws(w.rule, w.coins, spec.BonusCoin, at).from(&w.q.d))
	}
	return w.s.Fail("it is said to have failed (%s) behind %d tokens; the target goes on there", w.s.Completion.Error, len(w.s.Completion.Tokens))
}

// failed takes an error that the models give for the prompt.
func (w *walk) failed(err error) error {
	if w.s.Completion.FinishReason == storage.FinishError {
		w.n.Errors++
		return nil
	}
	return w.s.Fail("its prompt cannot be decoded: %v", err)
}

// fail is a Failure at the t-th decided token of a loop.
func (w *walk) fail(l *storage.Loop, t int, format string, args ...any) *verify.Failure {
	f := w.s.Fail("token %d of the completion (drafted token %d): %s", int(l.Position)+t-w.prompt, t, fmt.Sprintf(format, args...))
	if t >= len(l.Drafted) {
		f.What = fmt.Sprintf("token %d of the completion: %s", int(l.Position)+t-w.prompt, fmt.Sprintf(format, args...))
	}
	f.Loop = l.Loop
	return f
}
