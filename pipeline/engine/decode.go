package engine

import (
	"context"
	"fmt"

	"github.com/draftmill/draftmill/spec"
)

// loop is one draft-verify round of all sequences in the batch; those that end
// with it leave.
//
// For each of them this is a round of Algorithm 2 of Chen et al.; where nothing
// is drafted it is one of their Algorithm 1.
func (e *Engine) loop(ctx context.Context) error {
	e.choose()
	drafting := e.now()
	// Draft: x~_t ~ p(x | x_1 .. x_n, x~_1 .. x~_t-1) for t = 1 .. K.
	if err := e.propose(ctx); err != nil {
		return err
	}
	scoring := e.now()
	// Score: q(x | x_1 .. x_n), .. , q(x | x_1 .. x_n, x~_1 .. x~_K), in parallel.
	if err := e.scoreAll(ctx); err != nil {
		return err
	}
	e.each(e.batch, sampling, (*lane).standardize)
	// Verify: accept a prefix of the draft, and one token of the target's.
	e.each(e.batch, sampling, func(l *lane) error { return l.verify(e.rule) })

	e.learn(scoring.Sub(drafting), e.now().Sub(scoring))
	for _, l := range e.batch {
		if l.err == nil && l.request.Loop != nil {
			if err := l.request.Loop(&l.loop); err != nil {
				return err
			}
		}
	}
	return e.leave()
}

// scoreAll feeds every sequence's last token and its drafted ones to the target,
// and chunks of the prompts that wait.
func (e *Engine) scoreAll(ctx context.Context) error {
	p := &e.score
	p.begin()
	for _, l := range e.batch {
		if n := l.loop.Position; l.err == nil {
			l.loop.Scored = len(l.tokens) - n + 1
			p.add(l.target, l.tokens, n-1, l.loop.Scored, &l.loop.Score)
		}
	}
	for _, c := range e.scoreChunks {
		c.add(p)
	}
	if p.empty() {
		return nil
	}
	if err := p.run(ctx); err != nil {
		return fmt.Errorf("score the tokens of %d sequences: %w", len(p.spans), err)
	}
	return nil
}

// standardize makes the target's distributions of its logits.
func (l *lane) standardize() error {
	for t := range len(l.loop.Drafted) + 1 {
		at := l.loop.Position + t
		if err := l.standardizeRow(l.target.row(t), l.tokens[:at], &l.q[t]); err != nil {
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
	return nil
}

// leave ends the step: the sequences that have ended, or failed, make way.
func (e *Engine) leave() error {
	now := e.now()
	e.account(now)
	batch := e.batch
	e.batch = e.batch[:0]
	for i, l := range batch {
		switch {
		case l.err != nil:
			l.tokens = l.tokens[:l.loop.Position] // what the loop drafted is void
			l.rollback(len(l.tokens) - 1)
			l.sequence.Err = l.err
			fallthrough
		case l.end.reason != "":
			if err := l.finish(e, now); err != nil {
				return err
			}
		default:
			e.batch = append(e.batch, batch[i])
		}
	}
	return nil
}
