package engine

import (
	"context"

	"github.com/draftmill/draftmill/pipeline/engine/remote"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
)

// Span is what one pass does with one sequence: it feeds Tokens behind the
// first Past tokens of its cache and wants the logits after each of the last
// Rows of them. A Past smaller than what the cache holds is the rollback.
//
// It is an alias of an unnamed type, so that packages which run models can
// declare the identical type without importing this one.
type Span = struct {
	Slot   int
	Past   int
	Tokens []int32 // at least one; only read
	Rows   int     // 0 to len(Tokens)
	Input  int     // the first tokens of the sequence, which an encoder reads; 0: there is none
	// From, if not 0, is 1 + the number of an earlier span of the pass whose
	// sequence begins with the same Past tokens: what the slot lacks of them is taken
	// from there. There was room reserved for that too.
	From int
}

// Decoder is one model over a pool of cache blocks, ready to extend sequences.
// It is used by one goroutine at a time.
//
// On the CPU a row's logits depend on its own tokens alone, to the bit:
// whatever else is in the pass, and however the tokens before it were fed.
type Decoder interface {
	// Vocab is the number of logits per position.
	Vocab() int
	// Context is the most tokens of a sequence.
	Context() int
	// Capacity bounds the tokens that all sequences hold together; 0: unknown.
	Capacity() int
	// Alloc makes an empty cache, which takes no memory until it is fed. Free
	// gives it back, with its blocks.
	Alloc() (slot int, err error)
	Free(slot int)
	// Share makes dst, which is empty, hold the first n tokens that src holds:
	// by sharing blocks, or by copying.
	Share(dst, src, n int) error
	// Reserve makes room for n tokens behind the first past ones of a slot, for
	// this slot alone to write. It reports false when no block is left; then
	// nothing has changed.
	Reserve(slot, past, n int) bool
	// Truncate forgets all but the first n tokens and gives back the blocks
	// behind them.
	Truncate(slot, n int)
	// Forward feeds spans, for each of which there was room reserved, no two of
	// one slot. It returns the logits [sum of Rows, Vocab], the spans in order;
	// they belong to the decoder and are valid until its next Forward. After an
	// error every slot holds its span's first Past tokens.
	Forward(ctx context.Context, spans []Span) ([]float32, error)
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
	Reads     Reads
	Remote    Remote // where rows of logits stay with the models; nil: they come to the host

	Encoder *Encoder // nil: the target is a decoder-only model
}

// Remote is a pair's models where an engine does not look at logits: they stay where
// they were computed, and tokens are drawn from them there. It is made for one
// engine's settings; see [Settings.Remote].
type Remote interface {
	remote.Sampler
	// KeepTarget and KeepDraft are Forward of the pair's decoders, without the
	// logits.
	KeepTarget(ctx context.Context, spans []Span) error
	KeepDraft(ctx context.Context, spans []Span) error
}

// Encoder says how the sequences of an encoder-decoder target are built: the
// input, which its encoder reads, and Start, with which its decoder begins, are
// the prompt; the completion follows. A draft model is given the same sequences.
// What looks back over a sequence (penalties, forbidden n-grams) begins at Start,
// as the decoder does; drafters without a model see the input too.
type Encoder struct {
	Start []int32 // at least one
	Most  int     // tokens of the input, and of what the decoder sees
}

// Prompt is the prompt of an input: with what the decoder begins with behind it,
// where there is an encoder.
func (p Pair) Prompt(input []int32) []int32 {
	if p.Encoder == nil {
		return input
	}
	return append(input[:len(input):len(input)], p.Encoder.Start...)
}

// Input is how many tokens of a prompt an encoder reads.
func (p Pair) Input(prompt []int32) int {
	if p.Encoder == nil {
		return 0
	}
	return max(1, len(prompt)-len(p.Encoder.Start))
}

// Room is how many tokens a completion behind the prompt can have in a context of
// so many; less than one where the prompt is too long.
func (p Pair) Room(prompt []int32, context int) int {
	n := context - len(prompt)
	if e := p.Encoder; e != nil {
		if len(prompt)-len(e.Start) > e.Most {
			return 0
		}
		n = min(n, e.Most-len(e.Start))
	}
	return n
}

// Reads says what bounds the speed of a pair from memory; the zero value where
// it is not known.
type Reads struct {
	PerSecond     float64 // bytes that the machine reads in a second
	Target, Draft int     // bytes of weights that a pass over one token reads
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
