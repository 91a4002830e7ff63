package ort

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	yort "github.com/yalue/onnxruntime_go"
)

// ErrContextFull is wrapped by Forward when the tokens do not fit into the
// sequence's cache.
var ErrContextFull = errors.New("context is full")

// ErrNoBlocks is wrapped by Forward when the pool of cache blocks has no room
// for the tokens. Reserve says so beforehand.
var ErrNoBlocks = errors.New("no cache block is free")

// ErrClosed is wrapped by calls on a closed decoder, and by a Forward that
// Close interrupted.
var ErrClosed = errors.New("decoder is closed")

// Span is what one pass does with one sequence: it feeds Tokens behind the
// first Past tokens of the sequence's cache, and returns the logits after each
// of the last Rows of them. A Past smaller than what the cache holds is the
// rollback.
type Span = struct {
	Slot   int
	Past   int
	Tokens []int32
	Rows   int // 0 to len(Tokens); of tokens behind the input only
	Input  int // the sequence's first tokens that an encoder reads, see Encoder; a decoder-only model does not look at it
	// From, if not 0, is 1 + the number of an earlier span of the pass whose
	// sequence begins with the same Past tokens. What the slot lacks of them is taken
	// from there, so that no token is fed twice in a pass.
	From int
}

// span is a Span that was checked.
type span struct {
	Span
	held   int // tokens of the slot that stand: Past, or fewer where From is not 0
	lender int // the slot that has the others
}

// Decoder runs a model over KV caches of its own. It is used by one goroutine
// at a time; several decoders may share a model. Only Close may be called while
// another call is running.
type Decoder struct {
	model   *Model
	options *yort.RunOptions
	cancel  canceller
	closing atomic.Bool

	mu     sync.Mutex // held through every call
	closed bool
	slots  []slot
	spans  []span // of the pass under way
	pass   int64  // counts passes
	kept   kept   // of the last one
	refs   int    // tokens that the spans of the one under way may name, see drawnTokens
	caches caches
}

// slot is the place of one sequence.
type slot struct {
	used   bool
	cached int   // tokens that the cache holds
	seen   int64 // the last pass that named it
}

// caches are the KV caches of a decoder's slots, and the passes over them. What
// is passed to them has been checked.
type caches interface {
	// add makes the cache of one slot more, empty.
	add() error
	// reserve makes room for n tokens behind the first past ones of a slot.
	reserve(slot, past, n int) (ok bool, err error)
	// share makes slot dst hold the first n tokens of slot src.
	share(dst, src, n int) error
	// truncate gives back what the first n tokens of a slot do not need.
	truncate(slot, n int)
	// capacity is how many tokens all slots together can hold, 0 where each has
	// memory of its own.
	capacity() int
	// run is what the last pass ran, for another run of the same.
	run() *C.dm_run_handles
	// forward makes the pass. The logits are valid until the next one.
	forward(spans []span, rows int) ([]float32, error)
	// keep makes the pass, too, over spans that may name what was drawn, and leaves its
	// logits where the session runs.
	keep(spans []span, rows int, drawn []drawnTokens) (kept, error)
	free()
}

// NewDecoder makes a decoder without slots. The caller closes it. Its sequences
// may take cacheBytes of memory for their keys and values, which the system
// provides as it is used; 0 is room for defaultSequences of the whole context.
// Where the graph runs one sequence at a time (see Model.Ragged), each slot has
// memory of its own instead and cacheBytes is not looked at.
func (m *Model) NewDecoder(cacheBytes int) (*Decoder, error) {
	d, err := m.newDecoder(cacheBytes)
	if err != nil {
		return nil, fmt.Errorf("new decoder of %s: %w", m.bundle.Dir, err)
	}
	return d, nil
}

func (m *Model) newDecoder(cacheBytes int) (*Decoder, error) {
	if err := m.acquire(); err != nil {
		return nil, err
	}
	d := &Decoder{model: m}
	d.device().lock()
	defer d.device().unlock()
	var err error
	if d.options, err = yort.NewRunOptions(); err == nil {
		d.cancel.options = d.options
		switch {
		case m.session.ragged != nil && m.bundle.Encoder != nil:
			d.caches, err = newCrossedPaged(m, d.options, cacheBytes)
		case m.session.ragged != nil:
			d.caches, err = newPaged(m, d.options, cacheBytes)
		case m.bundle.Encoder != nil:
			d.caches, err = newCrossed(m, d.options)
		default:
			d.caches, err = newSolo(m, d.options)
		}
	}
	if err != nil {
		d.caches = nil // an error has none: what it holds is a nil pointer of some type
		return nil, errors.Join(err, d.free())
	}
	return d, nil
}

func (d *Decoder) device() *device { return d.model.session.device }

// Vocab is the number of logits per position.
func (d *Decoder) Vocab() int { return d.model.Vocab() }

// Context is the most tokens of a sequence.
func (d *Decoder) Context() int {
	if n := d.caches.capacity(); n > 0 {
		return min(n, d.model.context)
	}
	return d.model.context
}

// Capacity is how many tokens all sequences together can hold: that of the pool
// of cache blocks, shared blocks counted once. It is 0 where each sequence has
// memory for a whole context of its own.
func (d *Decoder) Capacity() int { return d.caches.capacity() }

// Alloc gives an empty cache for one sequence.
func (d *Decoder) Alloc() (int, error) {
	d.enter()
	defer d.leave()
	if d.closed {
		return 0, fmt.Errorf("allocate a slot: %w", ErrClosed)
	}
	for i := range d.slots {
		if s := &d.slots[i]; !s.used {
			s.used, s.cached = true, 0
			return i, nil
		}
	}
	if err := d.caches.add(); err != nil {
		return 0, fmt.Errorf("allocate a slot: %w", d.device().explain(err))
	}
	d.slots = append(d.slots, slot{used: true})
	return len(d.slots) - 1, nil
}

// Free ends a sequence and gives its blocks back; its slot may be given out
// again. Freeing a slot that is not allocated panics; after Close it does
// nothing.
func (d *Decoder) Free(slot int) {
	d.enter()
	defer d.leave()
	if d.closed {
		return
	}
	if !d.allocated(slot) {
		panic(fmt.Sprintf("ort: free of slot %d, which is not allocated", slot))
	}
	d.caches.truncate(slot, 0)
	d.slots[slot].used = false
}

// Share makes slot dst hold the first n cached tokens of slot src, and nothing
// else: what follows them in dst is what would follow them in src, to the bit.
// Both are allocated and differ, and n is at most what src caches. Caches in
// blocks share them; the block that both go on writing to is copied when the
// first of them does. After an error of the device dst is empty.
func (d *Decoder) Share(dst, src, n int) error {
	d.enter()
	defer d.leave()
	if err := d.share(dst, src, n); err != nil {
		return fmt.Errorf("share %d tokens of slot %d with slot %d: %w", n, src, dst, err)
	}
	return nil
}

func (d *Decoder) share(dst, src, n int) error {
	if d.closed {
		return ErrClosed
	}
	for _, id := range []int{dst, src} {
		if !d.allocated(id) {
			return fmt.Errorf("slot %d is not allocated", id)
		}
	}
	switch {
	case dst == src:
		return errors.New("they are the same")
	case n < 0 || n > d.slots[src].cached:
		return fmt.Errorf("%d tokens are cached", d.slots[src].cached)
	}
	d.slots[dst].cached = 0 // what an error leaves
	if err := d.caches.share(dst, src, n); err != nil {
		return d.device().explain(err)
	}
	d.slots[dst].cached = n
	return nil
}

// Reserve makes room for n tokens behind the first past ones of a slot, so that
// a Forward that feeds them there finds it. It returns false where too few
// blocks are free, or the device has no memory left; then nothing has changed.
// What the slot holds behind past may be lost.
func (d *Decoder) Reserve(slot, past, n int) bool {
	d.enter()
	defer d.leave()
	if d.closed || d.checkRoom(slot, past, n) != nil {
		return false
	}
	ok, err := d.caches.reserve(slot, past, n)
	if ok {
		d.slots[slot].cached = min(d.slots[slot].cached, past)
	}
	return ok && err == nil
}

// Truncate forgets all but the first n tokens of a slot and gives back the
// blocks of the others.
func (d *Decoder) Truncate(slot, n int) {
	d.enter()
	defer d.leave()
	if d.closed {
		return
	}
	if !d.allocated(slot) {
		panic(fmt.Sprintf("ort: truncate slot %d, which is not allocated", slot))
	}
	s := &d.slots[slot]
	s.cached = min(s.cached, max(0, n))
	d.caches.truncate(slot, s.cached)
}

// Forward makes one pass over some sequences, each with any number of tokens
// from 1 on. The logits of all spans' wanted rows follow each other, in the
// order of the spans: [sum of Rows, Vocab]. They belong to the decoder, are
// outside Go's heap, and are valid until its next Forward or Close.
//
// On the CPU, where the graph was rewritten (see Model.Ragged), a row's logits
// depend on the sequence's tokens up to it alone, to the bit: not on the other
// spans, on how many tokens are fed together, or on how the cache came about.
//
// When ctx ends, the pass in progress is terminated and waited for, and the
// error wraps ctx's. After an error each slot keeps what it held of its first
// Past tokens.
func (d *Decoder) Forward(ctx context.Context, spans []Span) ([]float32, error) {
	d.enter()
	defer d.leave()
	logits, err := d.forward(ctx, spans)
	if err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	return logits, nil
}

func (d *Decoder) forward(ctx context.Context, spans []Span) (logits []float32, err error) {
	err = d.run(ctx, spans, func(rows int) (err error) {
		logits, err = d.caches.forward(d.spans, rows)
		return err
	})
	return logits, err
}

// run makes a pass over spans that it has checked and made room for.
func (d *Decoder) run(ctx context.Context, spans []Span, pass func(rows int) error) error {
	d.kept = kept{}
	rows, err := d.check(spans)
	if err != nil {
		return err
	}
	if err := d.cancel.arm(ctx); err != nil {
		return err
	}
	d.spans = d.spans[:0]
	for _, s := range spans {
		slot := &d.slots[s.Slot]
		held := min(slot.cached, s.Past)
		slot.cached = held
		ok, err := d.caches.reserve(s.Slot, held, s.Past-held+len(s.Tokens))
		if err != nil {
			return d.device().explain(err)
		}
		if !ok {
			return fmt.Errorf("slot %d: %d tokens after %d: %w: all slots together hold %d tokens", s.Slot, len(s.Tokens), s.Past, ErrNoBlocks, d.Capacity())
		}
		checked := span{Span: s, held: held}
		if s.From > 0 {
			checked.lender = spans[s.From-1].Slot
		}
		d.spans = append(d.spans, checked)
	}
	if err := pass(rows); err != nil {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case d.closing.Load():
			return ErrClosed
		}
		return fmt.Errorf("a pass over %d sequences: %w", len(spans), d.device().explain(err))
	}
	for i := range spans {
		d.slots[spans[i].Slot].cached = spans[i].Past + len(spans[i].Tokens)
	}
	return nil
}

// check refuses what the engine, or the model, would answer with garbage, and
// counts the rows that are wanted.
func (d *Decoder) check(spans []Span) (rows int, err error) {
	if d.closed {
		return 0, ErrClosed
	}
	if len(spans) == 0 {
		return 0, errors.New("no spans")
	}
	d.pass++
	for i := range spans {
		s := &spans[i]
		past := s.Past
		if s.From > 0 && s.From <= i && d.allocated(s.Slot) {
			past = min(past, d.slots[s.Slot].cached)
		}
		if err := d.checkRoom(s.Slot, past, s.Past-past+len(s.Tokens)); err != nil {
			return 0, err
		}
		slot := &d.slots[s.Slot]
		switch {
		case s.From < 0 || s.From > i:
			return 0, fmt.Errorf("slot %d begins like span %d of the pass, which is not before its own", s.Slot, s.From-1)
		case s.From > 0 && s.Past > spans[s.From-1].Past+len(spans[s.From-1].Tokens):
			return 0, fmt.Errorf("slot %d begins with %d tokens of span %d, which has fewer", s.Slot, s.Past, s.From-1)
		case len(s.Tokens) == 0:
			return 0, fmt.Errorf("slot %d: no tokens", s.Slot)
		case slot.seen == d.pass:
			return 0, fmt.Errorf("slot %d is named twice", s.Slot)
		case s.Rows < 0 || s.Rows > len(s.Tokens):
			return 0, fmt.Errorf("slot %d: %d rows of %d tokens", s.Slot, s.Rows, len(s.Tokens))
		}
		slot.seen = d.pass
		for _, t := range s.Tokens {
			if int(t) < -d.refs || int(t) >= d.Vocab() {
				return 0, fmt.Errorf("slot %d: token %d is outside the vocabulary of %d", s.Slot, t, d.Vocab())
			}
		}
		rows += s.Rows
	}
	return rows, nil
}

// checkRoom refuses a place in a slot that does not exist.
func (d *Decoder) checkRoom(slot, past, n int) error {
	if !d.allocated(slot) {
		return fmt.Errorf("slot %d is not allocated", slot)
	}
	switch cached := d.slots[slot].cached; {
	case past < 0 || past > cached:
		return fmt.Errorf("slot %d: past %d, but %d tokens are cached", slot, past, cached)
	case n < 0 || past+n > d.Context():
		return fmt.Errorf("slot %d: %d tokens after %d: %w: it holds %d", slot, n, past, ErrContextFull, d.Context())
	}
	return nil
}

// allocated reports whether the slot is one that Alloc gave out.
func (d *Decoder) allocated(slot int) bool {
	return slot >= 0 && slot < len(d.slots) && d.slots[slot].used
}

// enter begins a call, leave ends it.
func (d *Decoder) enter() {
	d.mu.Lock()
	d.device().lock()
}

func (d *Decoder) leave() {
	d.device().unlock()
	d.mu.Unlock()
}

// Close terminates a Forward that is running, waits for it, and frees the
// caches. Closing twice is harmless.
func (d *Decoder) Close() error {
	d.closing.Store(true)
	d.cancel.close()
	d.enter()
	defer d.leave()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.free()
}

// free releases the caches and then the session.
func (d *Decoder) free() error {
	var err error
	if d.options != nil {
		err = errors.Join(d.cancel.disarm(), d.options.Destroy())
	}
	if d.caches != nil {
		d.device().settle()
		d.caches.free()
	}
	d.slots = nil
	return errors.Join(err, d.model.release())
}
