package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/draftmill/draftmill/spec"
)

// Request is a sequence to be decoded.
type Request struct {
	Prompt []int32 // see Pair.Prompt and Room; one token or more
	Coins  spec.Uniforms
	Stop   []string
	Limit  int // most tokens of the completion; the target's context limits it too
	// Loop, if not nil, is told of every loop, Done of the end. What they are
	// handed is valid until they return; an error of theirs ends the Step.
	Loop func(*Loop) error
	Done func(*Sequence) error
	// Beams is how many sequences of a beam search are returned: Done is told of
	// each, the best first, and Loop of loops of the search. 0 is one.
	Beams int
}

// Sequence is what became of a Request.
type Sequence struct {
	Tokens []int32 // of the completion, as drawn
	Text   string  // of it, up to where a stop sequence was found
	Reason string  // FinishStop, FinishEOS or FinishLength; empty after Err
	Stop   string  // the stop sequence that was found
	Err    error   // why decoding ended early: NaN, Inf or no probability mass, or a cache that is too small

	// Prefill and Decode add up to the time that was spent on the sequence: of a
	// pass that it shared, its part by the tokens that it fed.
	// Of a beam search:
	Beam  int       // rank: 0 is the best
	Score float64   // by which they are ranked, see spec.Found
	Logs  []float64 // the logarithm of each token's probability

	Prefill time.Duration // the passes over its prompt; over all of it again after a lack of cache blocks
	Decode  time.Duration // its loops
	Latency time.Duration // from Admit to the end, the time that others took included
}

// Loop is what one draft-verify round did for one sequence.
type Loop struct {
	Position int     // absolute position of the first token that the loop decides
	K        int     // lookahead asked for
	Lanes    int     // sequences in the round
	Drafted  []int32 // x~, at most K of them
	*spec.Outcome
	Emitted int // tokens of it that the completion keeps
	Scored  int // tokens that the target scored for it

	// The drafter, the target model, and distributions, uniforms and
	// verification. Of a pass that sequences share, each has its part by the
	// tokens that it fed.
	Draft, Score, Sample time.Duration
}

// lane is the place of one sequence after another: its caches, and the buffers
// of its loops.
type lane struct {
	taken    bool
	joined   bool  // the caches are the sequence's: it is prefilling or decoding
	age      int64 // of the sequence, by Admit: smaller is older; of a free lane, by its end
	request  Request
	sequence Sequence
	began    time.Time
	end      *ending
	chain    *spec.Chain // the same for the target and what drafts
	target   *cache
	drafter  drafter   // nil: autoregressive sampling
	drafts   bool      // its drafter is fed the prompt before the first loop
	policy   spec.Lane // what the policy knows of the sequence
	search   *search   // nil: tokens are drawn one after another

	prompt   int      // tokens of it
	tokens   []int32  // prompt and completion
	proposal proposal // what one loop drafts behind it, with the distributions p
	drafted  []int32  // x~_1 .. x~_K of it
	q        []spec.Dist
	out      spec.Outcome
	loop     Loop
	fed      time.Duration // of the step under way, for its prompt
	err      error         // of the loop under way
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
		rule:        e.rule,
		standardize: l.standardizeRow,
		greedy:      e.settings.Lookahead.Kind == spec.ConfidenceLookahead && e.settings.Sampling.Temperature == 0,
	}
	if e.settings.Beams != nil {
		l.search = newSearch(l)
	}
	return l, nil
}

func (l *lane) free() {
	for _, c := range l.caches() {
		c.free()
	}
}

// targets is the target's cache.
func (l *lane) targets() *cache { return l.target }

// draft is the draft model's cache, nil where there is none.
func (l *lane) draft() *cache {
	if l.drafter == nil {
		return nil
	}
	return l.drafter.model()
}

// caches are the lane's, of all models.
func (l *lane) caches() []*cache {
	all := []*cache{l.target}
	if c := l.draft(); c != nil {
		all = append(all, c)
	}
	if l.search != nil {
		all = append(append(all, l.search.target.others...), l.search.draft.others...)
	}
	return all
}

// begin sets the lane to a request.
func (l *lane) begin(e *Engine, r Request) error {
	l.taken, l.joined, l.request, l.sequence, l.began, l.err = true, false, r, Sequence{}, e.now(), nil
	e.admitted++
	l.age = e.admitted
	l.prompt = len(r.Prompt)
	for _, c := range l.caches() {
		c.input = e.pair.Input(r.Prompt)
	}
	l.tokens = append(l.tokens[:0], r.Prompt...)
	l.end = newEnding(e.pair.Tokenizer, e.pair.EOS, r.Stop, min(r.Limit, e.pair.Room(r.Prompt, e.Context())))
	if err := l.chain.Begin(r.Prompt[l.target.input:]); err != nil {
		return rowError{fmt.Errorf("begin with a prompt of %d tokens: %w", len(r.Prompt), err)}
	}
	if l.search != nil {
		l.search.begin(e, l)
	}
	l.drafts = false
	if l.drafter != nil {
		l.policy.Lag = len(r.Prompt) - 1
		if l.draft() == nil {
			l.policy.Lag = 0
		}
		l.drafts = e.policy.Begin(&l.policy)
	}
	return nil
}

// standardizeRow makes the distribution of the token after these of a row of
// logits. What looks back over a sequence does not see an encoder's input.
func (l *lane) standardizeRow(logits []float32, tokens []int32, d *spec.Dist) error {
	return l.chain.Standardize(logits, tokens[l.target.input:], d)
}

// context is what the lane's caches hold before a loop: all but the last token,
// which the loop feeds.
func (l *lane) context() []int32 { return l.tokens[:len(l.tokens)-1] }

// lacks is how many tokens of its context a cache still has to be fed.
func (l *lane) lacks(c *cache) int { return len(l.context()) - c.held() }

// draftLacks is how many tokens the draft is to be fed before the first loop.
func (l *lane) draftLacks() int {
	c := l.draft()
	if c == nil || !l.drafts || len(l.tokens) > c.model.Context() {
		return 0
	}
	return l.lacks(c)
}

// ready reports whether the lane can take part in loops.
func (l *lane) ready() bool { return l.joined && l.lacks(l.target) == 0 && l.draftLacks() == 0 }

// rollback tells the caches that only the first n tokens of the sequence still
// stand.
func (l *lane) rollback(n int) {
	l.target.rollback(n)
	if c := l.draft(); c != nil {
		c.rollback(n)
	}
}

// fail ends a sequence by an error of its own; any other error is returned.
func (l *lane) fail(e *Engine, err error) error {
	if _, own := errors.AsType[rowError](err); !own {
		return err
	}
	l.sequence.Err = err
	return l.finish(e, e.now())
}

// finish hands the sequence over and leaves the lane. The caches keep what they
// hold until blocks are needed: another prompt may begin alike.
func (l *lane) finish(e *Engine, now time.Time) error {
	if l.search != nil {
		return l.finishBeams(e, now)
	}
	s := &l.sequence
	s.Tokens = l.tokens[l.prompt:]
	s.Text, s.Reason, s.Stop = l.end.completion(), l.end.reason, l.end.stoppedBy
	s.Latency = now.Sub(l.began)
	l.leave(e)
	if l.request.Done == nil {
		return nil
	}
	return l.request.Done(s)
}

// leave frees the lane.
func (l *lane) leave(e *Engine) {
	l.taken, l.joined = false, false
	e.admitted++
	l.age = e.admitted
	e.short = false
}
