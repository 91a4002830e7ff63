package ort

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

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
	model   *Model
	runtime *C.dm_runtime
	slots   []*crossedSlot

	handles   block // dm_run_handles
	ids, ones block // int64 [Most], the tokens being fed; all 1
	branch    block // bool [1], use_cache_branch
	raw       block // logits of one run in the graph's type
	logits    block // float32 [R, vocab] of the pass
	views     views

	encoder, first, next crossedRun
}

// crossedRun is one of the graphs with what a run of it binds. Views that it has
// no use for are nil.
type crossedRun struct {
	session, binding                    unsafe.Pointer
	inputs, outputs                     []C.dm_view
	ids, mask, states, branch, logits   *C.dm_view
	past, present, crossPast, crossMade []C.dm_view
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
	s := &crossed{model: m, runtime: m.runtime}
	defer func() {
		if err != nil {
			s.free()
		}
	}()
	const word = 8
	l, most := m.bundle.layout, m.bundle.Encoder.Most
	for _, b := range []struct {
		to   *block
		size int
	}{{&s.handles, C.sizeof_dm_run_handles}, {&s.ids, most * word}, {&s.ones, most * word}, {&s.branch, 1}} {
		if *b.to, err = newBlock(s.runtime, nil, b.size); err != nil {
			return nil, err
		}
	}
	ones := view[int64](&s.ones, 0, most)
	for i := range ones {
		ones[i] = 1
	}
	*s.run() = C.dm_run_handles{options: rawRunOptions(options)}
	if s.views, err = newViews(s.runtime, 2*(8+3*len(l.Past))+2*len(l.Past)+8); err != nil {
		return nil, err
	}
	s.encoder.session, s.first.session, s.next.session = m.session.encoder, m.session.session, m.session.session
	if m.session.next != nil {
		s.next.session = m.session.next
	}
	s.nameEncoder(l)
	s.nameDecoder(&s.first, l, l.Cross.First, l.Cross.Merged)
	s.first.crossMade = s.views.name(l.Cross.Present, l.Cache)
	s.first.outputs = s.views.since(s.first.logits)
	s.nameDecoder(&s.next, l, l.Cross.Next, true)
	s.next.outputs = s.views.since(s.next.logits)
	for _, r := range []*crossedRun{&s.encoder, &s.first, &s.next} {
		if err = goError(C.dm_binding_new(s.runtime, r.session, &r.binding)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// one names one view.
func (s *crossed) one(name string, t graph.ElementType) *C.dm_view {
	return &s.views.name([]string{name}, t)[0]
}

func (s *crossed) nameEncoder(l *graph.Layout) {
	r := &s.encoder
	r.ids = s.one("input_ids", graph.Int64)
	if l.Cross.EncoderMask {
		r.mask = s.one("attention_mask", graph.Int64)
	}
	r.inputs = s.views.since(r.ids)
	r.states = s.one("last_hidden_state", l.Cross.States)
	r.outputs = s.views.since(r.states)
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

func (s *crossed) run() *C.dm_run_handles { return (*C.dm_run_handles)(s.handles.data) }

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
func (s *crossed) keep(spans []span, rows int) (kept, error) {
	if _, err := s.forward(spans, rows); err != nil {
		return kept{}, err
	}
	return kept{data: s.logits.data, elem: graph.Float32, rows: rows}, nil
}

// extend feeds one span. What the input lacks is kept; once it is complete the
// encoder reads it, and the decoder what follows.
func (s *crossed) extend(q *crossedSlot, span *Span, logits []float32) error {
	most := s.model.bundle.Encoder.Most
	behind := span.Past + len(span.Tokens) - span.Input
	switch {
	case span.Input < 1:
		return errors.New("an encoder-decoder model is to be told how many of the tokens are its input")
	case span.Input > most || behind > most:
		return fmt.Errorf("an input of %d tokens with %d behind it: %w: the encoder and the decoder take %d each", span.Input, max(0, behind), ErrContextFull, most)
	case span.Rows > max(0, behind):
		return fmt.Errorf("logits are wanted after %d tokens, of which %d are the input's", span.Rows, span.Rows-max(0, behind))
	}
	s.rollback(q, span.Past)
	if q.input != nil && q.input.length != span.Input { // the same tokens, divided otherwise
		q.forget()
	}
	q.tokens = append(q.tokens, span.Tokens...)
	if behind < 0 {
		return nil
	}
	if q.input == nil {
		if err := s.encode(q, span.Input); err != nil {
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

// encode runs the encoder over the first n tokens.
func (s *crossed) encode(q *crossedSlot, n int) (err error) {
	c, r := s.model.bundle.layout.Cross, &s.encoder
	e := &encoded{holders: 1, length: n}
	if e.states, err = newBlock(s.runtime, nil, n*c.Width*c.States.Size()); err != nil {
		return err
	}
	s.feed(r, q.tokens[:n], n)
	setView(r.states, e.states.data, c.States.Size(), 1, n, c.Width)
	if err := s.forwardOnce(r); err != nil {
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
		setView(r.states, e.states.data, l.Cross.States.Size(), 1, e.length, l.Cross.Width)
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
	if err := s.forwardOnce(r); err != nil {
		if e.tensors == nil {
			freeBlocks(made)
		}
		return err
	}
	e.tensors = made
	q.current, q.held = 1-q.current, past+n
	return nil
}

// feed sets the ids of a run and the mask of an input of so many tokens.
func (s *crossed) feed(r *crossedRun, tokens []int32, input int) {
	ids := view[int64](&s.ids, 0, len(tokens))
	for i, t := range tokens {
		ids[i] = int64(t)
	}
	setView(r.ids, s.ids.data, 8, 1, len(tokens))
	if r.mask != nil {
		setView(r.mask, s.ones.data, 8, 1, input)
	}
}

func (s *crossed) forwardOnce(r *crossedRun) error {
	run := s.run()
	run.session, run.binding = r.session, r.binding
	return goError(C.dm_forward(s.runtime, run, &r.inputs[0], C.size_t(len(r.inputs)), &r.outputs[0], C.size_t(len(r.outputs))))
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
	for _, r := range []*crossedRun{&s.encoder, &s.first, &s.next} {
		if r.binding != nil {
			C.dm_binding_free(s.runtime, r.binding)
			r.binding = nil
		}
	}
	for _, q := range s.slots {
		q.free()
	}
	s.slots = nil
	for _, b := range []*block{&s.handles, &s.ids, &s.ones, &s.branch, &s.raw, &s.logits} {
		b.free()
	}
	s.views.free()
}
