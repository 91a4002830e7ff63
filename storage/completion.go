package storage

// Values of Completion.FinishReason.
const (
	FinishStop   = "stop"   // a stop sequence was found; the text ends before it
	FinishEOS    = "eos"    // the target drew an end-of-sequence token
	FinishLength = "length" // the token limit was reached
	FinishError  = "error"  // the row could not be decoded; Error says why
)

// A Completion is one sample of one row: a row of the completions table.
// Times are nanoseconds, counts are of this sample alone.
type Completion struct {
	Job              string
	Row              int64   // index of the row in the dataset, from 0: the key, with Sample
	RowID            string  // the dataset's own id of the row; not necessarily unique
	Sample           int32   // 0 <= Sample < samples per prompt
	Completion       string  // text without the prompt
	Tokens           []int32 // ids of the completion, in the target's vocabulary
	FinishReason     string  // FinishStop, FinishEOS, FinishLength or FinishError
	StopReason       string  // the stop sequence that was found, else empty
	Error            string  // why the row could not be decoded; empty exactly if FinishReason is not FinishError
	PromptTokens     int32
	CompletionTokens int32 // decoded tokens, an end-of-sequence token included
	Loops            int32 // draft-verify loops; in ArS, target steps
	Drafted          int32 // tokens that the draft proposed
	Accepted         int32 // of them, accepted by the target
	PrefillNS        int64 // both models over the prompt
	DecodeNS         int64 // from the end of the prefill to the last token
	DraftNS          int64 // of DecodeNS: draft model and its sampling
	ScoreNS          int64 // of DecodeNS: target model
	SampleNS         int64 // of DecodeNS: distributions, verification, coins
	TotalNS          int64 // prefill, decode, tokenizing
	Seed             uint64
	Worker           string // who decoded it
}
