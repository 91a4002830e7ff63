package storage

import "fmt"

// Values of Completion.FinishReason.
const (
	FinishStop   = "stop"   // a stop sequence was found; the text ends before it
	FinishEOS    = "eos"    // the target drew an end-of-sequence token
	FinishLength = "length" // the token limit was reached
	FinishError  = "error"  // the row could not be decoded; Error says why
)

// A Completion is one sample of one row: a row of the completions table.
// Times are nanoseconds, counts are of this sample alone. Where sequences shared
// a forward pass, each has its part of the time that the pass took, so that the
// times of all completions add up to the time that was spent.
type Completion struct {
	Job              string
	Row              int64   // index of the row in the dataset, from 0: the key, with Sample
	RowID            string  // the dataset's own id of the row; not necessarily unique
	Sample           int32   // 0 <= Sample < samples per prompt
	Completion       string  // text without the prompt
	Tokens           []int32 // ids of the completion as drawn, with eos and the tokens that spell a stop sequence
	FinishReason     string  // FinishStop, FinishEOS, FinishLength or FinishError
	StopReason       string  // the stop sequence that was found, else empty
	Error            string  // why the row could not be decoded; empty exactly if FinishReason is not FinishError
	PromptTokens     int32
	CompletionTokens int32     // len(Tokens)
	Loops            int32     // draft-verify loops; in ArS, target steps
	Drafted          int32     // tokens that the draft proposed
	Accepted         int32     // of them, accepted by the target, before any cut
	PrefillNS        int64     // tokenizing the prompt and running the models over it
	DecodeNS         int64     // from there to the end of the completion
	DraftNS          int64     // of DecodeNS: draft model and its sampling
	ScoreNS          int64     // of DecodeNS: target model
	SampleNS         int64     // of DecodeNS: distributions, verification, coins
	TotalNS          int64     // the whole sample: PrefillNS + DecodeNS
	LatencyNS        int64     // from its beginning to its end, what others took meanwhile included
	Score            *float64  // of a beam search: by which its sequences are ranked, else nil
	LogProbs         []float64 // of a beam search: the logarithm of each token's probability, else empty
	Seed             uint64
	Worker           string // who decoded it
}

var completionTable = &table[Completion]{
	name: "completions",
	cols: []column[Completion]{
		labelColumn("job", func(c *Completion) *string { return &c.Job }),
		int64Column("row", func(c *Completion) *int64 { return &c.Row }),
		textColumn("row_id", func(c *Completion) *string { return &c.RowID }),
		int32Column("sample", func(c *Completion) *int32 { return &c.Sample }),
		textColumn("completion", func(c *Completion) *string { return &c.Completion }),
		int32sColumn("tokens", func(c *Completion) *[]int32 { return &c.Tokens }),
		labelColumn("finish_reason", func(c *Completion) *string { return &c.FinishReason }),
		maybeTextColumn("stop_reason", func(c *Completion) *string { return &c.StopReason }),
		maybeTextColumn("error", func(c *Completion) *string { return &c.Error }),
		int32Column("prompt_tokens", func(c *Completion) *int32 { return &c.PromptTokens }),
		int32Column("completion_tokens", func(c *Completion) *int32 { return &c.CompletionTokens }),
		int32Column("loops", func(c *Completion) *int32 { return &c.Loops }),
		int32Column("drafted", func(c *Completion) *int32 { return &c.Drafted }),
		int32Column("accepted", func(c *Completion) *int32 { return &c.Accepted }),
		int64Column("prefill_ns", func(c *Completion) *int64 { return &c.PrefillNS }),
		int64Column("decode_ns", func(c *Completion) *int64 { return &c.DecodeNS }),
		int64Column("draft_ns", func(c *Completion) *int64 { return &c.DraftNS }),
		int64Column("score_ns", func(c *Completion) *int64 { return &c.ScoreNS }),
		int64Column("sample_ns", func(c *Completion) *int64 { return &c.SampleNS }),
		int64Column("total_ns", func(c *Completion) *int64 { return &c.TotalNS }),
		int64Column("latency_ns", func(c *Completion) *int64 { return &c.LatencyNS }),
		maybeFloat64Column("score", func(c *Completion) **float64 { return &c.Score }),
		float64sColumn("logprobs", func(c *Completion) *[]float64 { return &c.LogProbs }),
		uint64Column("seed", func(c *Completion) *uint64 { return &c.Seed }),
		labelColumn("worker", func(c *Completion) *string { return &c.Worker }),
	},
	size: func(c *Completion) int {
		return 256 + len(c.Completion) + len(c.Error) + 4*len(c.Tokens) + 8*len(c.LogProbs)
	},
	check: (*Completion).check,
}

// check refuses what no reader could make sense of.
func (c *Completion) check() error {
	if len(c.LogProbs) != 0 && (len(c.LogProbs) != len(c.Tokens) || c.Score == nil) {
		return fmt.Errorf("completion of row %d: %d tokens with %d log-probabilities", c.Row, len(c.Tokens), len(c.LogProbs))
	}
	switch c.FinishReason {
	case FinishStop, FinishEOS, FinishLength:
		if c.Error != "" {
			return fmt.Errorf("completion of row %d: an error (%s) with finish reason %q", c.Row, c.Error, c.FinishReason)
		}
	case FinishError:
		if c.Error == "" {
			return fmt.Errorf("completion of row %d: finish reason %q without an error", c.Row, c.FinishReason)
		}
	default:
		return fmt.Errorf("completion of row %d: unknown finish reason %q", c.Row, c.FinishReason)
	}
	return nil
}
