package report

import (
	"math"
	"slices"

	"github.com/draftmill/draftmill/storage"
)

// Timing says how the time of single sequences spread. Means over sequences
// count each sequence alike.
type Timing struct {
	TokenMS    float64 `json:"token_ms"`     // mean over sequences of decode time per token
	TokenMSDev float64 `json:"token_ms_dev"` // standard deviation over sequences
	Seconds    float64 `json:"seconds"`      // of a sequence, prefill included: mean
	P50        float64 `json:"p50_s"`
	P90        float64 `json:"p90_s"`
	P99        float64 `json:"p99_s"`
}

// sequenceTime is what one sequence took.
type sequenceTime struct {
	key     sampleKey
	tokenMS float64
	seconds float64
	prompt  int32
	tokens  int32
	failed  bool
}

func timeOf(c *storage.Completion) sequenceTime {
	s := sequenceTime{key: sampleKey{c.Row, c.Sample}, prompt: c.PromptTokens, tokens: c.CompletionTokens, failed: c.FinishReason == storage.FinishError || c.CompletionTokens == 0}
	if !s.failed {
		s.tokenMS = float64(c.DecodeNS) / 1e6 / float64(c.CompletionTokens)
		s.seconds = float64(c.TotalNS) / 1e9
	}
	return s
}

// timing sums up; nil without a sequence.
func timing(all []sequenceTime) *Timing {
	var seconds []float64
	var sum, squares, total float64
	for _, s := range all {
		if !s.failed {
			seconds = append(seconds, s.seconds)
			sum += s.tokenMS
			squares += s.tokenMS * s.tokenMS
			total += s.seconds
		}
	}
	n := float64(len(seconds))
	if n == 0 {
		return nil
	}
	slices.Sort(seconds)
	at := func(p float64) float64 { return seconds[min(len(seconds)-1, int(p*n))] }
	t := &Timing{TokenMS: sum / n, Seconds: total / n, P50: at(0.50), P90: at(0.90), P99: at(0.99)}
	if n > 1 {
		t.TokenMSDev = math.Sqrt(max(0, squares/n-t.TokenMS*t.TokenMS) * n / (n - 1))
	}
	return t
}

// meanOfRatios is the mean over sequences of base's time per token over
// other's: each sequence counts alike, where the ratio of totals weighs it by
// its tokens. 0 where no sequence is in both.
func meanOfRatios(base, other []sequenceTime) float64 {
	times := make(map[sampleKey]float64, len(base))
	for _, s := range base {
		if !s.failed {
			times[s.key] = s.tokenMS
		}
	}
	var sum float64
	var n int64
	for _, s := range other {
		if b, ok := times[s.key]; ok && !s.failed && s.tokenMS > 0 {
			sum += b / s.tokenMS
			n++
		}
	}
	return ratio(sum, n)
}
