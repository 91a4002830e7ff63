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
	K          int            // lookahead, or the largest one; 0: autoregressive sampling
	Lookahead  spec.Lookahead // how the lookahead is chosen; the zero value is always K
	Sampling   spec.Sampling
	Rule       spec.Rule // the zero value is rejection
	Context    int       // most tokens of a sequence; 0: what the decoders hold
	Lanes      int       // sequences decoded together; 0: one
	AutoLanes  bool      // Lanes is the most; how many of them are used is chosen by what they cost
	PassTokens int       // most tokens that a pass feeds, where it does not score more; 0: DefaultPassTokens
	// Beams has the engine search in place of drawing: K is then how many steps the
	// draft model searches ahead. Nothing but a draft model can, and a fixed
	// lookahead; Sampling's temperature and truncations have no part in it.
	Beams *spec.Beams
}

// Engine decodes sequences, several at a time: each has a lane, with a KV cache
// of its own in each of the pair's models, and every forward pass takes whatever
// is to be fed: verifications of any number of tokens, and chunks of the prompts
// that wait. A sequence joins at a loop's end and leaves at another, whatever
// the others do. It is used by one goroutine at a time.
type Engine struct {
	pair     Pair
	settings Settings
	rule     spec.Rule
	policy   spec.Policy
	sampler  sampler
	now      func() time.Time

	lanes    []*lane // made when they are needed
	waiting  []*lane // for their prompts' passes, the oldest first
	batch    []*lane // decoding, the oldest first
	admitted int64   // counts sequences that came and went, for ages
	short    bool    // of cache blocks: nobody joins before a sequence has ended
	putBacks int     // how often a sequence was put back for want of blocks

	// Of the step under way.
	score, draft             pass
	scoreChunks, draftChunks []chunk
	drafting                 []*lane      // of the batch, those that go on drafting
	seen                     []*spec.Lane // of the batch
	round                    spec.Round
	began                    time.Time
	beside                   time.Duration // that drafting took for prompts
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
	if s.PassTokens <= 0 {
		s.PassTokens = DefaultPassTokens
	}
	if err := s.checkBeams(pair); err != nil {
		return nil, err
	}
	e := &Engine{
		pair: pair, settings: s, rule: s.Rule.For(s.Sampling), now: now,
		policy: s.Lookahead.Policy(s.K, s.Lanes, s.AutoLanes && s.Lanes > 1),
		score:  pass{model: pair.Target, now: now},
		draft:  pass{model: pair.Draft, now: now},
	}
	if err := e.sampleWith(pair); err != nil {
		return nil, err
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

// Pair is what the engine decodes with. Its decoders are the engine's.
func (e *Engine) Pair() Pair { return e.pair }

// Active is how many sequences the engine has in hand.
func (e *Engine) Active() int { return len(e.waiting) + len(e.batch) }

// Free is how many more sequences it has use for now.
func (e *Engine) Free() int {
	width := e.settings.Lanes
	if e.settings.AutoLanes {
		width = e.policy.Width(width)
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
		return l.fail(e, err)
	}
	e.waiting = append(e.waiting, l)
	return nil
}

// idleLane is the free lane that has most of the prompt cached already; of those
// that have nothing of it, the one that has been free for longest.
func (e *Engine) idleLane(prompt []int32) (*lane, error) {
	var best *lane
	most := 0
	for _, l := range e.lanes {
		if l.taken {
			continue
		}
		if n := l.target.begins(prompt); best == nil || n > most || n == most && l.age < best.age {
			best, most = l, n
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

// Step runs one loop of all sequences that are ready, and beside it feeds what
// the passes have room for of the prompts that wait. After an error the engine
// has dropped all its sequences.
func (e *Engine) Step(ctx context.Context) error {
	err := e.step(ctx)
	if err != nil {
		e.Drop()
	}
	return err
}

func (e *Engine) step(ctx context.Context) error {
	e.began, e.beside = e.now(), 0
	for _, l := range e.waiting {
		l.fed = 0
	}
	if err := e.schedule(); err != nil {
		return err
	}
	loop := e.loop
	if e.settings.Beams != nil {
		loop = e.searchLoop
	}
	if err := loop(ctx); err != nil {
		return err
	}
	e.ready()
	return nil
}

// Drop forgets the sequences in hand.
func (e *Engine) Drop() {
	for _, l := range e.lanes {
		l.taken, l.joined = false, false
	}
	e.waiting, e.batch, e.short = e.waiting[:0], e.batch[:0], false
	e.scoreChunks, e.draftChunks = e.scoreChunks[:0], e.draftChunks[:0]
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
