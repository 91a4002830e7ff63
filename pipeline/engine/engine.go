package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
)

// Settings say how an Engine decodes.
type Settings struct {
	K         int            // lookahead, or the largest one; 0: autoregressive sampling
	Lookahead spec.Lookahead // how the lookahead is chosen; the zero value is always K
	Sampling  spec.Sampling
	Rule      spec.Rule // the zero value is rejection
	Context   int       // most tokens of a sequence; 0: what the decoders hold
	Lanes     int       // sequences decoded together; 0: one
	AutoLanes bool      // Lanes is the most; how many of them are used is chosen by what they cost
}

// Engine decodes sequences, several at a time: each has a lane, with a KV cache
// of its own in each of the pair's models, and every forward pass takes all
// lanes. A sequence joins at a loop's end and leaves at another, whatever the
// others do. It is used by one goroutine at a time.
type Engine struct {
	pair     Pair
	settings Settings
	rule     spec.Rule
	least    int // tokens that scoring feeds at least, see pass
	policy   spec.Policy
	now      func() time.Time

	lanes   []*lane // made when they are needed
	waiting []*lane // for their prefill, the first to come first
	batch   []*lane // decoding

	score, draft pass
	drafting     []*lane      // of the batch, those that go on drafting
	seen         []*spec.Lane // of the batch
	watch        stopwatch
	round        spec.Round
}

// New makes an engine. Without anything to draft with, or with K = 0, it
// samples autoregressively. An engine that chooses by cost measures the models
// first, which takes some dozen passes and ends early with ctx.
func New(ctx context.Context, pair Pair, s Settings) (*Engine, error) {
	return newAt(ctx, pair, s, time.Now)
}

func newAt(ctx context.Context, pair Pair, s Settings, now func() time.Time) (*Engine, error) {
	if s.K < 0 || s.K > spec.MaxLookahead {
		return nil, fmt.Errorf("make a decoder: the lookahead %d is not between 0 and %d", s.K, spec.MaxLookahead)
	}
	pair = pair.within(s.Context)
	if pair.Draft != nil && pair.Draft.Vocab() != pair.Target.Vocab() {
		return nil, fmt.Errorf("pair the models: the draft's vocabulary has %d tokens, the target's %d; choose a draft of the target's family", pair.Draft.Vocab(), pair.Target.Vocab())
	}
	if s.K == 0 || pair.Draft == nil && pair.Law == nil {
		pair.Draft, pair.Law, s.K = nil, nil, 0
		s.Lookahead = spec.Lookahead{}
	}
	if s.Lanes = max(1, s.Lanes); s.AutoLanes && pair.Lanes > 0 {
		s.Lanes = min(s.Lanes, pair.Lanes)
	}
	e := &Engine{
		pair: pair, settings: s, rule: s.Rule.For(s.Sampling), least: 1, now: now,
		policy: s.Lookahead.Policy(s.K, s.Lanes, s.AutoLanes && s.Lanes > 1),
	}
	if s.K > 0 && s.Lookahead.Kind != spec.AutoLookahead {
		e.least = 2 // so that loops that draft nothing are scored as those beside them
	}
	l, err := e.newLane()
	if err != nil {
		return nil, err
	}
	e.lanes = append(e.lanes, l)
	if err := e.calibrate(ctx); err != nil {
		e.Close()
		return nil, fmt.Errorf("measure the models: %w", err)
	}
	return e, nil
}

// Close gives the engine's caches back.
func (e *Engine) Close() {
	for _, l := range e.lanes {
		l.free()
	}
	e.lanes, e.waiting, e.batch = nil, nil, nil
}

// Tokenizer is the pair's.
func (e *Engine) Tokenizer() *tokenize.Tokenizer { return e.pair.Tokenizer }

// Context is the most tokens that a sequence can have.
func (e *Engine) Context() int { return e.pair.Target.Context() }

// Active is how many sequences the engine has in hand.
func (e *Engine) Active() int { return len(e.waiting) + len(e.batch) }

// Free is how many more sequences it has use for now.
func (e *Engine) Free() int {
	width := e.settings.Lanes
	if wide, ok := e.policy.(interface{ Width(int) int }); ok && e.settings.AutoLanes {
		width = wide.Width(width)
	}
	return max(0, width-e.Active())
}

// Admit takes a sequence in hand; Step decodes it. It must not be called while
// every lane is taken.
func (e *Engine) Admit(r Request) error {
	l, err := e.idleLane(r.Prompt)
	if err != nil {
		return err
	}
	if err := l.begin(e, r); err != nil {
		return l.fail(err)
	}
	e.waiting = append(e.waiting, l)
	return nil
}

// idleLane is the lane that has most of the prompt cached already.
func (e *Engine) idleLane(prompt []int32) (*lane, error) {
	var best *lane
	for _, l := range e.lanes {
		if !l.taken && (best == nil || l.shares(prompt) > best.shares(prompt)) {
			best = l
		}
	}
	if best != nil {
		return best, nil
	}
	if len(e.lanes) >= e.settings.Lanes {
		panic("engine: a sequence is admitted, but no lane is free")
	}
	l, err := e.newLane()
	if err == nil {
		e.lanes = append(e.lanes, l)
	}
	return l, err
}

// Step prefills what has come to its turn and then runs one loop of all lanes
// that are ready. After an error the engine has dropped all its sequences.
func (e *Engine) Step(ctx context.Context) error {
	err := e.prefill(ctx)
	if err == nil && len(e.batch) > 0 {
		err = e.loop(ctx)
	}
	if err != nil {
		e.Drop()
	}
	return err
}

// Drop forgets the sequences in hand.
func (e *Engine) Drop() {
	for _, l := range e.lanes {
		l.taken = false
	}
	e.waiting, e.batch = e.waiting[:0], e.batch[:0]
}

// prefill feeds prompts, in chunks and in the order in which they came, but no
// more of them before the next loop than there are prompts waiting for every
// lane that is decoding: a long prompt holds the others up for one chunk at a
// time, and lanes that nobody uses are filled at once.
func (e *Engine) prefill(ctx context.Context) error {
	chunks := max(1, len(e.waiting))
	if n := len(e.batch); n > 0 {
		chunks = max(1, len(e.waiting)/n)
	}
	for ; len(e.waiting) > 0 && chunks > 0; chunks-- {
		l := e.waiting[0]
		began := e.now()
		done, err := l.prefill(ctx, e)
		l.sequence.Prefill += e.now().Sub(began)
		if err != nil {
			return err
		}
		if done {
			e.waiting = append(e.waiting[:0], e.waiting[1:]...)
			e.batch = append(e.batch, l)
		}
	}
	return nil
}

// Draw decodes one sequence from beginning to end and returns its tokens, an
// end-of-sequence token included.
func (e *Engine) Draw(ctx context.Context, prompt []int32, coins spec.Uniforms, n int) ([]int32, error) {
	all, err := e.DrawAll(ctx, []Request{{Prompt: prompt, Coins: coins, Limit: n}})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// DrawAll decodes several sequences and returns the tokens of each.
func (e *Engine) DrawAll(ctx context.Context, requests []Request) ([][]int32, error) {
	tokens := make([][]int32, len(requests))
	for next := 0; next < len(requests) || e.Active() > 0; {
		for ; next < len(requests) && e.Free() > 0; next++ {
			r, to, done := requests[next], &tokens[next], requests[next].Done
			r.Done = func(s *Sequence) error {
				*to = append([]int32(nil), s.Tokens...)
				if done != nil {
					return errors.Join(s.Err, done(s))
				}
				return s.Err
			}
			if err := e.Admit(r); err != nil {
				e.Drop()
				return nil, err
			}
		}
		if err := e.Step(ctx); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// rowError marks an error of one row's numbers: the row fails, the others go
// on.
type rowError struct{ error }

func (e rowError) Unwrap() error { return e.error }

// stopwatch tells the time since its last lap.
type stopwatch struct {
	now  func() time.Time
	last time.Time
}

func (w *stopwatch) start(now func() time.Time) { w.now, w.last = now, now() }

func (w *stopwatch) lap() time.Duration {
	now := w.now()
	d := now.Sub(w.last)
	w.last = now
	return d
}
