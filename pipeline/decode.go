package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
)

// Pair is what sequences are decoded with: a target and what drafts for it.
// With neither Draft nor Law, decoding is autoregressive. The decoders are
// borrowed: whoever opened them closes them, after the last Engine that uses
// them. Law is one Engine's own.
type Pair struct {
	Target    Decoder
	Draft     Decoder      // nil: none
	Law       spec.Drafter // drafts without a model; beside a Draft, drafts for it. nil: none
	Tokenizer *tokenize.Tokenizer
	EOS       []int32
}

// Settings say how an Engine decodes.
type Settings struct {
	K         int            // lookahead, or the largest one; 0: autoregressive sampling
	Lookahead spec.Lookahead // how the lookahead is chosen; the zero value is always K
	Sampling  spec.Sampling
	Rule      spec.Rule // the zero value is rejection
	Context   int       // most tokens of a sequence; 0: what the decoders hold
}

// Engine decodes one sequence after another. It owns one KV cache in each of
// the pair's models and the buffers of the loop, and is used by one goroutine
// at a time.
type Engine struct {
	pair     Pair
	settings Settings
	rule     spec.Rule
	chain    *spec.Chain // the same for the target and what drafts
	target   *cache
	drafter  drafter // nil: autoregressive sampling
	policy   spec.Policy
	now      func() time.Time

	prompt   []int32  // what the caches begin with
	tokens   []int32  // the sequence: prompt and completion
	proposal proposal // what one loop drafts behind it, with the distributions p
	drafted  []int32  // x~_1 .. x~_K of it
	q        []spec.Dist
	out      spec.Outcome
	loop     Loop
	watch    stopwatch
	drafting time.Duration
	round    spec.Round // what the policy is told of the loop
}

// NewEngine makes an engine. Without anything to draft with, or with K = 0, it
// samples autoregressively.
func NewEngine(pair Pair, s Settings) (*Engine, error) {
	if s.K < 0 || s.K > spec.MaxLookahead {
		return nil, fmt.Errorf("make a decoder: the lookahead %d is not between 0 and %d", s.K, spec.MaxLookahead)
	}
	pair = pair.within(s.Context)
	e := &Engine{pair: pair, settings: s, rule: s.Rule.For(s.Sampling), now: time.Now}
	var err error
	if e.chain, err = spec.NewChain(s.Sampling, pair.Target.Vocab(), pair.EOS); err != nil {
		return nil, fmt.Errorf("make a decoder: %w", err)
	}
	if s.K > 0 {
		if e.drafter, err = newDrafter(pair, s.K); err != nil {
			return nil, err
		}
	}
	if e.drafter == nil {
		e.settings.K = 0
	}
	if e.target, err = newCache(pair.Target); err != nil {
		if e.drafter != nil {
			e.drafter.free()
		}
		return nil, fmt.Errorf("allocate the target's cache: %w", err)
	}
	e.policy = s.Lookahead.Policy(e.settings.K)
	e.q = make([]spec.Dist, e.settings.K+1)
	e.proposal = proposal{
		p:           make([]spec.Dist, e.settings.K),
		standardize: e.chain.Standardize,
		bare:        s.Lookahead.Kind == spec.ConfidenceLookahead && s.Sampling.Temperature == 0,
	}
	return e, nil
}

// Close gives the engine's caches back.
func (e *Engine) Close() {
	e.target.free()
	if e.drafter != nil {
		e.drafter.free()
	}
}

// Loop is what one draft-verify round did. It is valid until the next.
type Loop struct {
	Position int     // absolute position of the first token that the loop decides
	K        int     // lookahead asked for
	Drafted  []int32 // x~, at most K of them
	*spec.Outcome
	Emitted int     // tokens of it that the completion keeps
	Margin  float64 // top-1 minus top-2 of the target's logits where Outcome.Token stands; greedy decoding only

	Draft, Score, Sample time.Duration // drafter; target model; distributions, coins and verification
}

// decode extends the sequence that begin has set up until end says stop, and
// reports every loop.
//
// This is Algorithm 2 of Chen et al.; where nothing is drafted it is their
// Algorithm 1.
func (e *Engine) decode(ctx context.Context, coins spec.Uniforms, end *ending, report func(*Loop) error) error {
	for end.reason == "" {
		n := len(e.tokens)
		l, watch := &e.loop, &e.watch
		*l, *watch = Loop{Position: n, Outcome: &e.out}, stopwatch{e.now, e.now()}

		// Draft: x~_t ~ p(x | x_1 .. x_n, x~_1 .. x~_t-1) for t = 1 .. K.
		if err := e.propose(ctx, e.lookahead(l, end), coins, l, watch); err != nil {
			return err
		}
		k := len(l.Drafted)
		// Score: q(x | x_1 .. x_n), .. , q(x | x_1 .. x_n, x~_1 .. x~_K), in parallel.
		if err := e.score(ctx, k, l, watch); err != nil {
			return err
		}
		// Accept a prefix of the draft, and one token of the target's after it.
		if err := spec.Verify(e.rule, l.Drafted, e.proposal.p[:k], e.q[:k+1], coins, n, &e.out); err != nil {
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

		l.Margin = e.q[e.out.Accepted].Margin()
		watch.lap(&l.Sample)
		e.learn(l)
		if err := report(l); err != nil {
			return err
		}
	}
	return nil
}

// score feeds the sequence's last token and the k drafted ones to the target
// and standardizes the k+1 distributions that come out.
func (e *Engine) score(ctx context.Context, k int, l *Loop, watch *stopwatch) error {
	logits, err := e.target.extend(ctx, e.tokens, l.Position-1)
	if err != nil {
		return fmt.Errorf("score tokens %d to %d: %w", l.Position, l.Position+k, err)
	}
	watch.lap(&l.Score)
	vocab := e.pair.Target.Vocab()
	for t := range k + 1 {
		row := logits[t*vocab : (t+1)*vocab]
		if err := e.chain.Standardize(row, e.tokens[:l.Position+t], &e.q[t]); err != nil {
			return rowError{fmt.Errorf("score token %d: %w", l.Position+t, err)}
		}
	}
	return nil
}

// rollback tells the caches that only the first n tokens of the sequence still
// stand.
func (e *Engine) rollback(n int) {
	e.target.truncate(n)
	if e.drafter != nil {
		e.drafter.rollback(n)
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
	if err := e.ready(ctx); err != nil {
		return err
	}
	if err := e.chain.Begin(prompt); err != nil {
		return rowError{fmt.Errorf("begin with a prompt of %d tokens: %w", len(prompt), err)}
	}
	return nil
}

// rowError marks an error of one row's numbers: the row fails, the shard goes
// on.
type rowError struct{ error }

func (e rowError) Unwrap() error { return e.error }
