// Package sampling says which sampler of package ort draws as package spec does. Its
// tests hold the one against the other, and the engine over it against the target's
// law.
package sampling

import (
	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/spec"
)

// Options are those of a sampler for this sampling. A lookahead asks for what it looks
// at.
func Options(s spec.Sampling, rule spec.Rule, lookahead spec.Lookahead, vocab int) graph.SamplerOptions {
	return graph.SamplerOptions{
		Vocab: vocab, Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
		Edits: s.Edits(), Confidence: lookahead.Kind == spec.ConfidenceLookahead,
		Race: !rule.For(s).Replays() && !s.Greedy(),
	}
}
