package ort

// #include "shim.h"
import "C"

import (
	"fmt"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/graph"
)

// crossedPaged are the caches of an encoder-decoder model whose decoder takes ragged
// passes. They are a decoder's (paged.go): the first places of a sequence hold, in
// each layer, keys and values of the encoder's states, and what the decoder is fed
// follows them. So sequences share an input as they share any beginning, by its
// blocks, and one table of blocks serves both kinds of attention.
//
// The encoder reads an input once it is complete, by itself. Until then its tokens are
// kept, and nothing is in the cache.
type crossedPaged struct {
	*paged
	encoding encoding
	keys     crossedRun
	states   block   // of the input being encoded
	made     []block // keys and values of it, [tokens, KV heads, head size]; in the order of the graph's caches
	lanes    []crossedLane
	spans    []span // of the run
}

// crossedLane is one sequence.
type crossedLane struct {
	tokens []int32 // that are cached, the input's included; own memory
	input  int     // tokens of the input that the cache holds; 0: what there is of it is not all, or not encoded
	fed    int     // tokens that the cache holds, the input's included; at least input
}

func newCrossedPaged(m *Model, options *yort.RunOptions, cacheBytes int) (_ *crossedPaged, err error) {
	c := &crossedPaged{}
	if c.paged, err = newPaged(m, options, cacheBytes); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.free()
		}
	}()
	l := m.bundle.layout
	e, r := &c.encoding, &c.keys
	if err = e.open(m, options, 1+len(l.Cross.Present)); err != nil {
		return nil, err
	}
	r.session = m.session.keys
	r.states = e.one("encoder_hidden_states", l.Cross.States)
	r.inputs = e.views.since(r.states)
	r.crossMade = e.views.name(l.Cross.Present, l.Cache)
	r.outputs = r.crossMade
	c.made = make([]block, len(r.crossMade))
	return c, e.bind(r)
}

func (c *crossedPaged) add() error {
	c.lanes = append(c.lanes, crossedLane{})
	return c.paged.add()
}

// reserve makes room for all that is to be written: the whole of a sequence whose
// input is still to be encoded.
func (c *crossedPaged) reserve(slot, past, n int) (bool, error) {
	q := &c.lanes[slot]
	if past < q.input || q.input == 0 {
		c.forget(slot)
	}
	from := min(past, q.fed)
	return c.paged.reserve(slot, from, past-from+n)
}

// forget gives back the blocks of an input; its tokens stay.
func (c *crossedPaged) forget(slot int) {
	c.lanes[slot].input, c.lanes[slot].fed = 0, 0
	c.paged.truncate(slot, 0)
}

func (c *crossedPaged) share(dst, src, n int) error {
	to, from := &c.lanes[dst], &c.lanes[src]
	c.forget(dst)
	to.tokens = append(to.tokens[:0], from.tokens[:n]...)
	if from.input == 0 || n < from.input {
		return nil
	}
	to.input, to.fed = from.input, min(from.fed, n)
	return c.paged.share(dst, src, n)
}

func (c *crossedPaged) truncate(slot, n int) {
	q := &c.lanes[slot]
	q.tokens = q.tokens[:min(n, len(q.tokens))]
	if n < q.input || q.input == 0 {
		c.forget(slot)
		return
	}
	q.fed = min(q.fed, n)
	c.paged.truncate(slot, n)
}

func (c *crossedPaged) forward(spans []span, rows int) ([]float32, error) {
	if err := c.begin(spans); err != nil || len(c.spans) == 0 {
		return nil, err
	}
	logits, err := c.paged.forward(c.spans, rows)
	c.end(err)
	return logits, err
}

func (c *crossedPaged) keep(spans []span, rows int, drawn []drawnTokens) (kept, error) {
	if err := c.begin(knownHere(spans, drawn)); err != nil || len(c.spans) == 0 {
		return kept{elem: graph.Float32}, err
	}
	k, err := c.paged.keep(c.spans, rows, nil)
	c.end(err)
	return k, err
}

// begin encodes inputs that are complete now, and says what the decoder is fed.
func (c *crossedPaged) begin(spans []span) error {
	c.spans = c.spans[:0]
	for i := range spans {
		s := &spans[i]
		if err := checkInput(c.model.bundle.Encoder.Most, &s.Span); err != nil {
			return fmt.Errorf("slot %d: %w", s.Slot, err)
		}
		q := &c.lanes[s.Slot]
		q.fed = min(q.fed, s.held)
		q.tokens = q.tokens[:min(s.held, len(q.tokens))]
		if s.held < s.Past {
			q.tokens = append(q.tokens, c.lanes[s.lender].tokens[s.held:s.Past]...)
		}
		q.tokens = append(q.tokens, s.Tokens...)
		if len(q.tokens) < s.Input {
			continue
		}
		fed := *s
		lent := s.held < s.Past && c.lanes[s.lender].input == s.Input && s.Past >= s.Input
		switch {
		case q.input == s.Input:
		case lent && q.input == 0:
			q.input = s.Input // copied with the rest
		default:
			lent = false
			if err := c.encode(s.Slot, s.Input); err != nil {
				return fmt.Errorf("slot %d: encode %d tokens: %w", s.Slot, s.Input, err)
			}
		}
		fed.held = q.fed
		if !lent { // what was divided otherwise before is fed again
			fed.Past = q.fed
		}
		fed.Tokens = q.tokens[fed.Past:]
		if len(fed.Tokens) > 0 {
			c.spans = append(c.spans, fed)
		}
	}
	return nil
}

// end notes what a run has left in the cache.
func (c *crossedPaged) end(err error) {
	for _, s := range c.spans {
		if q := &c.lanes[s.Slot]; err == nil {
			q.fed = s.Past + len(s.Tokens)
		} else if q.fed < q.input { // it was to be copied from another sequence
			c.forget(s.Slot)
		}
	}
}

// encode makes the first n tokens of a sequence its input, in blocks of its own.
func (c *crossedPaged) encode(slot, n int) error {
	q, e, r, b := &c.lanes[slot], &c.encoding, &c.keys, c.model.bundle
	if q.input > 0 {
		c.forget(slot)
		switch ok, err := c.paged.reserve(slot, 0, len(q.tokens)); {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("%d tokens in blocks of its own: %w", len(q.tokens), ErrNoBlocks)
		}
	}
	if err := growBlock(c.runtime, &c.states, e.stateBytes(n)); err != nil {
		return err
	}
	if err := e.encode(q.tokens[:n], &c.states); err != nil {
		return err
	}
	e.setStates(r, &c.states, n)
	for i := range r.crossMade {
		if err := growBlock(c.runtime, &c.made[i], n*c.token); err != nil {
			return err
		}
		setView(&r.crossMade[i], c.made[i].data, b.layout.Cache.Size(), 1, n, b.KVHeads*b.HeadSize)
	}
	if err := e.forward(r); err != nil {
		return err
	}
	table, size := c.tables[slot], c.paging.block
	for i := range c.made {
		for from := 0; from < n; from += size {
			bytes := min(size, n-from) * c.token
			copy(view[byte](&c.tensors[i], int(table[from/size])*size*c.token, bytes), view[byte](&c.made[i], from*c.token, bytes))
		}
	}
	q.input, q.fed = n, n
	return nil
}

func (c *crossedPaged) free() {
	c.encoding.release(&c.keys)
	c.encoding.free()
	c.states.free()
	freeBlocks(c.made)
	c.paged.free()
}
