package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
)

// run is one engine at work: lanes that decode one sequence after another, each
// lane its own prompt again and again, so that prefill is paid once, before the
// clock starts.
type run struct {
	bench   *bench
	engine  *engine.Engine
	target  *counter
	started int
	prompts []int // of the lanes that are free
	seed    uint64

	loops, tokens, rounds int
	examined              int
	overlap               float64
	draft, score, sample  time.Duration
}

// decode measures decoding for so many seconds: k is a lookahead or auto, lanes a
// number of them or auto:most, and how may end in @device, which has the sampler
// there.
func (b *bench) decode(ctx context.Context, precision, k, lanes, how string, seconds int) (_ map[string]any, err error) {
	how, place, _ := strings.Cut(how, "@")
	settings, err := parse(k, lanes, how)
	if err == nil && place != "" && place != "device" {
		err = fmt.Errorf("sampling @%s", place)
	}
	if err != nil || seconds < 1 {
		return nil, errors.Join(errUsage, err)
	}
	r, done, err := b.newRun(ctx, precision, settings, place == "device")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()

	// Prompts are fed before the clock starts: until as many sequences decode as
	// there are lanes, and for a few loops more.
	for warm := 0; warm < 4; {
		before := r.loops
		if err := r.step(ctx); err != nil {
			return nil, err
		}
		if r.loops-before >= settings.Lanes || settings.AutoLanes && r.rounds > 16 {
			warm++
		}
	}
	*r = run{bench: b, engine: r.engine, target: r.target, started: r.started, prompts: r.prompts, seed: r.seed}
	began, waits := time.Now(), ort.Waits()
	for time.Since(began) < time.Duration(seconds)*time.Second {
		if err := r.step(ctx); err != nil {
			return nil, err
		}
	}
	took := time.Since(began)
	return map[string]any{
		"tokens_per_s":    float64(r.tokens) / took.Seconds(),
		"tokens":          r.tokens,
		"loop_ms":         milliseconds(took) / float64(r.rounds),
		"tokens_per_loop": float64(r.tokens) / float64(r.loops),
		"lanes":           float64(r.loops) / float64(r.rounds),
		"alpha":           r.overlap / float64(max(1, r.examined)),
		"draft_ms":        milliseconds(r.draft) / float64(r.loops),
		"score_ms":        milliseconds(r.score) / float64(r.loops),
		"sample_ms":       milliseconds(r.sample) / float64(r.loops),
		"waits":           float64(ort.Waits()-waits) / float64(r.rounds),
	}, nil
}

// parse reads what a request says of how to decode.
func parse(k, lanes, how string) (s engine.Settings, err error) {
	if k == "auto" {
		s.K, s.Lookahead = 8, spec.Lookahead{Kind: spec.AutoLookahead}
	} else if s.K, err = strconv.Atoi(k); err != nil {
		return s, fmt.Errorf("lookahead %q", k)
	}
	most, auto := strings.CutPrefix(lanes, "auto:")
	if s.Lanes, err = strconv.Atoi(most); err != nil {
		return s, fmt.Errorf("lanes %q", lanes)
	}
	s.AutoLanes = auto
	switch how {
	case "greedy":
	case "sample":
		s.Sampling.Temperature = 1
	case "top50":
		s.Sampling.Temperature, s.Sampling.TopK = 1, 50
	case "nucleus":
		s.Sampling.Temperature, s.Sampling.TopP = 0.8, 0.95
	default:
		return s, fmt.Errorf("sampling %q", how)
	}
	return s, nil
}

// newRun opens decoders and an engine over them, with a sampler on the device where
// that is wanted; done closes them.
func (b *bench) newRun(ctx context.Context, precision string, s engine.Settings, there bool) (_ *run, done func() error, err error) {
	var closers []func() error
	done = func() (err error) {
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i]())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, done())
		}
	}()
	target, err := b.open("target-" + precision)
	if err != nil {
		return nil, nil, err
	}
	t, err := target.model.NewDecoder(0)
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, t.Close)
	b.runs++
	r := &run{bench: b, target: &counter{Decoder: t}, seed: b.runs}
	for lane := range s.Lanes {
		r.prompts = append(r.prompts, lane)
	}
	pair := engine.Pair{Target: r.target, Tokenizer: target.tok, EOS: target.model.Bundle().EOS}
	var d *ort.Decoder
	if s.K > 0 {
		draft, err := b.open("draft-" + precision)
		if err != nil {
			return nil, nil, err
		}
		if d, err = draft.model.NewDecoder(0); err != nil {
			return nil, nil, err
		}
		closers = append(closers, d.Close)
		pair.Draft = d
	}
	if there {
		sampler, err := ort.NewPairSampler(b.options, graph.SamplerOptions{
			Vocab: t.Vocab(), Temperature: s.Sampling.Temperature, TopK: s.Sampling.TopK, TopP: s.Sampling.TopP,
		}, t, d)
		if err != nil {
			return nil, nil, err
		}
		closers = append(closers, sampler.Close)
		pair.Remote = sampler
	}
	if r.engine, err = engine.New(ctx, pair, s); err != nil {
		return nil, nil, err
	}
	closers = append(closers, func() error { r.engine.Close(); return nil })
	return r, done, nil
}

// step fills the lanes and runs one round of them.
func (r *run) step(ctx context.Context) error {
	for r.engine.Free() > 0 && len(r.prompts) > 0 {
		number := r.prompts[0]
		r.prompts = r.prompts[1:]
		request := engine.Request{
			Prompt: r.bench.prompt(number, promptTokens, r.target.Vocab()), Limit: newTokens,
			Coins: spec.Coins{Seed: r.seed, Row: uint64(r.started)},
			Loop:  r.count,
			Done: func(s *engine.Sequence) error {
				r.prompts = append(r.prompts, number)
				return s.Err
			},
		}
		r.started++
		if err := r.engine.Admit(request); err != nil {
			return err
		}
	}
	r.rounds++
	return r.engine.Step(ctx)
}

// count adds what a loop of one sequence did.
func (r *run) count(l *engine.Loop) error {
	r.loops++
	r.tokens += l.Emitted
	r.draft += l.Draft
	r.score += l.Score
	r.sample += l.Sample
	examined := min(l.Accepted+1, len(l.Drafted))
	for _, o := range l.Overlap[:examined] {
		r.overlap += o
	}
	r.examined += examined
	return nil
}

// counter counts the tokens of prompts that are fed to a model.
type counter struct {
	engine.Decoder
	prompt int // tokens at positions before this one
	fed    int
}

// Forward implements engine.Decoder.
func (c *counter) Forward(ctx context.Context, spans []engine.Span) ([]float32, error) {
	for i := range spans {
		c.fed += max(0, min(spans[i].Past+len(spans[i].Tokens), c.prompt)-spans[i].Past)
	}
	return c.Decoder.Forward(ctx, spans)
}

// prefill measures the prefill of n samples of one prompt of 256 tokens: the
// tokens that are fed to the target, the last of the prompt belonging to the
// first loop, and the time that it takes.
func (b *bench) prefill(ctx context.Context, precision string, n int) (_ map[string]any, err error) {
	r, done, err := b.newRun(ctx, precision, engine.Settings{Lanes: 8, Sampling: spec.Sampling{Temperature: 1}}, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	const length = 256
	r.target.prompt = length - 1
	var spent time.Duration
	requests := make([]engine.Request, n)
	for i := range requests {
		requests[i] = engine.Request{
			Prompt: b.prompt(0, length, r.target.Vocab()), Limit: 16, Coins: spec.Coins{Seed: 1, Sample: uint32(i)},
			Done: func(s *engine.Sequence) error { spent += s.Prefill; return s.Err },
		}
	}
	_, err = r.engine.DrawAll(ctx, requests)
	return map[string]any{"tokens": r.target.fed, "ms": milliseconds(spent)}, err
}

// greedy continues prompt 0 greedily, for comparison with the others.
func (b *bench) greedy(ctx context.Context, precision string) (_ map[string]any, err error) {
	r, done, err := b.newRun(ctx, precision, engine.Settings{}, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	tokens, err := r.engine.Draw(ctx, b.prompt(0, promptTokens, r.target.Vocab()), spec.Coins{}, 32)
	return map[string]any{"tokens": tokens}, err
}
