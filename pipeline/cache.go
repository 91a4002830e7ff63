package pipeline

import (
	"context"
	"fmt"
)

// prefillChunk bounds how many tokens one forward pass of the prefill scores,
// and with it the memory of the logits that nobody reads.
const prefillChunk = 128

// cache is one sequence's KV cache in one model: the model's slot, and how
// many leading tokens of the sequence it holds.
type cache struct {
	model Decoder
	slot  int
	held  int

	lane struct { // the one lane that a pass has, kept from pass to pass
		slot, past [1]int
		feed       [1][]int32
	}
}

func newCache(model Decoder) (*cache, error) {
	slot, err := model.Alloc()
	if err != nil {
		return nil, err
	}
	return &cache{model: model, slot: slot}, nil
}

func (c *cache) free() { c.model.Free(c.slot) }

// truncate forgets all but the first n tokens.
func (c *cache) truncate(n int) { c.held = min(c.held, n) }

// extend feeds tokens[from:], behind the first from tokens, and returns their
// logits, row after row. from may lie inside what is held: re-scoring a token
// writes the same entry again.
func (c *cache) extend(ctx context.Context, tokens []int32, from int) ([]float32, error) {
	if from > c.held || from >= len(tokens) {
		panic(fmt.Sprintf("cache: feed [%d:%d] of a sequence of which %d tokens are held", from, len(tokens), c.held))
	}
	c.held = from // until the pass has succeeded
	l := &c.lane
	l.slot[0], l.past[0], l.feed[0] = c.slot, from, tokens[from:]
	logits, err := c.model.Forward(ctx, l.slot[:], l.past[:], l.feed[:])
	if err != nil {
		return nil, err
	}
	c.held = len(tokens)
	return logits, nil
}

// fill prefills: it feeds whatever of tokens is not held yet, in chunks.
func (c *cache) fill(ctx context.Context, tokens []int32) error {
	for c.held < len(tokens) {
		if _, err := c.extend(ctx, tokens[:min(c.held+prefillChunk, len(tokens))], c.held); err != nil {
			return err
		}
	}
	return nil
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

// last returns the logits after each of the last rows tokens, feeding what is
// missing. The first pass of a loop feeds one token more than it has to: after
// a fully accepted loop the draft lacks two tokens, otherwise one, and feeding
// always two keeps every loop, and every lane of a batch, of one shape.
func (c *cache) last(ctx context.Context, tokens []int32, rows int, first bool) ([]float32, error) {
	from := min(c.held, len(tokens)-rows)
	if first {
		from = max(0, min(from, len(tokens)-rows-1))
	}
	logits, err := c.extend(ctx, tokens, from)
	if err != nil {
		return nil, err
	}
	return logits[len(logits)-rows*c.model.Vocab():], nil
}
