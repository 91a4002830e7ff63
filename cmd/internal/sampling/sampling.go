// Package sampling is the sampler of package ort, on a device, as the engine wants
// one: the setting ort.sampler.
package sampling

import (
	"context"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/pipeline/engine/remote"
	"github.com/draftmill/draftmill/spec"
)

// Options are the settings of a sampler for this sampling.
func Options(s spec.Sampling, rule spec.Rule, vocab int) graph.SamplerOptions {
	return graph.SamplerOptions{
		Vocab: vocab, Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
		Edits: s.Edits(), Race: !rule.For(s).Replays(),
	}
}

// Pair is engine.Remote: the passes of a pair of models whose logits stay on the
// device, and the sampler that draws from them.
type Pair struct {
	sampler       *ort.Sampler
	target, draft *ort.Decoder
}

// New makes the sampler of a pair of models on one device. draft may be nil. The
// caller closes it before the decoders, which stay the caller's.
func New(o ort.Options, s graph.SamplerOptions, target, draft *ort.Decoder) (*Pair, error) {
	sampler, err := ort.NewSampler(o, s)
	if err != nil {
		return nil, err
	}
	return &Pair{sampler, target, draft}, nil
}

// Close frees what the sampler holds.
func (p *Pair) Close() error { return p.sampler.Close() }

// KeepTarget makes a pass of the target.
func (p *Pair) KeepTarget(ctx context.Context, spans []ort.Span) error {
	return p.target.Keep(ctx, spans)
}

// KeepDraft makes a pass of the draft.
func (p *Pair) KeepDraft(ctx context.Context, spans []ort.Span) error {
	return p.draft.Keep(ctx, spans)
}

// Draft draws from the draft's rows.
func (p *Pair) Draft(step int, rows []remote.Row) ([]remote.Drawn, error) {
	return p.sampler.Draw(p.draft, rows, step)
}

// Draw draws from the target's rows.
func (p *Pair) Draw(rows []remote.Row) ([]remote.Drawn, error) {
	return p.sampler.Draw(p.target, rows, -1)
}

// Verify draws from the target's rows and compares the laws of the steps with them.
func (p *Pair) Verify(rows []remote.Row, drafted []remote.Drafted) ([]remote.Drawn, []remote.Verified, error) {
	return p.sampler.Verify(p.target, rows, drafted)
}
