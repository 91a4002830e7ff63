package ort

import (
	"context"

	"github.com/draftmill/draftmill/ort/graph"
)

// PairSampler is a Sampler over what a target and a draft on its device keep of their
// passes.
type PairSampler struct {
	sampler       *Sampler
	target, draft *Decoder
}

// NewPairSampler makes the sampler of a pair; draft may be nil. The caller closes it.
// The decoders stay the caller's. For the session options see NewSampler.
func NewPairSampler(session Options, o graph.SamplerOptions, target, draft *Decoder) (*PairSampler, error) {
	s, err := NewSampler(session, o)
	if err != nil {
		return nil, err
	}
	return &PairSampler{s, target, draft}, nil
}

// Close frees what the sampler holds.
func (p *PairSampler) Close() error { return p.sampler.Close() }

// KeepTarget is Keep of the target.
func (p *PairSampler) KeepTarget(ctx context.Context, spans []Span) error {
	return p.target.Keep(ctx, spans)
}

// KeepDraft is Keep of the draft.
func (p *PairSampler) KeepDraft(ctx context.Context, spans []Span) error {
	return p.draft.Keep(ctx, spans)
}

// Draft draws from the draft's rows, as the step of this number.
func (p *PairSampler) Draft(step int, rows []SamplerRow) ([]Drawn, error) {
	return p.sampler.Draw(p.draft, rows, step)
}

// Draw draws from the target's rows.
func (p *PairSampler) Draw(rows []SamplerRow) ([]Drawn, error) {
	return p.sampler.Draw(p.target, rows, -1)
}

// Verify draws from the target's rows, and compares the steps' laws with them.
func (p *PairSampler) Verify(rows []SamplerRow, drafted []Drafted) ([]Drawn, []Verified, error) {
	return p.sampler.Verify(p.target, rows, drafted)
}
