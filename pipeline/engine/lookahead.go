package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/draftmill/draftmill/spec"
)

// lookahead is how many tokens the loop is to draft, as the policy chooses it;
// every lane drafts as many of them as its completion and its drafter have room
// for.
//
// It is asked before the loop draws its first coin, and looks at lengths and at
// what earlier loops have shown. As the loop's coins are its own, that cannot
// bias what it draws; [spec.Policy] says why.
func (e *Engine) lookahead() int {
	if e.settings.K == 0 {
		return 0
	}
	e.seen = e.seen[:0]
	for _, l := range e.batch {
		n := len(l.tokens)
		l.policy.Room = max(0, min(l.end.limit-l.end.tokens-1, l.drafter.room(n), spec.MaxPositions-n))
		l.policy.Lag = l.drafter.lag(n)
		e.seen = append(e.seen, &l.policy)
	}
	k := e.policy.Next(e.seen)
	for _, l := range e.batch {
		l.loop.K = k
		if e.settings.Lookahead.Kind == spec.AutoLookahead {
			l.loop.K = min(k, l.policy.Room)
		}
	}
	return k
}

// propose drafts at most k tokens behind every sequence of the batch.
func (e *Engine) propose(ctx context.Context, k int) error {
	e.drafting = e.drafting[:0]
	for _, l := range e.batch {
		d := &l.proposal
		d.tokens, d.start = l.tokens, len(l.tokens)
		if e.settings.K == 0 || l.most(k) == 0 {
			continue
		}
		if err := e.catchUp(ctx, l); err != nil {
			return err
		}
		d.coins = spec.DraftCoins{Uniforms: l.request.Coins, Start: d.start}
		e.drafting = append(e.drafting, l)
	}
	before := e.watch.last
	for first := true; len(e.drafting) > 0; first = false {
		if err := e.draftStep(ctx, k, first); err != nil {
			return err
		}
	}
	e.round.Draft = e.watch.last.Sub(before)
	for _, l := range e.batch {
		d := &l.proposal
		l.tokens = d.tokens
		l.drafted = append(l.drafted[:0], d.tokens[d.start:]...)
		l.loop.Drafted = l.drafted
	}
	return nil
}

// draftStep is one pass of the draft model for the lanes that are drafting, and
// what each of them draws from it. What is drafted is verified, whatever the
// policy says to it; nothing is drafted behind an end of sequence.
func (e *Engine) draftStep(ctx context.Context, k int, first bool) error {
	e.draft.begin(e.drafting[0].drafter.least(first))
	for _, l := range e.drafting {
		d := &l.proposal
		d.before, d.least = len(d.tokens), 1
		l.err = l.drafter.feed(d, l.most(k)-d.drafted(), &e.draft)
		l.loop.Draft += e.watch.lap()
	}
	model := len(e.draft.lanes) > 0
	if model {
		if err := e.draft.run(ctx); err != nil {
			return fmt.Errorf("draft for %d sequences: %w", len(e.draft.lanes), err)
		}
		e.share(e.watch.lap(), e.drafting, drafting)
	}
	on := e.drafting[:0]
	for _, l := range e.drafting {
		d := &l.proposal
		if l.err == nil {
			l.err = l.drafter.draw(d)
		}
		if model {
			l.loop.Sample += e.watch.lap()
		} else {
			l.loop.Draft += e.watch.lap()
		}
		if l.err != nil {
			d.tokens = d.tokens[:d.start]
			continue
		}
		drafted := d.tokens[d.before:]
		if len(drafted) > 0 && d.drafted() < l.most(k) && e.policy.More(d.least) && !slices.ContainsFunc(drafted, e.ends) {
			on = append(on, l)
		}
	}
	e.drafting = on
	return nil
}

// most is how many tokens the loop drafts at most for the lane.
func (l *lane) most(k int) int { return min(k, l.policy.Room) }

// catchUp feeds the lane's drafter what it lacks.
func (e *Engine) catchUp(ctx context.Context, l *lane) error {
	lag := l.policy.Lag
	if lag == 0 {
		return nil
	}
	e.watch.lap()
	if err := l.drafter.catchUp(ctx, l.tokens); err != nil {
		return fmt.Errorf("feed the draft %d tokens: %w", lag, err)
	}
	took := e.watch.lap()
	l.loop.Draft += took
	e.round.Fed += lag
	e.round.Feeding += took
	return nil
}

// ends reports whether a token ends a sequence.
func (e *Engine) ends(x int32) bool { return slices.Contains(e.pair.EOS, x) }

// learn tells the policy what the loop has shown; drafted is when its drafting
// was over.
func (e *Engine) learn(drafted time.Time) {
	if e.settings.K > 0 || e.settings.AutoLanes {
		e.seen = e.seen[:0]
		for _, l := range e.batch {
			p := &l.policy
			p.Drafted, p.Accepted, p.Emitted = len(l.loop.Drafted), l.out.Accepted, l.loop.Emitted
			if l.err != nil {
				p.Drafted, p.Accepted, p.Emitted = 0, 0, 0
			}
			e.seen = append(e.seen, p)
		}
		e.round.Verify = e.watch.last.Sub(drafted)
		e.policy.Observe(e.seen, e.round)
	}
	e.round = spec.Round{}
}
