package ort

// #include "shim.h"
import "C"

import (
	"fmt"
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/graph"
)

// solo are caches of one sequence each, for graphs that were not rewritten: a
// pass runs the graph for one span after the other, and every run reads the
// weights. Each cache has memory for a whole context, where the session runs.
type solo struct {
	model   *Model
	runtime *C.dm_runtime
	mover   *mover // of all tensors of a cache; nil on the CPU
	slots   []*soloSlot

	handles   block // dm_run_handles
	ids       block // int64 [context], the tokens being fed
	ones      block // int64 [context], all 1: the mask of any length
	positions block // int64 [context], 0, 1, 2, ..
	raw       block // logits of one run in the graph's type
	logits    block // float32 [R, vocab] of the pass
	keeper    keeper
	composer  composer
	drawn     []drawnTokens // that the spans of the pass under way may name

	views                         views
	inputs, output, past, present []C.dm_view
	mask, position                *C.dm_view // in inputs; nil where the graph has none
}

// soloSlot is one sequence's binding and cache.
type soloSlot struct {
	binding unsafe.Pointer // OrtIoBinding
	cache   soloCache
}

// soloCache is what the contracts differ in.
type soloCache interface {
	// feed makes the cache ready for s tokens after its first past ones. The
	// tokens after past are lost from here on.
	feed(past, s int) error
	// fed follows a run that succeeded.
	fed()
	// copyFrom makes this cache hold the first n tokens of src, a cache of the
	// same decoder.
	copyFrom(src soloCache, n int) error
	// free gives the memory back, after the binding is gone.
	free()
}

func newSolo(m *Model, options *yort.RunOptions) (_ *solo, err error) {
	s := &solo{model: m, runtime: m.runtime}
	defer func() {
		if err != nil {
			s.free()
		}
	}()
	const word = 8
	l, length := m.bundle.layout, m.context
	for _, b := range []struct {
		to   *block
		size int
	}{{&s.handles, C.sizeof_dm_run_handles}, {&s.ids, length * word}, {&s.ones, length * word}, {&s.positions, length * word}} {
		if *b.to, err = newBlock(s.runtime, nil, b.size); err != nil {
			return nil, err
		}
	}
	ones, positions := view[int64](&s.ones, 0, length), view[int64](&s.positions, 0, length)
	for i := range length {
		ones[i], positions[i] = 1, int64(i)
	}
	*s.run() = C.dm_run_handles{session: m.session.session, options: rawRunOptions(options)}
	if dev := m.session.device; !dev.onCPU() {
		if s.mover, err = dev.newMover(len(l.Past)); err != nil {
			return nil, err
		}
	}
	if s.views, err = newViews(s.runtime, 4+len(l.Past)+len(l.Present)); err != nil {
		return nil, err
	}
	inputs := []string{"input_ids"}
	if l.Positions {
		inputs = append(inputs, "position_ids")
	}
	if l.Mask {
		inputs = append(inputs, "attention_mask")
	}
	s.inputs = s.views.name(inputs, graph.Int64)
	if l.Positions {
		s.position = &s.inputs[1]
	}
	if l.Mask {
		s.mask = &s.inputs[len(inputs)-1]
	}
	if err = m.session.device.place(m.session.session, s.inputs); err != nil {
		return nil, err
	}
	s.output = s.views.name([]string{"logits"}, l.Logits)
	s.past = s.views.name(l.Past, l.Cache)
	s.present = s.views.name(l.Present, l.Cache)
	return s, nil
}

func (s *solo) run() *C.dm_run_handles { return (*C.dm_run_handles)(s.handles.data) }

func (s *solo) add() (err error) {
	slot := &soloSlot{}
	if err = goError(C.dm_binding_new(s.runtime, s.model.session.session, &slot.binding)); err == nil {
		if s.model.bundle.Contract == graph.GQA {
			slot.cache, err = s.newGQACache(slot.binding)
		} else {
			slot.cache, err = s.newGrowingCache(slot.binding)
		}
	}
	if err != nil {
		slot.free(s.runtime)
		return err
	}
	s.slots = append(s.slots, slot)
	return nil
}

func (s *solo) capacity() int                           { return 0 }
func (s *solo) reserve(slot, past, n int) (bool, error) { return true, nil }
func (s *solo) truncate(slot, n int)                    {}
func (s *solo) share(dst, src, n int) error {
	return s.slots[dst].cache.copyFrom(s.slots[src].cache, n)
}

// runTokens bounds how many tokens one run feeds, and with them the memory for
// logits that nobody wants: a graph that was not rewritten scores them all.
const runTokens = 128

func (s *solo) forward(spans []span, rows int) ([]float32, error) {
	vocab := s.model.Vocab()
	if err := growBlock(s.runtime, &s.logits, 4*rows*vocab); err != nil {
		return nil, err
	}
	at := 0
	err := s.runs(spans, func(span *span, from, to, wanted int) error {
		if err := s.feed(span.Slot, span.Past+from, span.Tokens[from:to], nil, &s.raw); err != nil {
			return err
		}
		keepRows(view[float32](&s.logits, 4*at*vocab, wanted*vocab), &s.raw, to-from-wanted, vocab, s.model.bundle.layout.Logits)
		at += wanted
		return nil
	})
	return view[float32](&s.logits, 0, rows*vocab), err
}

// runs calls run for the tokens of each run of a pass, with how many of the last of
// its logits are wanted.
func (s *solo) runs(spans []span, run func(span *span, from, to, wanted int) error) error {
	for i := range spans {
		span := &spans[i]
		if span.held < span.Past {
			if err := s.share(span.Slot, span.lender, span.Past); err != nil {
				return err
			}
		}
		for from := 0; from < len(span.Tokens); {
			to := min(from+runTokens, len(span.Tokens))
			wanted := max(0, span.Rows-(len(span.Tokens)-to))
			if err := run(span, from, to, min(wanted, to-from)); err != nil {
				return err
			}
			from = to
		}
	}
	return nil
}

// feed runs the graph on some tokens of one slot; the logits go to a block of that
// memory.
func (s *solo) feed(slot, past int, tokens []int32, m *memory, logits *block) error {
	n, l := len(tokens), s.model.bundle.layout
	ids := view[int64](&s.ids, 0, n)
	for i, t := range tokens {
		ids[i] = int64(t)
	}
	from := &s.ids
	if hasDrawn(from, n) {
		var err error
		if from, err = s.composer.compose(s.model.session.device, from, n, s.drawn, nil); err != nil {
			return fmt.Errorf("put %d tokens together: %w", n, err)
		}
	}
	if err := growBlockOn(s.runtime, m, logits, n*s.model.Vocab()*l.Logits.Size()); err != nil {
		return err
	}
	setView(&s.inputs[0], from.data, 8, 1, n)
	s.inputs[0].memory = from.info()
	if s.mask != nil {
		setView(s.mask, s.ones.data, 8, 1, past+n)
	}
	if s.position != nil {
		setView(s.position, s.positions.at(8*past), 8, 1, n)
	}
	setView(&s.output[0], logits.data, l.Logits.Size(), 1, n, s.model.Vocab())
	s.output[0].memory = logits.info()
	cache := s.slots[slot].cache
	if err := cache.feed(past, n); err != nil {
		return err
	}
	run := s.run()
	run.binding = s.slots[slot].binding
	if err := s.model.session.device.launch(run, s.inputs, s.output, logits == &s.raw); err != nil {
		return err
	}
	cache.fed()
	return nil
}

// keepRows copies rows of a run's logits, from row first on, until to is full.
func keepRows(to []float32, raw *block, first, vocab int, t graph.ElementType) {
	switch {
	case len(to) == 0:
	case t == graph.Float32:
		copy(to, view[float32](raw, 4*first*vocab, len(to)))
	default:
		widen(unsafe.Pointer(&to[0]), raw.at(first*vocab*t.Size()), len(to), t)
	}
}

func (s *soloSlot) free(rt *C.dm_runtime) {
	if s.binding != nil {
		C.dm_binding_free(rt, s.binding)
		s.binding = nil
	}
	if s.cache != nil {
		s.cache.free()
		s.cache = nil
	}
}

// free releases bindings before the memory that is bound.
func (s *solo) free() {
	for _, slot := range s.slots {
		slot.free(s.runtime)
	}
	s.slots = nil
	if s.mover != nil {
		s.mover.free()
	}
	s.keeper.free(s.runtime)
	s.composer.free()
	for _, b := range []*block{&s.handles, &s.ids, &s.ones, &s.positions, &s.raw, &s.logits} {
		b.free()
	}
	s.views.free()
}
