package pipeline

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/draftmill/draftmill/spec"
)

// drafter proposes what the target then verifies. Each way of drafting is one:
// a draft model, a law without a model, and a draft model that is itself
// accelerated by such a law.
type drafter interface {
	// room is how many tokens can be drafted behind n.
	room(n int) int
	// lag is how many of n tokens are to be fed before drafting behind them.
	lag(n int) int
	// catchUp feeds what is missing of tokens.
	catchUp(ctx context.Context, tokens []int32) error
	// step drafts some tokens, at most most of them; none when there is
	// nothing to propose.
	step(ctx context.Context, d *proposal, most int) error
	// rollback forgets all but the first n tokens.
	rollback(n int)
	free()
}

// newDrafter makes the pair's drafter; nil when it has none.
func newDrafter(pair Pair, k int) (drafter, error) {
	switch {
	case pair.Draft == nil && pair.Law == nil:
		return nil, nil
	case pair.Draft == nil:
		return lawDrafter{pair.Law}, nil
	}
	if pair.Draft.Vocab() != pair.Target.Vocab() {
		return nil, fmt.Errorf("pair the models: the draft's vocabulary has %d tokens, the target's %d; choose a draft of the target's family", pair.Draft.Vocab(), pair.Target.Vocab())
	}
	c, err := newCache(pair.Draft)
	if err != nil {
		return nil, fmt.Errorf("allocate the draft's cache: %w", err)
	}
	if pair.Law == nil {
		return modelDrafter{c}, nil
	}
	return &nestedDrafter{modelDrafter: modelDrafter{c}, law: pair.Law, p: make([]spec.Dist, min(k, innerLookahead))}, nil
}

// proposal is what one loop has drafted so far: tokens behind the sequence and
// the law that each was drawn from.
type proposal struct {
	tokens []int32 // the sequence, then x~_1, x~_2, ..
	start  int     // where x~_1 stands
	p      []spec.Dist

	coins       spec.DraftCoins
	standardize spec.Standardizer
	bare        bool    // confidence is asked for where p is one-hot
	least       float64 // the least probability of a token of this step

	loop  *Loop
	watch *stopwatch
}

// drafted is how many tokens there are.
func (d *proposal) drafted() int { return len(d.tokens) - d.start }

// law is the distribution that the next token is to be drawn from.
func (d *proposal) law() *spec.Dist { return &d.p[d.drafted()] }

// draw draws the next token from its law.
func (d *proposal) draw() (x int32) {
	p := d.law()
	x = p.Sample(d.coins.Uniform(spec.DraftCoin, len(d.tokens)))
	d.least = min(d.least, p.Prob(x))
	d.tokens = append(d.tokens, x)
	return x
}

// sure notes how probable a model's logits make the token x, where p does not
// tell: greedy decoding makes it one-hot.
func (d *proposal) sure(logits []float32, x int32) {
	if d.bare {
		d.least = min(d.least, softmaxAt(logits, x))
	}
}

// softmaxAt is the probability of token x, the largest of the logits.
func softmaxAt(logits []float32, x int32) float64 {
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l - logits[x]))
	}
	return 1 / sum
}

// modelDrafter drafts with a model: x~_t ~ p(x | x_1 .. x_n, x~_1 .. x~_t-1).
type modelDrafter struct{ cache *cache }

func (m modelDrafter) room(n int) int { return m.cache.model.Context() - n }
func (m modelDrafter) rollback(n int) { m.cache.truncate(n) }
func (m modelDrafter) free()          { m.cache.free() }

// rideAlong is how many missing tokens the first drafting step may feed
// besides its own, at next to no cost.
const rideAlong = 8

func (m modelDrafter) lag(n int) int {
	if missing := n - 1 - m.cache.held; missing > rideAlong && n <= m.cache.model.Context() {
		return missing
	}
	return 0
}

func (m modelDrafter) catchUp(ctx context.Context, tokens []int32) error {
	if len(tokens) > m.cache.model.Context() {
		return nil // it will not draft behind them either
	}
	return m.cache.fill(ctx, tokens[:len(tokens)-1])
}

func (m modelDrafter) step(ctx context.Context, d *proposal, _ int) error {
	logits, err := m.cache.last(ctx, d.tokens, 1, d.drafted() == 0)
	if err != nil {
		return err
	}
	d.watch.lap(&d.loop.Draft)
	if err := d.standardize(logits, d.tokens, d.law()); err != nil {
		return rowError{err}
	}
	d.sure(logits, d.draw())
	d.watch.lap(&d.loop.Sample)
	return nil
}

// lawDrafter drafts with a law that needs no model.
type lawDrafter struct{ law spec.Drafter }

func (lawDrafter) room(int) int                           { return math.MaxInt32 }
func (lawDrafter) lag(int) int                            { return 0 }
func (lawDrafter) catchUp(context.Context, []int32) error { return nil }
func (lawDrafter) rollback(int)                           {}
func (lawDrafter) free()                                  {}

func (t lawDrafter) step(_ context.Context, d *proposal, _ int) error {
	ok, err := t.law.Law(d.tokens, d.standardize, d.law())
	if err != nil {
		return rowError{err}
	}
	if ok {
		d.draw()
	}
	d.watch.lap(&d.loop.Draft)
	return nil
}

// stopwatch attributes the time since its last lap.
type stopwatch struct {
	now  func() time.Time
	last time.Time
}

func (w *stopwatch) lap(to *time.Duration) {
	now := w.now()
	*to += now.Sub(w.last)
	w.last = now
}
