package spec

import (
	"fmt"
	"math"
)

// Sampling says how logits become a distribution. Following Leviathan et al.,
// section 2.2, every sampling scheme is plain sampling from a standardized
// distribution, so that the same Sampling applied to both models is all that
// speculative sampling needs to know of it. [Chain] applies it.
//
// The order is that of Hugging Face transformers 5 (GenerationMixin.
// _get_logits_processor): logit bias, repetition penalty, no-repeat n-grams,
// minimum of new tokens, forbidden tokens, [frequency and presence penalty],
// temperature, top-k, top-p, min-p. The two in brackets are not part of
// transformers; they stand where transformers runs the processors of the
// caller. Everything is done in float32 up to there, as transformers does it,
// and in float64 from the temperature on. A token that is then less than 2^-126
// times as probable as the most probable one (the range of float32) becomes
// impossible.
//
// The zero value of every field but Temperature turns its part off.
type Sampling struct {
	// Temperature divides the logits. Zero is greedy decoding: the one-hot
	// distribution of the largest logit, the lowest id among equals. The parts
	// before it still apply, top-k, top-p and min-p have nothing left to do.
	Temperature float64 `json:"temperature"`
	// TopK keeps the k largest logits, and all that tie with the k-th.
	TopK int `json:"top_k"`
	// TopP keeps the nucleus: the smallest set of most probable tokens that
	// holds at least this mass of what top-k left; among equals at its boundary
	// lower ids come first (transformers leaves their order to the sort). One
	// keeps all.
	TopP float64 `json:"top_p"`
	// MinP keeps the tokens that have at least this share of the probability
	// of the most probable one. A token that has exactly this share stays.
	MinP float64 `json:"min_p,omitempty"`

	// RepetitionPenalty divides the positive logits, and multiplies the
	// negative ones, of every token that the sequence holds, prompt included
	// (Keskar et al. 2019). One is neutral.
	RepetitionPenalty float64 `json:"repetition_penalty,omitempty"`
	// PresencePenalty is subtracted from the logit of every token that was
	// generated, prompt excluded; FrequencyPenalty as often as it was (as
	// OpenAI's interface and vLLM define them).
	PresencePenalty  float64 `json:"presence_penalty,omitempty"`
	FrequencyPenalty float64 `json:"frequency_penalty,omitempty"`
	// LogitBias is added to the logits of single tokens.
	LogitBias map[int32]float64 `json:"logit_bias,omitempty"`
	// NoRepeatNGramSize forbids the tokens that would complete an n-gram of
	// this size that the sequence, prompt included, already holds.
	NoRepeatNGramSize int `json:"no_repeat_ngram_size,omitempty"`
	// MinNewTokens forbids the end of the sequence before this many tokens
	// were generated.
	MinNewTokens int `json:"min_new_tokens,omitempty"`
	// ForbiddenTokens are never generated.
	ForbiddenTokens []int32 `json:"forbidden_tokens,omitempty"`
}

// Validate returns an error that names the first setting out of its range.
// That token ids lie in the vocabulary is for [NewChain] to check.
func (s Sampling) Validate() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return fmt.Errorf("temperature %v is not a finite number of at least 0", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("top-k %d is negative", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("top-p %v is not between 0 and 1", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf("min-p %v is not between 0 and 1", s.MinP)
	case !(s.RepetitionPenalty >= 0) || math.IsInf(s.RepetitionPenalty, 0):
		return fmt.Errorf("repetition penalty %v is not a finite positive number", s.RepetitionPenalty)
	case !finite(s.PresencePenalty):
		return fmt.Errorf("presence penalty %v is not a finite number", s.PresencePenalty)
	case !finite(s.FrequencyPenalty):
		return fmt.Errorf("frequency penalty %v is not a finite number", s.FrequencyPenalty)
	case s.NoRepeatNGramSize < 0:
		return fmt.Errorf("no-repeat n-gram size %d is negative", s.NoRepeatNGramSize)
	case s.MinNewTokens < 0:
		return fmt.Errorf("minimum of %d new tokens is negative", s.MinNewTokens)
	}
	for id, b := range s.LogitBias {
		if !finite(b) {
			return fmt.Errorf("logit bias %v of token %d is not a finite number", b, id)
		}
	}
	return nil
}

// Greedy reports whether the distributions are one-hot.
func (s Sampling) Greedy() bool { return s.Temperature == 0 }

// Remembers reports whether a law depends on the tokens before it, and not on the
// logits and how many there are alone: penalties and forbidden n-grams do that.
func (s Sampling) Remembers() bool {
	return s.penalizesRepetition() || s.PresencePenalty != 0 || s.FrequencyPenalty != 0 || s.NoRepeatNGramSize > 0
}

func (s Sampling) penalizesRepetition() bool {
	return s.RepetitionPenalty != 0 && s.RepetitionPenalty != 1
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
