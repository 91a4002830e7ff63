package engine

import (
	"context"
	"math"

	"github.com/draftmill/draftmill/spec"
)

// drafter proposes what the target then verifies, for the sequence of one lane.
// Each way of drafting is one: a draft model, a law without a model, and a draft
// model that is itself accelerated by such a law.
//
// The lanes of a batch draft in step: everyone puts into one pass of the draft
// model what it has to be fed, and draws from what comes out.
type drafter interface {
	// room is how many tokens can be drafted behind n.
	room(n int) int
	// lag is how many of n tokens are to be fed before drafting behind them.
	lag(n int) int
	// catchUp feeds what is missing of tokens.
	catchUp(ctx context.Context, tokens []int32) error
	// feed begins a step of at most most tokens and puts what has to be fed for
	// it into the pass.
	feed(d *proposal, most int, p *pass) error
	// draw ends the step: it drafts some tokens, none when there is nothing to
	// propose.
	draw(d *proposal) error
	// least is how many tokens the passes of drafting feed at least; first tells
	// the loop's first from the others.
	least(first bool) int
	// rollback forgets all but the first n tokens.
	rollback(n int)
	// model is the cache that passes feed; nil where there is no model.
	model() *cache
}

// newDrafter makes a drafter of the pair's; nil when it has none.
func newDrafter(pair Pair, k int) (drafter, error) {
	if pair.Draft == nil {
		if pair.Law == nil {
			return nil, nil
		}
		return lawDrafter{pair.Law}, nil
	}
	c, err := newCache(pair.Draft)
	if err != nil {
		return nil, err
	}
	if pair.Law == nil {
		return modelDrafter{c}, nil
	}
	return &nestedDrafter{modelDrafter: modelDrafter{c}, law: pair.Law, p: make([]spec.Dist, min(k, InnerLookahead))}, nil
}

// proposal is what one loop has drafted so far for a sequence: tokens behind it
// and the law that each was drawn from.
type proposal struct {
	tokens []int32 // the sequence, then x~_1, x~_2, ..
	start  int     // where x~_1 stands
	before int     // how long tokens was before this step
	p      []spec.Dist

	coins       spec.DraftCoins
	standardize spec.Standardizer
	bare        bool    // confidence is asked for where p is one-hot
	least       float64 // the least probability of a token of this step
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
func (m modelDrafter) model() *cache  { return m.cache }

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
	for {
		if done, err := m.cache.fill(ctx, tokens[:len(tokens)-1]); done || err != nil {
			return err
		}
	}
}

// least: the first pass of a loop feeds one token more than it has to. After a
// fully accepted loop the draft lacks two tokens, otherwise one, and feeding
// always two keeps every loop, and every lane of a batch, of one shape.
func (m modelDrafter) least(first bool) int {
	if first {
		return 2
	}
	return 1
}

func (m modelDrafter) feed(d *proposal, _ int, p *pass) error {
	m.ask(d, 1, d.drafted() == 0, p)
	return nil
}

// ask has the pass bring the logits after each of the last rows tokens, feeding
// what is missing.
func (m modelDrafter) ask(d *proposal, rows int, first bool, p *pass) {
	from := min(m.cache.held, len(d.tokens)-rows)
	if first {
		from = max(0, min(from, len(d.tokens)-rows-1))
	}
	p.add(m.cache, d.tokens, from)
}

func (m modelDrafter) draw(d *proposal) error {
	logits := m.cache.row(-1)
	if err := d.standardize(logits, d.tokens, d.law()); err != nil {
		return rowError{err}
	}
	d.sure(logits, d.draw())
	return nil
}

// lawDrafter drafts with a law that needs no model.
type lawDrafter struct{ law spec.Drafter }

func (lawDrafter) room(int) int                           { return math.MaxInt32 }
func (lawDrafter) lag(int) int                            { return 0 }
func (lawDrafter) catchUp(context.Context, []int32) error { return nil }
func (lawDrafter) feed(*proposal, int, *pass) error       { return nil }
func (lawDrafter) least(bool) int                         { return 1 }
func (lawDrafter) rollback(int)                           {}
func (lawDrafter) model() *cache                          { return nil }

func (t lawDrafter) draw(d *proposal) error {
	ok, err := t.law.Law(d.tokens, d.standardize, d.law())
	if err != nil {
		return rowError{err}
	}
	if ok {
		d.draw()
	}
	return nil
}
