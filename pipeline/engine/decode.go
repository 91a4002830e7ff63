package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/draftmill/draftmill/spec"
)

// loop is one draft-verify round of all sequences in the batch; those that end
// with it leave.
//
// For each of them this is a round of Algorithm 2 of Chen et al.; where nothing
// is drafted it is one of their Algorithm 1.
func (e *Engine) loop(ctx context.Context) error {
	e.watch.start(e.now)
	began := e.watch.last
	for _, l := range e.batch {
		l.loop = Loop{Position: len(l.tokens), Lanes: len(e.batch), Outcome: &l.out}
	}
	// Draft: x~_t ~ p(x | x_1 .. x_n, x~_1 .. x~_t-1) for t = 1 .. K.
	if err := e.propose(ctx, e.lookahead()); err != nil {
		return err
	}
	drafted := e.watch.last
	// Score: q(x | x_1 .. x_n), .. , q(x | x_1 .. x_n, x~_1 .. x~_K), in parallel.
	if err := e.scoreAll(ctx); err != nil {
		return err
	}
	for _, l := range e.batch {
		if l.err == nil {
			l.err = l.verify(e.rule)
		}
		l.loop.Sample += e.watch.lap()
	}
	e.learn(drafted)
	for _, l := range e.batch {
		if l.err == nil && l.request.Loop != nil {
			if err := l.request.Loop(&l.loop); err != nil {
				return err
			}
		}
	}
	return e.leave(e.now().Sub(began))
}

// scoreAll feeds every sequence's last token and its drafted ones to the target
// and standardizes the distributions that come out.
func (e *Engine) scoreAll(ctx context.Context) error {
	e.score.begin(e.least)
	for _, l := range e.batch {
		if l.err == nil {
			e.score.add(l.target, l.tokens, l.loop.Position-1)
		}
	}
	if len(e.score.lanes) == 0 {
		return nil
	}
	if err := e.score.run(ctx); err != nil {
		return fmt.Errorf("score the tokens of %d sequences: %w", len(e.score.lanes), err)
	}
	e.share(e.watch.lap(), e.batch, scoring)
	for _, l := range e.batch {
		if l.err == nil {
			l.err = l.standardize()
		}
		l.loop.Sample += e.watch.lap()
	}
	return nil
}

// standardize makes the target's distributions of its logits.
func (l *lane) standardize() error {
	for t := range len(l.loop.Drafted) + 1 {
		at := l.loop.Position + t
		if err := l.chain.Standardize(l.target.row(t), l.tokens[:at], &l.q[t]); err != nil {
			return rowError{fmt.Errorf("score token %d: %w", at, err)}
		}
	}
	return nil
}

// verify accepts a prefix of the draft and one token of the target's after it,
// keeps them up to where the completion ends, and undoes the rest.
func (l *lane) verify(rule spec.Rule) error {
	n, k := l.loop.Position, len(l.loop.Drafted)
	if err := spec.Verify(rule, l.loop.Drafted, l.proposal.p[:k], l.q[:k+1], l.request.Coins, n, &l.out); err != nil {
		return rowError{fmt.Errorf("verify tokens %d to %d: %w", n, n+k, err)}
	}
	l.tokens = append(l.tokens[:n+l.out.Accepted], l.out.Token)
	for _, x := range l.tokens[n:] {
		if l.loop.Emitted++; l.end.push(x) {
			break
		}
	}
	l.tokens = l.tokens[:n+l.loop.Emitted]
	l.rollback(len(l.tokens) - 1) // the last token has not been fed yet
	l.loop.Margin = l.q[l.out.Accepted].Margin()
	return nil
}

// leave ends the loop, which took so long: the sequences that have ended, or
// failed, make way.
func (e *Engine) leave(took time.Duration) error {
	share, now, stay := took/time.Duration(len(e.batch)), e.now(), 0
	for _, l := range e.batch {
		l.sequence.Decode += share
		switch {
		case l.err != nil:
			l.tokens = l.tokens[:l.loop.Position] // what the loop drafted is void
			l.rollback(len(l.tokens) - 1)
			l.sequence.Err = l.err
			fallthrough
		case l.end.reason != "":
			if err := l.finish(now); err != nil {
				return err
			}
		default:
			e.batch[stay] = l
			stay++
		}
	}
	e.batch = e.batch[:stay]
	return nil
}

// Parts of a loop that lanes share.
func drafting(l *Loop) *time.Duration { return &l.Draft }
func scoring(l *Loop) *time.Duration  { return &l.Score }

// share divides the time of a pass among the lanes that were in it.
func (e *Engine) share(took time.Duration, lanes []*lane, part func(*Loop) *time.Duration) {
	for i, l := range lanes {
		n := time.Duration(len(lanes) - i) // of the rest, so that nothing is lost to rounding
		*part(&l.loop) += took / n
		took -= took / n
	}
}
