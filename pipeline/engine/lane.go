package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/draftmill/draftmill/spec"
)

// Request is a sequence to be decoded.
type Request struct {
	Prompt []int32 // one token or more, fewer than the target's context
	Coins  spec.Uniforms
	Stop   []string
	Limit  int // most tokens of the completion; the target's context limits it too
	// Loop, if not nil, is told of every loop, Done of the end. What they are
	// handed is valid until they return; an error of theirs ends the Step.
	Loop func(*Loop) error
	Done func(*Sequence) error
}

// Sequence is what became of a Request.
type Sequence struct {
	Tokens []int32 // of the completion, as drawn
	Text   string  // of it, up to where a stop sequence was found
	Reason string  // FinishStop, FinishEOS or FinishLength; empty after Err
	Stop   string  // the stop sequence that was found
	Err    error   // why decoding ended early: numbers that are none

	Prefill time.Duration // running the models over the prompt
	Decode  time.Duration // its share of the loops' time: each divided by the lanes that were in it
	Latency time.Duration // from Admit to the end, the time that others took included
}

// Loop is what one draft-verify round did for one sequence. Times of passes that
// lanes shared are divided by their number.
type Loop struct {
	Position int     // absolute position of the first token that the loop decides
	K        int     // lookahead asked for
	Lanes    int     // sequences in the round
	Drafted  []int32 // x~, at most K of them
	*spec.Outcome
	Emitted int     // tokens of it that the completion keeps
	Margin  float64 // top-1 minus top-2 of the target's logits where Outcome.Token stands; greedy decoding only

	Draft, Score, Sample time.Duration // drafter; target model; distributions, coins and verification
}

// lane is the place of one sequence after another: its caches, and the buffers
// of its loops.
type lane struct {
	taken    bool
	request  Request
	sequence Sequence
	began    time.Time
	end      *ending
	chain    *spec.Chain // the same for the target and what drafts
	target   *cache
	drafter  drafter   // nil: autoregressive sampling
	policy   spec.Lane // what the policy knows of the sequence

	prompt   int      // tokens of it
	tokens   []int32  // prompt and completion
	cached   []int32  // the prompt that the caches begin with
	proposal proposal // what one loop drafts behind it, with the distributions p
	drafted  []int32  // x~_1 .. x~_K of it
	q        []spec.Dist
	out      spec.Outcome
	loop     Loop
	err      error // of the loop under way
}

func (e *Engine) newLane() (_ *lane, err error) {
	l := &lane{q: make([]spec.Dist, e.settings.K+1)}
	if l.chain, err = spec.NewChain(e.settings.Sampling, e.pair.Target.Vocab(), e.pair.EOS); err != nil {
		return nil, fmt.Errorf("make a decoder: %w", err)
	}
	if l.target, err = newCache(e.pair.Target); err != nil {
		return nil, fmt.Errorf("allocate the target's cache: %w", err)
	}
	if l.drafter, err = newDrafter(e.pair, e.settings.K); err != nil {
		l.target.free()
		return nil, fmt.Errorf("allocate the draft's cache: %w", err)
	}
	l.proposal = proposal{
		p:           make([]spec.Dist, e.settings.K),
		standardize: l.chain.Standardize,
		bare:        e.settings.Lookahead.Kind == spec.ConfidenceLookahead && e.settings.Sampling.Temperature == 0,
	}
	return l, nil
}

func (l *lane) free() {
	l.target.free()
	if c := l.draft(); c != nil {
		c.free()
	}
}

// draft is the draft model's cache, nil where there is none.
func (l *lane) draft() *cache {
	if l.drafter == nil {
		return nil
	}
	return l.drafter.model()
}

// shares is how many tokens of a prompt the target's cache holds. The last token
// of its own prompt is not among them: the first loop feeds it.
func (l *lane) shares(prompt []int32) int {
	n := 0
	for n < min(len(l.cached)-1, len(prompt)-1, l.target.held) && l.cached[n] == prompt[n] {
		n++
	}
	return n
}

// begin sets the lane to a request.
func (l *lane) begin(e *Engine, r Request) error {
	n := l.shares(r.Prompt)
	l.taken, l.request, l.sequence, l.began, l.err = true, r, Sequence{}, e.now(), nil
	l.prompt = len(r.Prompt)
	l.tokens = append(l.tokens[:0], r.Prompt...)
	l.cached = append(l.cached[:0], r.Prompt...)
	l.end = newEnding(e.pair.Tokenizer, e.pair.EOS, r.Stop, min(r.Limit, e.pair.Target.Context()-len(r.Prompt)))
	l.rollback(n)
	if err := l.chain.Begin(r.Prompt); err != nil {
		return rowError{fmt.Errorf("begin with a prompt of %d tokens: %w", len(r.Prompt), err)}
	}
	return nil
}

// prefill feeds one chunk of all but the prompt's last token, which the first
// loop feeds, and reports whether the lane is ready to decode. What another lane
// has of the prompt is copied: the samples of one prompt share its prefill, and
// prompts their common beginning.
func (l *lane) prefill(ctx context.Context, e *Engine) (bool, error) {
	if err := l.share(e); err != nil {
		return false, err
	}
	if done, err := l.target.fill(ctx, l.tokens[:len(l.tokens)-1]); err != nil || !done {
		return false, wrap(err, "prefill the target with %d tokens", len(l.tokens))
	}
	if l.drafter == nil {
		return true, nil
	}
	l.policy.Lag = l.drafter.lag(len(l.tokens))
	if !e.policy.Begin(&l.policy) {
		return true, nil // it is not to draft at first
	}
	before := e.now()
	if err := l.drafter.catchUp(ctx, l.tokens); err != nil {
		return false, fmt.Errorf("prefill the draft with %d tokens: %w", len(l.tokens), err)
	}
	if l.policy.Lag > 0 {
		e.round.Fed += l.policy.Lag
		e.round.Feeding += e.now().Sub(before)
	}
	return true, nil
}

// share copies what another lane has cached of the prompt, if that is more than
// the lane's own.
func (l *lane) share(e *Engine) error {
	best, most := l, l.target.held
	for _, other := range e.lanes {
		if n := other.shares(l.cached); other != l && n > most {
			best, most = other, n
		}
	}
	if best == l {
		return nil
	}
	if err := l.target.share(best.target, most); err != nil {
		return fmt.Errorf("copy the target's cache: %w", err)
	}
	from, to := best.draft(), l.draft()
	if from == nil || min(from.held, most) <= to.held {
		return nil
	}
	return wrap(to.share(from, min(from.held, most)), "copy the draft's cache")
}

// rollback tells the caches that only the first n tokens of the sequence still
// stand.
func (l *lane) rollback(n int) {
	l.target.truncate(n)
	if l.drafter != nil {
		l.drafter.rollback(n)
	}
}

// fail ends a sequence by an error of its own; any other error is returned.
func (l *lane) fail(err error) error {
	if _, own := errors.AsType[rowError](err); !own {
		return err
	}
	l.sequence.Err = err
	return l.finish(l.began)
}

// finish hands the sequence over and leaves the lane.
func (l *lane) finish(now time.Time) error {
	s := &l.sequence
	s.Tokens = l.tokens[l.prompt:]
	s.Text, s.Reason, s.Stop = l.end.completion(), l.end.reason, l.end.stoppedBy
	s.Latency = now.Sub(l.began)
	l.taken = false
	if l.request.Done == nil {
		return nil
	}
	return l.request.Done(s)
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
