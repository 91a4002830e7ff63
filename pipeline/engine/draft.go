package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/draftmill/draftmill/spec"
)

// propose drafts behind every sequence of the batch, and feeds chunks of the
// prompts that wait to the draft model.
//
// The sequences draft in step: everyone puts into one pass of the draft model
// what it has to be fed, and draws from what comes out. Who is to draft more
// takes part in more steps.
func (e *Engine) propose(ctx context.Context) error {
	e.drafting = e.drafting[:0]
	for _, l := range e.batch {
		d := &l.proposal
		d.tokens, d.start = l.tokens, len(l.tokens)
		if l.most() > 0 {
			d.coins = spec.DraftCoins{Uniforms: l.request.Coins, Start: d.start}
			e.drafting = append(e.drafting, l)
		}
	}
	if err := e.catchUp(ctx); err != nil {
		return err
	}
	for step := 0; len(e.drafting) > 0 || step == 0 && len(e.draftChunks) > 0; step++ {
		if err := e.draftStep(ctx, step); err != nil {
			return err
		}
	}
	for _, l := range e.waiting {
		e.beside += l.fed
	}
	for _, l := range e.batch {
		d := &l.proposal
		l.tokens = d.tokens
		l.drafted = append(l.drafted[:0], d.tokens[d.start:]...)
		l.loop.Drafted = l.drafted
	}
	return nil
}

// catchUp feeds the draft model what it lacks of sequences for which it has not
// drafted in a long time, but for what one pass can feed.
func (e *Engine) catchUp(ctx context.Context) error {
	p := &e.draft
	for {
		p.begin()
		lacks, room := 0, e.settings.PassTokens
		for _, l := range e.drafting {
			if c := l.draft(); c != nil {
				lacks += l.lacks(c)
			}
		}
		for _, l := range e.drafting {
			if c := l.draft(); c != nil && lacks > e.settings.PassTokens && l.lacks(c) > 1 && room > 0 {
				n := min(l.lacks(c), room)
				p.add(c, l.tokens[:c.held()+n], c.held(), 0, &l.loop.Draft)
				lacks, room = lacks-n, room-n
			}
		}
		if p.empty() {
			return nil
		}
		if err := p.run(ctx); err != nil {
			return fmt.Errorf("feed the draft %d tokens: %w", p.rows, err)
		}
	}
}

// draftStep is one pass of the draft model for the sequences that are drafting,
// and what each of them draws from it. What is drafted is verified, whatever the
// policy says to it; nothing is drafted behind an end of sequence. Chunks of
// prompts ride along in the first one.
func (e *Engine) draftStep(ctx context.Context, step int) error {
	p := &e.draft
	p.begin()
	e.each(e.drafting, drafting, func(l *lane) error {
		d := &l.proposal
		d.before, d.least = len(d.tokens), 1
		return l.drafter.feed(d, l.most()-d.drafted(), p, &l.loop.Draft)
	})
	if step == 0 {
		for _, c := range e.draftChunks {
			c.add(p)
		}
	}
	if !p.empty() {
		if err := p.run(ctx); err != nil {
			return fmt.Errorf("draft for %d sequences: %w", len(p.spans), err)
		}
	}
	if err := e.sampler.draft(step, e.drafting); err != nil {
		return fmt.Errorf("draw the drafts of %d sequences: %w", len(e.drafting), err)
	}
	e.drafting = slices.DeleteFunc(e.drafting, func(l *lane) bool {
		d := &l.proposal
		if l.err != nil {
			d.tokens = d.tokens[:d.start]
			return true
		}
		drafted := d.tokens[d.before:]
		return len(drafted) == 0 || d.drafted() == l.most() || !e.policy.More(d.least) || slices.ContainsFunc(drafted, e.ends)
	})
	return nil
}

// ends reports whether a token ends a sequence.
func (e *Engine) ends(x int32) bool { return slices.Contains(e.pair.EOS, x) }

// drafter proposes what the target then verifies, for the sequence of one lane.
// Each way of drafting is one: a draft model, a distribution without a model, and
// a draft model that is itself accelerated by such a distribution.
type drafter interface {
	// room is how many tokens can be drafted behind n.
	room(n int) int
	// feed begins a step of at most most tokens and puts what has to be fed for
	// it into the pass.
	feed(d *proposal, most int, p *pass, bill *time.Duration) error
	// draw ends the step: it drafts some tokens, none when there is nothing to
	// propose.
	draw(d *proposal) error
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
	rows   []int // in place of p, where laws stay on a device: see remote.Loop

	rule        spec.Rule
	coins       spec.DraftCoins
	standardize spec.Standardizer
	greedy      bool    // confidence comes from the logits, as p is one-hot
	least       float64 // the least probability of a token of this step
}

// drafted is how many tokens there are.
func (d *proposal) drafted() int { return len(d.tokens) - d.start }

// law is the distribution that the next token is to be drawn from.
func (d *proposal) law() *spec.Dist { return &d.p[d.drafted()] }

// draw draws the next token from its law.
func (d *proposal) draw() (x int32) {
	p := d.law()
	x = d.rule.Draft(p, &d.coins, len(d.tokens))
	d.add(x, p.Prob(x))
	return x
}

// add takes the next token and its probability.
func (d *proposal) add(x int32, p float64) {
	d.least = min(d.least, p)
	d.tokens = append(d.tokens, x)
}

// sure notes how probable a model's logits make the token x, where p does not
// tell: greedy decoding makes it one-hot.
func (d *proposal) sure(logits []float32, x int32) {
	if d.greedy {
		d.least = min(d.least, softmaxAt(logits, x))
	}
}

// modelDrafter drafts with a model: x~_t ~ p(x | x_1 .. x_n, x~_1 .. x~_t-1).
type modelDrafter struct{ cache *cache }

func (m modelDrafter) room(n int) int { return m.cache.model.Context() - n }
func (m modelDrafter) model() *cache  { return m.cache }

// feed has the pass bring the logits after the last token, feeding what is
// missing before it: one token after a loop that was accepted in full.
func (m modelDrafter) feed(d *proposal, _ int, p *pass, bill *time.Duration) error {
	p.add(m.cache, d.tokens, m.cache.held(), 1, bill)
	return nil
}

func (m modelDrafter) draw(d *proposal) error {
	logits := m.cache.row(-1)
	err := d.standardize(logits, d.tokens, d.law())
	if errors.Is(err, spec.ErrNoMass) {
		return nil // a trimmed draft of whose tokens none may come next
	}
	if err != nil {
		return rowError{err}
	}
	d.sure(logits, d.draw())
	return nil
}

// lawDrafter drafts with a law that needs no model.
type lawDrafter struct{ law spec.Drafter }

func (lawDrafter) room(int) int                                     { return math.MaxInt32 }
func (lawDrafter) feed(*proposal, int, *pass, *time.Duration) error { return nil }
func (lawDrafter) model() *cache                                    { return nil }

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
