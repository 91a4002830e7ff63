package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/draftmill/draftmill/spec"
)

// lookahead is how many tokens the loop is to draft: what the policy chooses,
// but no more than the completion and the drafter have room for.
//
// It is asked before the loop draws its first coin, and looks at lengths and at
// what earlier loops have shown. As the loop's coins are its own, that cannot
// bias what it draws; [spec.Policy] says why.
func (e *Engine) lookahead(l *Loop, end *ending) int {
	if e.drafter == nil {
		return 0
	}
	n := len(e.tokens)
	room := max(0, min(end.limit-end.tokens-1, e.drafter.room(n), spec.MaxPositions-n))
	k := e.policy.Next(room, e.drafter.lag(n))
	l.K = e.settings.K
	if e.settings.Lookahead.Kind == spec.AutoLookahead {
		l.K = k
	}
	return k
}

// propose drafts at most k tokens behind the sequence.
func (e *Engine) propose(ctx context.Context, k int, coins spec.Uniforms, l *Loop, watch *stopwatch) error {
	n, d := l.Position, &e.proposal
	e.drafted, e.drafting = e.drafted[:0], 0
	if k == 0 {
		return nil
	}
	if lag := e.drafter.lag(n); lag > 0 {
		if err := e.drafter.catchUp(ctx, e.tokens); err != nil {
			return fmt.Errorf("feed the draft %d tokens: %w", lag, err)
		}
		watch.lap(&l.Draft)
		e.round.Fed += lag
		e.round.Feeding += l.Draft
	}
	fed := l.Draft

	d.tokens, d.start, d.loop, d.watch = e.tokens, n, l, watch
	d.coins = spec.DraftCoins{Uniforms: coins, Start: n}
	for have := 0; have < k; have = d.drafted() {
		d.least = 1
		if err := e.drafter.step(ctx, d, k-have); err != nil {
			return fmt.Errorf("draft token %d: %w", n+have, err)
		}
		// What is drafted is verified, whatever the policy says to it; nothing
		// is drafted behind an end of sequence.
		drafted := d.tokens[n+have:]
		if len(drafted) == 0 || !e.policy.More(d.least) || slices.ContainsFunc(drafted, e.ends) {
			break
		}
	}
	e.tokens = d.tokens
	e.drafted = append(e.drafted, e.tokens[n:]...)
	l.Drafted = e.drafted
	e.drafting = l.Draft + l.Sample
	e.round.Draft = e.drafting - fed
	return nil
}

// ends reports whether a token ends a sequence.
func (e *Engine) ends(x int32) bool { return slices.Contains(e.pair.EOS, x) }

// learn tells the policy what the loop has shown.
func (e *Engine) learn(l *Loop) {
	if e.drafter == nil {
		return
	}
	r := &e.round
	r.Drafted, r.Accepted, r.Emitted = len(l.Drafted), l.Accepted, l.Emitted
	r.Verify = l.Draft + l.Score + l.Sample - e.drafting
	e.policy.Observe(*r)
	*r = spec.Round{}
}

// ready starts a sequence of the drafter's: it is fed the prompt, unless the
// policy does not mean to draft at first.
func (e *Engine) ready(ctx context.Context) error {
	e.round = spec.Round{}
	if e.drafter == nil {
		return nil
	}
	lag := e.drafter.lag(len(e.tokens))
	if !e.policy.Begin(lag) {
		return nil
	}
	before := e.now()
	if err := e.drafter.catchUp(ctx, e.tokens); err != nil {
		return fmt.Errorf("prefill the draft with %d tokens: %w", len(e.tokens), err)
	}
	if lag > 0 {
		e.round.Fed, e.round.Feeding = lag, e.now().Sub(before)
	}
	return nil
}
