package ort

// #include "shim.h"
import "C"

import (
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/graph"
)

// encoding runs the encoder of an encoder-decoder model, and whatever else is fed
// the tokens of one sequence: it holds what such runs bind.
type encoding struct {
	model   *Model
	runtime *C.dm_runtime

	handles   block // dm_run_handles
	ids, ones block // int64 [Encoder.Most], the tokens being fed; all 1
	views     views

	encoder crossedRun
}

// crossedRun is one of the graphs with what a run of it binds. Views that it has
// no use for are nil.
type crossedRun struct {
	session, binding                    unsafe.Pointer
	inputs, outputs                     []C.dm_view
	ids, mask, states, branch, logits   *C.dm_view
	past, present, crossPast, crossMade []C.dm_view
}

// open makes room for the views of further runs beside the encoder's.
func (e *encoding) open(m *Model, options *yort.RunOptions, views int) (err error) {
	e.model, e.runtime = m, m.runtime
	const word = 8
	l, most := m.bundle.layout, m.bundle.Encoder.Most
	for _, b := range []struct {
		to   *block
		size int
	}{{&e.handles, C.sizeof_dm_run_handles}, {&e.ids, most * word}, {&e.ones, most * word}} {
		if *b.to, err = newBlock(e.runtime, nil, b.size); err != nil {
			return err
		}
	}
	ones := view[int64](&e.ones, 0, most)
	for i := range ones {
		ones[i] = 1
	}
	*e.run() = C.dm_run_handles{options: rawRunOptions(options)}
	if e.views, err = newViews(e.runtime, 3+views); err != nil {
		return err
	}
	r := &e.encoder
	r.session = m.session.encoder
	r.ids = e.one("input_ids", graph.Int64)
	if l.Cross.EncoderMask {
		r.mask = e.one("attention_mask", graph.Int64)
	}
	r.inputs = e.views.since(r.ids)
	r.states = e.one("last_hidden_state", l.Cross.States)
	r.outputs = e.views.since(r.states)
	return e.bind(r)
}

// bind makes a run's binding.
func (e *encoding) bind(r *crossedRun) error {
	return goError(C.dm_binding_new(e.runtime, r.session, &r.binding))
}

// one names one view.
func (e *encoding) one(name string, t graph.ElementType) *C.dm_view {
	return &e.views.name([]string{name}, t)[0]
}

func (e *encoding) run() *C.dm_run_handles { return (*C.dm_run_handles)(e.handles.data) }

// stateBytes is the size of an encoder's states of n tokens.
func (e *encoding) stateBytes(n int) int {
	c := e.model.bundle.layout.Cross
	return n * c.Width * c.States.Size()
}

// encode runs the encoder over an input. The states go to a block that has room for
// them.
func (e *encoding) encode(tokens []int32, states *block) error {
	e.feed(&e.encoder, tokens, len(tokens))
	e.setStates(&e.encoder, states, len(tokens))
	return e.forward(&e.encoder)
}

// setStates sets the states of n tokens, which a run makes or reads.
func (e *encoding) setStates(r *crossedRun, states *block, n int) {
	c := e.model.bundle.layout.Cross
	setView(r.states, states.data, c.States.Size(), 1, n, c.Width)
}

// feed sets the ids of a run and the mask of an input of so many tokens.
func (e *encoding) feed(r *crossedRun, tokens []int32, input int) {
	ids := view[int64](&e.ids, 0, len(tokens))
	for i, t := range tokens {
		ids[i] = int64(t)
	}
	setView(r.ids, e.ids.data, 8, 1, len(tokens))
	if r.mask != nil {
		setView(r.mask, e.ones.data, 8, 1, input)
	}
}

func (e *encoding) forward(r *crossedRun) error {
	run := e.run()
	run.session, run.binding = r.session, r.binding
	return e.model.session.device.launch(run, r.inputs, r.outputs, false) // on the CPU
}

// release frees a run's binding.
func (e *encoding) release(r *crossedRun) {
	if r.binding != nil {
		C.dm_binding_free(e.runtime, r.binding)
		r.binding = nil
	}
}

// free releases the encoder's binding and then the memory that was bound.
func (e *encoding) free() {
	e.release(&e.encoder)
	for _, b := range []*block{&e.handles, &e.ids, &e.ones} {
		b.free()
	}
	e.views.free()
}
