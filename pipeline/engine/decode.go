package engine

import (
	"context"
	"fmt"
)

// loop is one draft-verify round of all sequences in the batch; those that end
// with it leave.
//
// For each of them this is a round of Algorithm 2 of Chen et al.; where nothing
// is drafted it is one of their Algorithm 1.
func (e *Engine) loop(ctx context.Context) error {
	e.choose()
	drafting := e.now()
	scoring := drafting
	for decided := false; !decided; {
		// Draft: x~_t ~ p(x | x_1 .. x_n, x~_1 .. x~_t-1) for t = 1 .. K.
		err := e.propose(ctx)
		if err != nil {
			return err
		}
		scoring = e.now()
		// Score: q(x | x_1 .. x_n), .. , q(x | x_1 .. x_n, x~_1 .. x~_K), in parallel.
		if err := e.scoreAll(ctx); err != nil {
			return err
		}
		// Verify: accept a prefix of the draft, and one token of the target's.
		if decided, err = e.sampler.verify(e.batch); err != nil {
			return fmt.Errorf("verify what %d sequences drafted: %w", len(e.batch), err)
		}
		if !decided {
			e.undo()
		}
	}
	e.each(e.batch, sampling, (*lane).keep)

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

// undo takes back what the loop has drafted. The prompts have been fed.
func (e *Engine) undo() {
	e.scoreChunks, e.draftChunks = e.scoreChunks[:0], e.draftChunks[:0]
	for _, l := range e.waiting {
		e.beside -= l.fed // which propose adds again
	}
	for _, l := range e.batch {
		l.void()
	}
}

// void takes back what the loop has drafted for the sequence.
func (l *lane) void() {
	l.tokens = l.tokens[:l.loop.Position]
	l.rollback(len(l.tokens) - 1) // the last token is fed by the next loop
}

// keep keeps what the loop has decided up to where the completion ends, and undoes
// the rest.
func (l *lane) keep() error {
	n := l.loop.Position
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
			l.void()
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
