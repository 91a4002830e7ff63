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

// Reran is the sampler's.
func (p *PairSampler) Reran() int { return p.sampler.Reran() }

// KeepTarget is Keep of the target. In the spans -1-i stands for the i-th token that the
// steps since step 0 have drawn, in the order of their rows.
func (p *PairSampler) KeepTarget(ctx context.Context, spans []Span) error {
	return p.target.keep(ctx, spans, p.sampler.tokens())
}

// KeepDraft is Keep of the draft, over such spans.
func (p *PairSampler) KeepDraft(ctx context.Context, spans []Span) error {
	return p.draft.keep(ctx, spans, p.sampler.tokens())
}

// Draft draws from the draft's rows, as the step of this number.
func (p *PairSampler) Draft(step int, rows []SamplerRow, wait bool) ([]Drawn, error) {
	return p.sampler.Draw(p.draft, rows, step, wait)
}

// Draw draws from the target's rows.
func (p *PairSampler) Draw(rows []SamplerRow) ([]Drawn, error) {
	return p.sampler.Draw(p.target, rows, -1, true)
}

// Verify draws from the target's rows, and compares the steps' laws with them.
func (p *PairSampler) Verify(rows []SamplerRow, drafted []Drafted, whole bool) ([]Drawn, []Verified, error) {
	return p.sampler.Verify(p.target, rows, drafted, whole)
}
