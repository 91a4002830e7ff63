package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
)

// Pair is what sequences are decoded with. The decoders are borrowed: whoever
// opened them closes them, after the last Engine that uses them.
type Pair struct {
	Target    Decoder
	Draft     Decoder // nil: autoregressive sampling
	Tokenizer *tokenize.Tokenizer
	EOS       []int32
}

// Engine decodes one sequence after another. It owns one KV cache in each of
// the pair's models and the buffers of the loop, and is used by one goroutine
// at a time.
type Engine struct {
	pair     Pair
	k        int
	sampling spec.Sampling
	target   *cache
	draft    *cache // nil: autoregressive sampling

	prompt  []int32     // what both caches begin with
	tokens  []int32     // the sequence: prompt and completion
	drafted []int32     // x~_1 .. x~_K of one loop
	p       []spec.Dist // the draft's distributions of one loop
	q       []spec.Dist // the target's
	out     spec.Outcome
}

// NewEngine makes an engine with lookahead k; without a draft model, or with
// k = 0, it samples autoregressively.
func NewEngine(pair Pair, k int, sampling spec.Sampling) (*Engine, error) {
	if pair.Draft == nil {
		k = 0
	}
	e := &Engine{pair: pair, k: k, sampling: sampling, p: make([]spec.Dist, k), q: make([]spec.Dist, k+1)}
	var err error
	if e.target, err = newCache(pair.Target); err != nil {
		return nil, fmt.Errorf("allocate the target's cache: %w", err)
	}
	if k == 0 {
		return e, nil
	}
	if pair.Draft.Vocab() != pair.Target.Vocab() {
		e.target.free()
		return nil, fmt.Errorf("pair the models: the draft's vocabulary has %d tokens, the target's %d; choose a draft of the target's family", pair.Draft.Vocab(), pair.Target.Vocab())
	}
	if e.draft, err = newCache(pair.Draft); err != nil {
		e.target.free()
		return nil, fmt.Errorf("allocate the draft's cache: %w", err)
	}
	return e, nil
}

// Close gives the engine's caches back.
func (e *Engine) Close() {
	e.target.free()
	if e.draft != nil {
		e.draft.free()
	}
}

// Loop is what one draft-verify round did. Its slices are valid until the next.
type Loop struct {
	Position int     // absolute position of the first token that the loop decides
	Drafted  []int32 // x~, at most K of them
	*spec.Outcome
	Emitted int     // tokens of it that the completion keeps
	Margin  float64 // top-1 minus top-2 of the target's logits where Outcome.Token stands; greedy decoding only

	Draft, Score, Sample time.Duration // draft model; target model; distributions, coins and verification
}

// decode extends the sequence that begin has set up until end says stop, and
// reports every loop.
//
// This is Algorithm 2 of Chen et al.; where nothing is drafted it is their
// Algorithm 1.
func (e *Engine) decode(ctx context.Context, coins spec.Uniforms, end *ending, report func(*Loop) error) error {
	for end.reason == "" {
		n, k := len(e.tokens), e.lookahead(end)
		l := Loop{Position: n, Outcome: &e.out}
		watch := stopwatch{time.Now()}

		// Draft: x~_t ~ p(x | x_1 .. x_n, x~_1 .. x~_t-1) for t = 1 .. K.
		if err := e.propose(ctx, k, coins, &l, &watch); err != nil {
			return err
		}
		// Score: q(x | x_1 .. x_n), .. , q(x | x_1 .. x_n, x~_1 .. x~_K), in parallel.
		logits, err := e.score(ctx, k, &l, &watch)
		if err != nil {
			return err
		}
		// Accept a prefix of the draft, and one token of the target's after it.
		if err := spec.Verify(e.drafted, e.p[:k], e.q[:k+1], coins, n, &e.out); err != nil {
			return rowError{fmt.Errorf("verify tokens %d to %d: %w", n, n+k, err)}
		}
		e.tokens = append(e.tokens[:n+e.out.Accepted], e.out.Token)
		// Keep them up to where the completion ends; undo the rest.
		for _, x := range e.tokens[n:] {
			if l.Emitted++; end.push(x) {
				break
			}
		}
		e.tokens = e.tokens[:n+l.Emitted]
		e.rollback(len(e.tokens) - 1) // the last token has not been fed yet

		if e.sampling.Temperature == 0 {
			l.Margin = spec.Margin(e.row(logits, e.out.Accepted))
		}
		watch.lap(&l.Sample)
		if err := report(&l); err != nil {
			return err
		}
	}
	return nil
}

// propose drafts k tokens behind the sequence, each from the draft's
// distribution after the one before it.
func (e *Engine) propose(ctx context.Context, k int, coins spec.Uniforms, l *Loop, watch *stopwatch) error {
	e.drafted = e.drafted[:0]
	for t := range k {
		at := len(e.tokens)
		logits, err := e.draft.next(ctx, e.tokens, t == 0)
		if err != nil {
			return fmt.Errorf("draft token %d: %w", at, err)
		}
		watch.lap(&l.Draft)
		if err := e.sampling.Standardize(logits, &e.p[t]); err != nil {
			return rowError{fmt.Errorf("draft token %d: %w", at, err)}
		}
		x := e.p[t].Sample(coins.Uniform(spec.DraftCoin, at))
		e.tokens, e.drafted = append(e.tokens, x), append(e.drafted, x)
		watch.lap(&l.Sample)
	}
	l.Drafted = e.drafted
	return nil
}

// score feeds the sequence's last token and the k drafted ones to the target
// and standardizes the k+1 distributions that come out.
func (e *Engine) score(ctx context.Context, k int, l *Loop, watch *stopwatch) ([]float32, error) {
	logits, err := e.target.extend(ctx, e.tokens, l.Position-1)
	if err != nil {
		return nil, fmt.Errorf("score tokens %d to %d: %w", l.Position, l.Position+k, err)
	}
	watch.lap(&l.Score)
	for t := range k + 1 {
		if err := e.sampling.Standardize(e.row(logits, t), &e.q[t]); err != nil {
			return nil, rowError{fmt.Errorf("score token %d: %w", l.Position+t, err)}
		}
	}
	return logits, nil
}

// row is the t-th row of the target's logits.
func (e *Engine) row(logits []float32, t int) []float32 {
	vocab := e.pair.Target.Vocab()
	return logits[t*vocab : (t+1)*vocab]
}

// lookahead is how many tokens the next loop drafts: K, but no more than the
// completion and the draft's context have room for. It looks at nothing but lengths
// that are known before the loop draws, so it cannot bias what is drawn.
func (e *Engine) lookahead(end *ending) int {
	if e.draft == nil {
		return 0
	}
	n := len(e.tokens)
	room := min(end.limit-end.tokens-1, e.pair.Draft.Context()-n)
	return max(0, min(e.k, room))
}

// rollback tells both caches that only the first n tokens of the sequence
// still stand.
func (e *Engine) rollback(n int) {
	e.target.truncate(n)
	if e.draft != nil {
		e.draft.truncate(n)
	}
}

// begin sets the sequence to prompt and prefills all but its last token, which
// the first loop feeds. The samples of one prompt share its prefill.
func (e *Engine) begin(ctx context.Context, prompt []int32) error {
	if slices.Equal(prompt, e.prompt) {
		e.rollback(len(prompt) - 1)
	} else {
		e.rollback(0)
	}
	e.prompt = append(e.prompt[:0], prompt...)
	e.tokens = append(e.tokens[:0], prompt...)
	if err := e.target.fill(ctx, prompt[:len(prompt)-1]); err != nil {
		return fmt.Errorf("prefill the target with %d tokens: %w", len(prompt), err)
	}
	if e.draft != nil && len(prompt) <= e.pair.Draft.Context() {
		if err := e.draft.fill(ctx, prompt[:len(prompt)-1]); err != nil {
			return fmt.Errorf("prefill the draft with %d tokens: %w", len(prompt), err)
		}
	}
	return nil
}

// rowError marks an error of one row's numbers: the row fails, the shard goes
// on.
type rowError struct{ error }

func (e rowError) Unwrap() error { return e.error }

// stopwatch attributes the time since its last lap.
type stopwatch struct{ last time.Time }

func (w *stopwatch) lap(to *time.Duration) {
	now := time.Now()
	*to += now.Sub(w.last)
	w.last = now
}
