package engine

import (
	"context"
	"fmt"
)

// prefillChunk bounds how many tokens one forward pass of the prefill scores,
// and with it the memory of the logits that nobody reads and the time for which
// other lanes wait.
const prefillChunk = 128

// cache is one sequence's KV cache in one model: the model's slot, and how
// many leading tokens of the sequence it holds.
type cache struct {
	model  Decoder
	slot   int
	held   int
	alone  pass      // of this cache only
	logits []float32 // of the tokens that the last pass was asked to feed; valid until the model's next pass
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

// fill prefills: it feeds at most one chunk of what of tokens is not held yet,
// and reports whether all is.
func (c *cache) fill(ctx context.Context, tokens []int32) (bool, error) {
	if c.held >= len(tokens) {
		return true, nil
	}
	c.alone.begin(2)
	c.alone.add(c, tokens[:min(c.held+prefillChunk, len(tokens))], c.held)
	err := c.alone.run(ctx)
	return c.held >= len(tokens), err
}

// share takes the first n tokens from another cache of the model, which holds
// them.
func (c *cache) share(from *cache, n int) error {
	if err := c.model.Copy(c.slot, from.slot, n); err != nil {
		return err
	}
	c.held = n
	return nil
}

// row returns the logits after the i-th of the tokens that were fed last;
// counted from the end where i is negative.
func (c *cache) row(i int) []float32 {
	vocab := c.model.Vocab()
	if i < 0 {
		i += len(c.logits) / vocab
	}
	return c.logits[i*vocab : (i+1)*vocab]
}

// pass is one forward pass over several caches of a model.
//
// All lanes of a pass feed the same number of tokens. Who has fewer is padded
// at its end, where nothing that counts can see it: the padding's entries lie
// behind what the cache holds, and are overwritten before they are read.
//
// Runtimes score one token by another kernel than several, which gives other
// last bits; between two tokens and many there is no such difference. So that a
// sequence's logits do not depend on who else is in the pass, whatever can be
// padded is fed two tokens at least, by least; what never is, one token each.
type pass struct {
	least  int
	lanes  []feed
	slots  []int
	past   []int
	tokens [][]int32
}

// feed is what one cache is fed in a pass: tokens behind the first past ones.
type feed struct {
	cache  *cache
	past   int
	tokens []int32 // own memory, to be padded
	spare  []float32
}

// begin empties the pass, which will feed least tokens or more.
func (p *pass) begin(least int) { p.least, p.lanes = least, p.lanes[:0] }

// add puts a cache in: it will be fed tokens[from:], behind the first from
// tokens. from may lie inside what is held: re-scoring a token writes its entry
// again.
func (p *pass) add(c *cache, tokens []int32, from int) {
	if from > c.held || from >= len(tokens) {
		panic(fmt.Sprintf("cache: feed [%d:%d] of a sequence of which %d tokens are held", from, len(tokens), c.held))
	}
	if n := len(p.lanes); n < cap(p.lanes) {
		p.lanes = p.lanes[:n+1] // with its memory
	} else {
		p.lanes = append(p.lanes, feed{})
	}
	l := &p.lanes[len(p.lanes)-1]
	l.cache, l.past = c, from
	l.tokens = append(l.tokens[:0], tokens[from:]...)
}

// run makes the pass and gives every cache its logits.
func (p *pass) run(ctx context.Context) error {
	width := p.least
	for _, l := range p.lanes {
		width = max(width, len(l.tokens))
	}
	p.slots, p.past, p.tokens = p.slots[:0], p.past[:0], p.tokens[:0]
	together := 0
	for i := range p.lanes {
		l := &p.lanes[i]
		if room := l.cache.model.Context() - l.past; room < width {
			// No room for so much padding: a pass of its own.
			if err := l.run(ctx, min(room, max(p.least, len(l.tokens)))); err != nil {
				return err
			}
			continue
		}
		p.lanes[together], p.lanes[i] = p.lanes[i], p.lanes[together]
		together++
	}
	if together == 0 {
		return nil
	}
	for i := range p.lanes[:together] {
		l := &p.lanes[i]
		p.slots, p.past, p.tokens = append(p.slots, l.cache.slot), append(p.past, l.past), append(p.tokens, l.padded(width))
	}
	logits, err := p.lanes[0].cache.model.Forward(ctx, p.slots, p.past, p.tokens)
	if err != nil {
		return err
	}
	for i := range p.lanes[:together] {
		l := &p.lanes[i]
		vocab := l.cache.model.Vocab()
		from := i * width * vocab
		l.done(logits[from : from+len(l.tokens)*vocab])
	}
	return nil
}

// run feeds one lane alone and keeps its logits through the passes of others.
func (l *feed) run(ctx context.Context, width int) error {
	logits, err := l.cache.model.Forward(ctx, []int{l.cache.slot}, []int{l.past}, [][]int32{l.padded(width)})
	if err != nil {
		return err
	}
	l.spare = append(l.spare[:0], logits[:len(l.tokens)*l.cache.model.Vocab()]...)
	l.done(l.spare)
	return nil
}

// padded returns the tokens with as many more of the last one as make them
// width, and has the cache forget what they overwrite.
func (l *feed) padded(width int) []int32 {
	l.cache.held = l.past // until the pass has succeeded
	tokens := l.tokens
	for len(tokens) < width {
		tokens = append(tokens, tokens[len(tokens)-1])
	}
	l.tokens = tokens[:len(l.tokens)]
	return tokens
}

func (l *feed) done(logits []float32) {
	l.cache.held = l.past + len(l.tokens)
	l.cache.logits = logits
}
