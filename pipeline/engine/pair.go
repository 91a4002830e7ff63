package engine

import (
	"context"

	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
)

// Decoder is one model, ready to extend sequences. It is used by one goroutine
// at a time.
//
// A slot is the KV cache of one sequence. Rolling a sequence back is passing a
// smaller past: what lies behind it is overwritten.
type Decoder interface {
	// Vocab is the number of logits per position.
	Vocab() int
	// Context is the largest number of tokens that a slot can hold.
	Context() int
	// Alloc reserves a slot; Free gives it back.
	Alloc() (slot int, err error)
	Free(slot int)
	// Copy makes slot dst hold the first n tokens that slot src holds.
	Copy(dst, src, n int) error
	// Forward feeds tokens[i], the same number S >= 1 for every lane i, to
	// slots[i] behind its first past[i] tokens. The logits of lane i's token s
	// are at [(i*S+s)*Vocab : (i*S+s+1)*Vocab]. They belong to the decoder and
	// are valid until its next Forward.
	Forward(ctx context.Context, slots, past []int, tokens [][]int32) ([]float32, error)
	// Close frees the caches. The model that the decoder came from stays.
	Close() error
}

// Pair is what sequences are decoded with: a target and what drafts for it.
// With neither Draft nor Law, decoding is autoregressive. The decoders are
// borrowed: whoever opened them closes them, after the last Engine that uses
// them. Law is one Engine's own.
type Pair struct {
	Target    Decoder
	Draft     Decoder      // nil: none
	Law       spec.Drafter // drafts without a model; beside a Draft, drafts for it. nil: none
	Tokenizer *tokenize.Tokenizer
	EOS       []int32
	Lanes     int // sequences that there is memory for; 0: no bound
}

// within is the pair with room for context tokens; 0 sets no bound.
func (p Pair) within(context int) Pair {
	if context > 0 {
		p.Target = bounded{p.Target, context}
		if p.Draft != nil {
			p.Draft = bounded{p.Draft, context}
		}
	}
	return p
}

// bounded is a Decoder of which no more than context tokens are used.
type bounded struct {
	Decoder
	context int
}

func (b bounded) Context() int { return min(b.context, b.Decoder.Context()) }
