package main

import (
	"maps"
	"slices"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/spec"
)

// sampling is the job's way of sampling. What has no effect is left out and
// what has no order is sorted, so that jobs that draw alike are the same job.
func sampling(s configs.Sampling) spec.Sampling {
	out := spec.Sampling{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
		RepetitionPenalty: s.RepetitionPenalty, PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty,
		LogitBias: maps.Clone(s.LogitBias), ForbiddenTokens: slices.Compact(slices.Sorted(slices.Values(s.ForbiddenTokens))),
		NoRepeatNGramSize: s.NoRepeatNGramSize, MinNewTokens: s.MinNewTokens,
	}
	if out.RepetitionPenalty == 1 {
		out.RepetitionPenalty = 0 // off
	}
	maps.DeleteFunc(out.LogitBias, func(_ int32, b float64) bool { return b == 0 })
	return out
}
