package ort

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/graph"
)

// crossed are the caches of an encoder-decoder model, and its passes, one
// sequence after another.
//
// The tokens of a sequence's input are kept until they are complete; then the
// encoder reads them, once. The decoder's first run makes the keys and values
// that its layers read of the encoder's states. Sequences that share the input
// share both. The decoder's own cache grows as in growing.go, in two sets of
// buffers for each sequence.
type crossed struct {
	encoding
	slots []*crossedSlot

	branch block // bool [1], use_cache_branch
	raw    block // logits of one run in the graph's type
	logits block // float32 [R, vocab] of the pass

	first, next crossedRun
}

// crossedSlot is one sequence.
type crossedSlot struct {
	tokens  []int32    // that are cached, the input's included; own memory
	input   *encoded   // nil: what is cached of the input is not all of it
	tensors [2][]block // the decoder's keys and values: past and present take turns
	current int        // the set that holds the past
	held    int        // tokens in it
}

// encoded is what the model makes of an input; several sequences may hold it.
type encoded struct {
	holders int
	length  int     // tokens of the input
	states  block   // [1, length, width]
	tensors []block // the decoder's keys and values of the states; none before its first run
}

func newCrossed(m *Model, options *yort.RunOptions) (_ *crossed, err error) {
	s := &crossed{}
	defer func() {
		if err != nil {
			s.free()
		}
	}()
	l := m.bundle.layout
	if err = s.open(m, options, 2*(6+3*len(l.Past))+2*len(l.Past)+8); err != nil {
		return nil, err
	}
	if s.branch, err = newBlock(s.runtime, nil, 1); err != nil {
		return nil, err
	}
	s.first.session, s.next.session = m.session.session, m.session.session
	if m.session.next != nil {
		s.next.session = m.session.next
	}
	s.nameDecoder(&s.first, l, l.Cross.First, l.Cross.Merged)
	s.first.crossMade = s.views.name(l.Cross.Present, l.Cache)
	s.first.outputs = s.views.since(s.first.logits)
	s.nameDecoder(&s.next, l, l.Cross.Next, true)
	s.next.outputs = s.views.since(s.next.logits)
	for _, r := range []*crossedRun{&s.first, &s.next} {
		if err = s.bind(r); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// nameDecoder names what a run of the decoder takes, and gives of every run.
func (s *crossed) nameDecoder(r *crossedRun, l *graph.Layout, takes graph.CrossInputs, past bool) {
	r.ids = s.one("input_ids", graph.Int64)
	if takes.Mask {
		r.mask = s.one("encoder_attention_mask", graph.Int64)
	}
	if takes.States {
		r.states = s.one("encoder_hidden_states", l.Cross.States)
	}
	if l.Cross.Merged {
		r.branch = s.one("use_cache_branch", graph.Bool)
	}
	if past {
		r.past = s.views.name(l.Past, l.Cache)
		r.crossPast = s.views.name(l.Cross.Past, l.Cache)
	}
	r.inputs = s.views.since(r.ids)
	r.logits = s.one("logits", l.Logits)
	r.present = s.views.name(l.Present, l.Cache)
}

func (s *crossed) add() error {
	slot, b := &crossedSlot{}, s.model.bundle
	for i := range slot.tensors {
		slot.tensors[i] = make([]block, len(b.layout.Past))
		if err := s.newTensors(slot.tensors[i], b.Encoder.Most); err != nil {
			slot.free()
			return err
		}
	}
	s.slots = append(s.slots, slot)
	return nil
}

// newTensors allocates keys and values of all layers for n tokens.
func (s *crossed) newTensors(to []block, n int) (err error) {
	for i := range to {
		if to[i], err = newBlock(s.runtime, nil, s.model.bundle.KVHeads*n*s.row()); err != nil {
			return err
		}
	}
	return nil
}

// row is the size in bytes of one head's entry of one token.
func (s *crossed) row() int { return s.model.bundle.HeadSize * s.model.bundle.layout.Cache.Size() }

func (s *crossed) capacity() int                           { return 0 }
func (s *crossed) reserve(slot, past, n int) (bool, error) { return true, nil }
func (s *crossed) truncate(slot, n int)                    { s.rollback(s.slots[slot], n) }

// rollback keeps the first n tokens of a sequence.
func (s *crossed) rollback(q *crossedSlot, n int) {
	q.tokens = q.tokens[:min(n, len(q.tokens))]
	if q.input == nil {
		return
	}
	if n < q.input.length {
		q.forget()
		return
	}
	if n -= q.input.length; n < q.held {
		// Towards the start, head by head: nothing is overwritten before it is moved.
		s.pack(q, q, n)
	}
}

// pack makes the first n tokens of src's own cache, which may be the same, those
// of dst.
func (s *crossed) pack(dst, src *crossedSlot, n int) {
	row := s.row()
	for i := range dst.tensors[dst.current] {
		to, from := &dst.tensors[dst.current][i], &src.tensors[src.current][i]
		for h := range s.model.bundle.KVHeads {
			copy(view[byte](to, h*n*row, n*row), view[byte](from, h*src.held*row, n*row))
		}
	}
	dst.held = n
}

func (s *crossed) share(dst, src, n int) error {
	to, from := s.slots[dst], s.slots[src]
	to.forget()
	to.tokens = append(to.tokens[:0], from.tokens[:n]...)
	if from.input != nil && n >= from.input.length {
		to.input = from.input
		to.input.holders++
		s.pack(to, from, min(from.held, n-from.input.length))
	}
	return nil
}

func (s *crossed) forward(spans []span, rows int) ([]float32, error) {
	vocab := s.model.Vocab()
	if err := growBlock(s.runtime, &s.logits, 4*rows*vocab); err != nil {
		return nil, err
	}
	at := 0
	for i := range spans {
		span := &spans[i]
		if span.held < span.Past {
			if err := s.share(span.Slot, span.lender, span.Past); err != nil {
				return nil, err
			}
		}
		if err := s.extend(s.slots[span.Slot], &span.Span, view[float32](&s.logits, 4*at*vocab, span.Rows*vocab)); err != nil {
			return nil, fmt.Errorf("slot %d: %w", span.Slot, err)
		}
		at += span.Rows
	}
	return view[float32](&s.logits, 0, rows*vocab), nil
}

// keep leaves the logits where forward does: such models run on the CPU only.
func (s *crossed) keep(spans []span, rows int, drawn []drawnTokens) (kept, error) {
	spans = knownHere(spans, drawn)
	if _, err := s.forward(spans, rows); err != nil {
		return kept{}, err
	}
	return kept{data: s.logits.data, elem: graph.Float32, rows: rows}, nil
}

// checkInput refuses a span whose input or what is behind it does not fit.
func checkInput(most int, span *Span) error {
	behind := span.Past + len(span.Tokens) - span.Input
	switch {
	case span.Input < 1:
		return errors.New("an encoder-decoder model is to be told how many of the tokens are its input")
	case span.Input > most || behind > most:
		return fmt.Errorf("an input of %d tokens with %d behind it: %w: the encoder and the decoder take %d each", span.Input, max(0, behind), ErrContextFull, most)
	case span.Rows > max(0, behind):
		return fmt.Errorf("logits are wanted after %d tokens, of which %d are the input's", span.Rows, span.Rows-max(0, behind))
	}
	return nil
}

// extend feeds one span. What the input lacks is kept; once it is complete the
// encoder reads it, and the decoder what follows.
func (s *crossed) extend(q *crossedSlot, span *Span, logits []float32) error {
	if err := checkInput(s.model.bundle.Encoder.Most, span); err != nil {
		return err
	}
	behind := span.Past + len(span.Tokens) - span.Input
	s.rollback(q, span.Past)
	if q.input != nil && q.input.length != span.Input { // the same tokens, divided otherwise
		q.forget()
	}
	q.tokens = append(q.tokens, span.Tokens...)
	if behind < 0 {
		return nil
	}
	if q.input == nil {
		if err := s.take(q, span.Input); err != nil {
			return fmt.Errorf("encode %d tokens: %w", span.Input, err)
		}
	}
	for tokens := q.tokens[span.Input+q.held:]; len(tokens) > 0; {
		n := min(len(tokens), runTokens)
		if err := s.decode(q, tokens[:n]); err != nil {
			return err
		}
		tokens = tokens[n:]
		wanted := min(n, max(0, span.Rows-len(tokens))) // of this run, its last ones
		to := logits[:wanted*s.model.Vocab()]
		logits = logits[len(to):]
		keepRows(to, &s.raw, n-wanted, s.model.Vocab(), s.model.bundle.layout.Logits)
	}
	return nil
}

// take makes the first n tokens the input.
func (s *crossed) take(q *crossedSlot, n int) (err error) {
	e := &encoded{holders: 1, length: n}
	if e.states, err = newBlock(s.runtime, nil, s.stateBytes(n)); err != nil {
		return err
	}
	if err := s.encode(q.tokens[:n], &e.states); err != nil {
		e.states.free()
		return err
	}
	q.input, q.held = e, 0
	return nil
}

// decode runs the decoder over tokens behind those that its cache holds.
func (s *crossed) decode(q *crossedSlot, tokens []int32) error {
	b, l, e := s.model.bundle, s.model.bundle.layout, q.input
	n, r, made := len(tokens), &s.next, e.tensors
	if made == nil {
		made, r = make([]block, len(l.Cross.Present)), &s.first
		if err := s.newTensors(made, e.length); err != nil {
			freeBlocks(made)
			return err
		}
	}
	if err := growBlock(s.runtime, &s.raw, n*b.Vocab*l.Logits.Size()); err != nil {
		return err
	}
	s.feed(r, tokens, e.length)
	if r.states != nil {
		s.setStates(r, &e.states, e.length)
	}
	if r.branch != nil {
		view[bool](&s.branch, 0, 1)[0] = r == &s.next
		setView(r.branch, s.branch.data, 1, 1)
	}
	setView(r.logits, s.raw.data, l.Logits.Size(), 1, n, b.Vocab)
	setCaches := func(views []C.dm_view, tensors []block, length int) {
		for i := range views {
			setView(&views[i], tensors[i].data, l.Cache.Size(), 1, b.KVHeads, length, b.HeadSize)
		}
	}
	past, crossPast := q.held, e.length
	if r == &s.first { // a merged graph takes caches there too, empty ones
		past, crossPast = 0, 0
	}
	setCaches(r.past, q.tensors[q.current], past)
	setCaches(r.crossPast, made, crossPast)
	setCaches(r.crossMade, made, e.length)
	setCaches(r.present, q.tensors[1-q.current], past+n)
	if err := s.encoding.forward(r); err != nil {
		if e.tensors == nil {
			freeBlocks(made)
		}
		return err
	}
	e.tensors = made
	q.current, q.held = 1-q.current, past+n
	return nil
}

// forget lets the input's states go, and with them all that was made of them.
func (q *crossedSlot) forget() {
	q.held = 0
	if e := q.input; e != nil {
		q.input = nil
		if e.holders--; e.holders == 0 {
			e.states.free()
			freeBlocks(e.tensors)
		}
	}
}

func (q *crossedSlot) free() {
	q.forget()
	for _, set := range q.tensors {
		freeBlocks(set)
	}
}

func freeBlocks(blocks []block) {
	for i := range blocks {
		blocks[i].free()
	}
}

// free releases bindings before the memory that is bound.
func (s *crossed) free() {
	s.release(&s.first)
	s.release(&s.next)
	for _, q := range s.slots {
		q.free()
	}
	s.slots = nil
	for _, b := range []*block{&s.branch, &s.raw, &s.logits} {
		b.free()
	}
	s.encoding.free()
}
