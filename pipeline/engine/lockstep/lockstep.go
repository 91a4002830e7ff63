// Package lockstep runs spans on a decoder whose passes feed every sequence the
// same number of tokens and whose sequences have caches of their own. It stands
// in until ort's decoder takes spans itself.
package lockstep

import (
	"context"

	"github.com/draftmill/draftmill/pipeline/engine"
)

// Decoder is such a decoder.
type Decoder interface {
	Vocab() int
	Context() int
	Alloc() (slot int, err error)
	Free(slot int)
	Copy(dst, src, n int) error
	Forward(ctx context.Context, slots, past []int, tokens [][]int32) ([]float32, error)
	Close() error
}

const (
	// widest are the tokens of a span that shares a pass; longer ones, which are
	// of prompts, have passes of their own.
	widest = 32
	// longest are the tokens of a pass.
	longest = 128
)

// New makes an engine's decoder. Where the model scores drafts, scores is true:
// then no span is fed fewer than two tokens, as runtimes score one token by
// another kernel than several, with other last bits.
func New(d Decoder, scores bool) engine.Decoder {
	a := &adapter{Decoder: d, least: 1}
	if scores {
		a.least = 2
	}
	return a
}

type adapter struct {
	Decoder
	least int
	out   []float32
	wide  []int // spans to be run together
}

func (*adapter) Capacity() int            { return 0 }
func (*adapter) Reserve(_, _, _ int) bool { return true }
func (*adapter) Truncate(_, _ int)        {}
func (a *adapter) Share(dst, src, n int) error {
	if n == 0 {
		return nil
	}
	return a.Copy(dst, src, n)
}

// Forward implements engine.Decoder.
func (a *adapter) Forward(ctx context.Context, spans []engine.Span) ([]float32, error) {
	vocab, rows := a.Vocab(), 0
	first := make([]int, len(spans)) // row of each span
	for i, s := range spans {
		first[i] = rows
		rows += s.Rows
	}
	if cap(a.out) < rows*vocab {
		a.out = make([]float32, rows*vocab)
	}
	a.out = a.out[:rows*vocab]
	// keep takes the logits of a span's wanted rows, of those of all its tokens.
	keep := func(i int, logits []float32) {
		s := &spans[i]
		copy(a.out[first[i]*vocab:(first[i]+s.Rows)*vocab], logits[(len(s.Tokens)-s.Rows)*vocab:])
	}
	single := a.least == 1
	for _, width := range []int{1, widest} {
		a.wide = a.wide[:0]
		s := 0
		for i, span := range spans {
			alone := single && len(span.Tokens) == 1 && span.Rows == 1
			if alone != (width == 1) || len(span.Tokens) > widest || span.Past+widest > a.Context() {
				continue
			}
			a.wide = append(a.wide, i)
			s = max(s, len(span.Tokens), min(width, 2))
		}
		if len(a.wide) == 0 {
			continue
		}
		slots, past, tokens := make([]int, len(a.wide)), make([]int, len(a.wide)), make([][]int32, len(a.wide))
		for j, i := range a.wide {
			slots[j], past[j], tokens[j] = spans[i].Slot, spans[i].Past, padded(spans[i].Tokens, s)
		}
		logits, err := a.Decoder.Forward(ctx, slots, past, tokens)
		if err != nil {
			return nil, err
		}
		for j, i := range a.wide {
			keep(i, logits[j*s*vocab:(j+1)*s*vocab])
		}
	}
	for i, span := range spans {
		if len(span.Tokens) <= widest && span.Past+widest <= a.Context() {
			continue
		}
		past, tokens := span.Past, span.Tokens
		for len(tokens) > longest {
			if _, err := a.Decoder.Forward(ctx, []int{span.Slot}, []int{past}, [][]int32{tokens[:longest]}); err != nil {
				return nil, err
			}
			past, tokens = past+longest, tokens[longest:]
		}
		least := 2
		if single && len(span.Tokens) == 1 && span.Rows == 1 {
			least = 1
		}
		s := min(max(len(tokens), least), a.Context()-past)
		logits, err := a.Decoder.Forward(ctx, []int{span.Slot}, []int{past}, [][]int32{padded(tokens, s)})
		if err != nil {
			return nil, err
		}
		if span.Rows > 0 {
			copy(a.out[first[i]*vocab:(first[i]+span.Rows)*vocab], logits[(len(tokens)-span.Rows)*vocab:])
		}
	}
	return a.out, nil
}

// padded repeats the last token up to a length. What is behind a span's tokens is
// overwritten before it is read.
func padded(tokens []int32, n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = tokens[min(i, len(tokens)-1)]
	}
	return p
}
