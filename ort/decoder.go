package ort

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/graph"
)

// ErrContextFull is wrapped by Forward when the tokens do not fit into the
// slot's cache.
var ErrContextFull = errors.New("context is full")

// ErrClosed is wrapped by calls on a closed decoder, and by a Forward that
// Close interrupted.
var ErrClosed = errors.New("decoder is closed")

// Decoder runs a model over KV caches of its own. It is used by one goroutine
// at a time; several decoders may share a model. Only Close may be called while
// another call is running.
type Decoder struct {
	model   *Model
	runtime *C.dm_runtime
	session unsafe.Pointer // OrtSession of one lane, the model's
	options *yort.RunOptions
	cancel  canceller
	closing atomic.Bool

	mu     sync.Mutex // held through every call
	closed bool
	slots  []*slot
	round  int64 // counts calls of Forward
	lanes  laneMemory
	mover  *mover // of all tensors of a cache; nil on the CPU

	// Memory that C reads during a run.
	handles   block // dm_run_handles
	ids       block // int64 [context] at least, the tokens being fed
	ones      block // int64 [context], all 1: the mask of any length
	positions block // int64 [context], 0, 1, 2, ...
	names     []*C.char
	views     block // dm_view: the inputs of a step, the logits, past, present
	logits    block // [lanes, S, vocab] in the graph's type
	wide      block // the same in float32, for graphs of half precision

	inputs, output, past, present []C.dm_view // in views
	mask, position                *C.dm_view  // in inputs; nil where the graph has none
}

// NewDecoder makes a decoder without slots. The caller closes it.
func (m *Model) NewDecoder() (*Decoder, error) {
	if err := m.acquire(); err != nil {
		return nil, fmt.Errorf("new decoder of %s: %w", m.bundle.Dir, err)
	}
	d := &Decoder{model: m, runtime: m.runtime}
	d.device().lock()
	defer d.device().unlock()
	if err := d.prepare(); err != nil {
		return nil, fmt.Errorf("new decoder of %s: %w", m.bundle.Dir, errors.Join(err, d.free()))
	}
	return d, nil
}

// prepare makes what all slots share.
func (d *Decoder) prepare() (err error) {
	if d.options, err = yort.NewRunOptions(); err != nil {
		return err
	}
	d.cancel.options = d.options

	const word = int(unsafe.Sizeof(int64(0)))
	l, length := d.model.bundle.layout, d.model.context
	for _, b := range []struct {
		to   *block
		size int
	}{
		{&d.handles, C.sizeof_dm_run_handles},
		{&d.ids, length * word},
		{&d.ones, length * word},
		{&d.positions, length * word},
		{&d.views, (4 + len(l.Past) + len(l.Present)) * C.sizeof_dm_view},
	} {
		if *b.to, err = newBlock(d.runtime, nil, b.size); err != nil {
			return err
		}
	}
	ones, positions := view[int64](&d.ones, 0, length), view[int64](&d.positions, 0, length)
	for i := range length {
		ones[i], positions[i] = 1, int64(i)
	}
	if d.session, err = d.model.sessions.of(1); err != nil {
		return err
	}
	d.run().session = d.session
	d.run().options = rawRunOptions(d.options)
	d.run().synchronize = 0
	if dev := d.device(); !dev.onCPU() {
		d.run().synchronize = 1
		if d.mover, err = dev.newMover(len(l.Past)); err != nil {
			return err
		}
	}
	d.layViews(l)
	return d.prepareLanes()
}

// layViews lays out the views: what changes from step to step is written into
// them later, names and types are here for good.
func (d *Decoder) layViews(l *graph.Layout) {
	all := view[C.dm_view](&d.views, 0, 4+len(l.Past)+len(l.Present))
	clear(all)
	inputs := []string{"input_ids"}
	if l.Positions {
		inputs = append(inputs, "position_ids")
	}
	if l.Mask { // last: runs of several lanes have none
		inputs = append(inputs, "attention_mask")
	}
	d.inputs = d.nameViews(&all, inputs, graph.Int64)
	if l.Positions {
		d.position = &d.inputs[1]
	}
	if l.Mask {
		d.mask = &d.inputs[len(inputs)-1]
	}
	d.output = d.nameViews(&all, []string{"logits"}, l.Logits)
	d.past = d.nameViews(&all, l.Past, l.Cache)
	d.present = d.nameViews(&all, l.Present, l.Cache)
}

// nameViews takes the first views for tensors of these names.
func (d *Decoder) nameViews(all *[]C.dm_view, names []string, t graph.ElementType) []C.dm_view {
	vs := (*all)[:len(names):len(names)]
	*all = (*all)[len(names):]
	for i, name := range names {
		cname := C.CString(name)
		d.names = append(d.names, cname)
		vs[i].name, vs[i]._type = cname, C.int32_t(t)
	}
	return vs
}

func (d *Decoder) device() *device { return d.model.sessions.device }

func (d *Decoder) run() *C.dm_run_handles { return (*C.dm_run_handles)(d.handles.data) }

// Vocab is the number of logits per position.
func (d *Decoder) Vocab() int { return d.model.Vocab() }

// Context is the number of tokens that one slot's cache can hold.
func (d *Decoder) Context() int { return d.model.context }

// CacheBytes is the memory of one slot when it is full, see Model.
func (d *Decoder) CacheBytes() int { return d.model.CacheBytes() }

// Forward feeds tokens[i] to slots[i] after its first past[i] cached tokens, all
// lanes the same number S >= 1. A past smaller than what was fed is the
// rollback. The logits of lane i's token s are at [(i*S+s)*Vocab : +Vocab]; the
// slice belongs to the decoder, outside Go's heap, and is valid until its next
// Forward or Close. All S*Vocab logits of a lane are kept, so a long prompt is
// better fed in pieces.
//
// When ctx ends, the run in progress is terminated and waited for, and the error
// wraps ctx's. After an error each slot keeps its first past[i] tokens.
//
// Up to Model.Lanes slots share one run. The first Forward of so many makes the
// session for it, which takes a while and which ctx does not interrupt.
func (d *Decoder) Forward(ctx context.Context, slots, past []int, tokens [][]int32) ([]float32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.device().lock()
	defer d.device().unlock()
	logits, err := d.forward(ctx, slots, past, tokens)
	if err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	return logits, nil
}

func (d *Decoder) forward(ctx context.Context, slots, past []int, tokens [][]int32) ([]float32, error) {
	if err := d.check(slots, past, tokens); err != nil {
		return nil, err
	}
	if err := d.cancel.arm(ctx); err != nil {
		return nil, err
	}
	n, lanes := len(tokens[0]), d.model.Lanes()
	perLane := n * d.Vocab()
	if err := d.reserve(len(slots), n); err != nil {
		return nil, err
	}
	for from := 0; from < len(slots); from += lanes {
		to := min(from+lanes, len(slots))
		var err error
		if to-from == 1 {
			err = d.lane(d.slots[slots[from]], past[from], tokens[from], from*perLane)
		} else {
			err = d.together(slots[from:to], past[from:to], tokens[from:to], from*perLane)
		}
		if err != nil {
			switch {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case d.closing.Load():
				return nil, ErrClosed
			}
			return nil, fmt.Errorf("%d tokens after %v in slots %v: %w", n, past[from:to], slots[from:to], d.device().explain(err))
		}
	}
	return d.float32s(len(slots) * perLane), nil
}

// check refuses what the engine, or the model, would answer with garbage.
func (d *Decoder) check(slots, past []int, tokens [][]int32) error {
	if d.closed {
		return ErrClosed
	}
	if len(slots) == 0 || len(past) != len(slots) || len(tokens) != len(slots) {
		return fmt.Errorf("%d slots, %d pasts and %d token lists: want one of each per lane", len(slots), len(past), len(tokens))
	}
	s := len(tokens[0])
	if s == 0 {
		return errors.New("no tokens")
	}
	d.round++
	for i, id := range slots {
		if !d.allocated(id) {
			return fmt.Errorf("slot %d is not allocated", id)
		}
		slot := d.slots[id]
		switch {
		case slot.seen == d.round:
			return fmt.Errorf("slot %d is named twice", id)
		case len(tokens[i]) != s:
			return fmt.Errorf("lane %d feeds %d tokens and lane 0 feeds %d: want the same", i, len(tokens[i]), s)
		case past[i] < 0 || past[i] > slot.cached:
			return fmt.Errorf("slot %d: past %d, but %d tokens are cached", id, past[i], slot.cached)
		case past[i]+s > d.Context():
			return fmt.Errorf("slot %d: %d tokens after %d: %w: it holds %d", id, s, past[i], ErrContextFull, d.Context())
		}
		slot.seen = d.round
		for _, t := range tokens[i] {
			if t < 0 || int(t) >= d.Vocab() {
				return fmt.Errorf("slot %d: token %d is outside the vocabulary of %d", id, t, d.Vocab())
			}
		}
	}
	return nil
}

// reserve makes room for n tokens and their logits in each of some slots.
func (d *Decoder) reserve(slots, n int) error {
	together := n * min(slots, d.model.Lanes())
	if err := d.grow(&d.ids, 8*max(together, d.Context())); err != nil {
		return err
	}
	if d.position != nil && d.model.Lanes() > 1 {
		if err := d.grow(&d.lanes.positions, 8*together); err != nil {
			return err
		}
	}
	all, logits := slots*n*d.Vocab(), d.model.bundle.layout.Logits
	if err := d.grow(&d.logits, all*logits.Size()); err != nil || logits == graph.Float32 {
		return err
	}
	return d.grow(&d.wide, all*graph.Float32.Size())
}

func (d *Decoder) grow(b *block, size int) (err error) {
	if b.size >= size {
		return nil
	}
	b.free()
	*b, err = newBlock(d.runtime, nil, size)
	return err
}

// lane runs one slot and writes its logits from element off on.
func (d *Decoder) lane(s *slot, past int, tokens []int32, off int) error {
	n := len(tokens)
	ids := view[int64](&d.ids, 0, n)
	for i, t := range tokens {
		ids[i] = int64(t)
	}
	setView(&d.inputs[0], d.ids.data, 8, 1, n)
	if d.mask != nil {
		setView(d.mask, d.ones.data, 8, 1, past+n)
	}
	if d.position != nil {
		setView(d.position, d.positions.at(8*past), 8, 1, n)
	}
	size := d.model.bundle.layout.Logits.Size()
	setView(&d.output[0], d.logits.at(off*size), size, 1, n, d.Vocab())

	s.cached = min(s.cached, past)
	if err := s.cache.feed(past, n); err != nil {
		return err
	}
	run := d.run()
	run.session, run.binding = d.session, s.binding
	if err := goError(C.dm_forward(d.runtime, run, &d.inputs[0], C.size_t(len(d.inputs)), &d.output[0], 1)); err != nil {
		return err
	}
	s.cache.fed()
	s.cached = past + n
	return nil
}

// setView points a view at row-major data of the given shape.
func setView(v *C.dm_view, data unsafe.Pointer, elem int, shape ...int) {
	v.data = data
	v.rank = C.size_t(len(shape))
	bytes := elem
	for i, n := range shape {
		v.shape[i] = C.int64_t(n)
		bytes *= n
	}
	v.bytes = C.size_t(bytes)
}

// float32s are the first n logits.
func (d *Decoder) float32s(n int) []float32 {
	t := d.model.bundle.layout.Logits
	if t == graph.Float32 {
		return view[float32](&d.logits, 0, n)
	}
	widen(d.wide.data, d.logits.data, n, t)
	return view[float32](&d.wide, 0, n)
}

// Close terminates a Forward that is running, waits for it, and frees the
// slots. Closing twice is harmless.
func (d *Decoder) Close() error {
	d.closing.Store(true)
	d.cancel.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	d.device().lock()
	defer d.device().unlock()
	return d.free()
}

// free releases what newDecoder and Alloc made, bindings before the memory that
// is bound, the session last.
func (d *Decoder) free() error {
	var err error
	if d.options != nil {
		err = errors.Join(d.cancel.disarm(), d.options.Destroy())
	}
	d.lanes.free(d.runtime)
	for _, s := range d.slots {
		s.free(d.runtime)
	}
	d.slots = nil
	if d.mover != nil {
		d.mover.free()
	}
	for _, b := range []*block{&d.handles, &d.ids, &d.ones, &d.positions, &d.views, &d.logits, &d.wide} {
		b.free()
	}
	for _, name := range d.names {
		C.free(unsafe.Pointer(name))
	}
	d.names = nil
	return errors.Join(err, d.model.release())
}
