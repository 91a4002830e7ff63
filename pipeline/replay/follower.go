package replay

import (
	"context"
	"fmt"

	"github.com/draftmill/draftmill/pipeline/engine"
)

// Bounds of a pass: tokens, and bytes of logits.
const (
	passTokens = 256
	passBytes  = 192 << 20
)

// follower is a model that is fed given sequences, one after the other. Of a
// sequence it feeds what the one before it does not begin with.
type follower struct {
	model  engine.Decoder
	slot   int
	input  int       // tokens of the sequence that an encoder reads
	held   []int32   // tokens in the cache
	logits []float32 // of the last pass; the model's
	first  int       // position of their first row
}

func newFollower(model engine.Decoder) (*follower, error) {
	slot, err := model.Alloc()
	if err != nil {
		return nil, fmt.Errorf("allocate a cache for the replay: %w", err)
	}
	return &follower{model: model, slot: slot}, nil
}

func (f *follower) free() { f.model.Free(f.slot) }

// begin says how many of the next sequence's first tokens an encoder reads. The
// same tokens with another input are another sequence.
func (f *follower) begin(input int) {
	if input != f.input {
		f.input, f.held, f.logits = input, nil, nil
	}
}

// most is how many rows one call of rows gives at most.
func (f *follower) most() int { return min(passTokens, max(1, passBytes/4/f.model.Vocab())) }

// rows returns the logits for the positions from to to-1 of a sequence: those
// after its first from tokens, after from+1, and so on, [to-from, vocabulary].
// from is at least 1, to-from at most most(). They belong to the model and are
// valid until the next call.
func (f *follower) rows(ctx context.Context, tokens []int32, from, to int) ([]float32, error) {
	vocab := f.model.Vocab()
	same := 0
	for same < min(len(f.held), to-1) && f.held[same] == tokens[same] {
		same++
	}
	if n := len(f.logits) / vocab; same == to-1 && from >= f.first && to <= f.first+n {
		return f.logits[(from-f.first)*vocab : (to-f.first)*vocab], nil // as the last pass gave them
	}
	f.logits = nil
	for past := min(same, from-1); past < to-1; {
		n := min(passTokens, to-1-past)
		if past < from-1 && past+n < to-1 {
			n = min(n, from-1-past) // one pass brings all rows
		}
		rows := max(0, past+n-(from-1))
		if !f.model.Reserve(f.slot, past, n) {
			return nil, fmt.Errorf("the cache has no room for %d tokens; give it more memory (ort.cache_mb)", past+n)
		}
		logits, err := f.model.Forward(ctx, []engine.Span{{Slot: f.slot, Past: past, Tokens: tokens[past : past+n], Rows: rows, Input: f.input}})
		if err != nil {
			f.held = f.held[:min(past, len(f.held))]
			return nil, fmt.Errorf("feed the model %d tokens behind %d: %w", n, past, err)
		}
		f.held = append(f.held[:past], tokens[past:past+n]...)
		if past += n; rows > 0 {
			f.logits, f.first = logits, from
		}
	}
	return f.logits, nil
}
