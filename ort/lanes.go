package ort

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/draftmill/draftmill/ort/graph"
)

// laneRun runs several slots at once: a binding of a session that takes as many
// lanes. A lane keeps the slot whose cache is bound to it, so that only a slot
// that joins is bound again.
type laneRun struct {
	session unsafe.Pointer
	binding unsafe.Pointer // OrtIoBinding
	slots   []*slot        // by lane; nil where no cache is bound
}

// laneMemory is what a decoder's lane runs share.
type laneMemory struct {
	runs      map[int]*laneRun // by number of lanes
	views     block            // dm_view: for each lane its lengths, past, present
	lengths   block            // int32 [lanes, 2]: seqlens_k and total_sequence_length
	positions block            // int64 [lanes, S]
	lanes     []laneViews
}

// laneViews are one lane's own inputs and outputs.
type laneViews struct{ lengths, past, present []C.dm_view }

// prepareLanes lays out the views of a lane.
func (d *Decoder) prepareLanes() (err error) {
	l, n := d.model.bundle.layout, d.model.Lanes()
	if n == 1 {
		return nil
	}
	m := &d.lanes
	m.runs = map[int]*laneRun{}
	perLane := 2 + len(l.Past) + len(l.Present)
	if m.lengths, err = newBlock(d.runtime, nil, n*2*4); err != nil {
		return err
	}
	if m.views, err = newBlock(d.runtime, nil, n*perLane*C.sizeof_dm_view); err != nil {
		return err
	}
	all := view[C.dm_view](&m.views, 0, n*perLane)
	clear(all)
	for lane := range n {
		own := func(names []string) []string {
			named := make([]string, len(names))
			for i, name := range names {
				named[i] = graph.LaneName(lane, name)
			}
			return named
		}
		v := laneViews{
			lengths: d.nameViews(&all, own([]string{graph.SeqlensName, graph.TotalName}), graph.Int32),
			past:    d.nameViews(&all, own(l.Past), l.Cache),
			present: d.nameViews(&all, own(l.Present), l.Cache),
		}
		setView(&v.lengths[0], m.lengths.at(8*lane), 4, 1)
		setView(&v.lengths[1], m.lengths.at(8*lane+4), 4)
		m.lanes = append(m.lanes, v)
	}
	return nil
}

// laneRun is the run of n lanes, made when it is first needed.
func (d *Decoder) laneRun(n int) (*laneRun, error) {
	if r := d.lanes.runs[n]; r != nil {
		return r, nil
	}
	r := &laneRun{slots: make([]*slot, n)}
	var err error
	if r.session, err = d.model.sessions.of(n); err != nil {
		return nil, fmt.Errorf("session of %d lanes: %w", n, err)
	}
	if err := goError(C.dm_binding_new(d.runtime, r.session, &r.binding)); err != nil {
		return nil, err
	}
	if err := d.bindLengths(r); err != nil {
		C.dm_binding_free(d.runtime, r.binding)
		return nil, err
	}
	d.lanes.runs[n] = r
	return r, nil
}

// bindLengths binds the lengths of all lanes. Their memory and shape stay, but
// a binding copies to a device what is there now.
func (d *Decoder) bindLengths(r *laneRun) error {
	for _, v := range d.lanes.lanes[:len(r.slots)] {
		if err := goError(C.dm_bind(d.runtime, r.binding, &v.lengths[0], 2, 0)); err != nil {
			return err
		}
	}
	return nil
}

// join binds the slot's cache to a lane.
func (d *Decoder) join(r *laneRun, lane int, s *slot) error {
	if r.slots[lane] == s {
		return nil
	}
	r.slots[lane] = nil
	v := &d.lanes.lanes[lane]
	s.cache.(*gqaCache).view(v.past, v.present)
	if err := d.bindCaches(r.binding, v.past, v.present); err != nil {
		return err
	}
	r.slots[lane] = s
	return nil
}

// together runs one lane for each of the slots and writes their logits from
// element off on.
func (d *Decoder) together(slots, past []int, tokens [][]int32, off int) error {
	n, s := len(slots), len(tokens[0])
	r, err := d.laneRun(n)
	if err != nil {
		return err
	}
	ids, lengths := view[int64](&d.ids, 0, n*s), view[int32](&d.lanes.lengths, 0, 2*n)
	for i, id := range slots {
		slot := d.slots[id]
		slot.cached = min(slot.cached, past[i])
		if err := d.join(r, i, slot); err != nil {
			return err
		}
		for j, t := range tokens[i] {
			ids[i*s+j] = int64(t)
		}
		total := int32(past[i] + s)
		lengths[2*i], lengths[2*i+1] = total-1, total
	}
	if !d.device().onCPU() {
		if err := d.bindLengths(r); err != nil {
			return err
		}
	}
	ins := d.inputs[:1]
	setView(&ins[0], d.ids.data, 8, n, s)
	if d.position != nil {
		positions := view[int64](&d.lanes.positions, 0, n*s)
		for i := range positions {
			positions[i] = int64(past[i/s] + i%s)
		}
		ins = d.inputs[:2]
		setView(&ins[1], d.lanes.positions.data, 8, n, s)
	}
	size := d.model.bundle.layout.Logits.Size()
	setView(&d.output[0], d.logits.at(off*size), size, n, s, d.Vocab())

	run := d.run()
	run.session, run.binding = r.session, r.binding
	if err := goError(C.dm_forward(d.runtime, run, &ins[0], C.size_t(len(ins)), &d.output[0], 1)); err != nil {
		return err
	}
	for i, id := range slots {
		d.slots[id].cached = past[i] + s
	}
	return nil
}

// free releases the bindings and then the memory that is bound.
func (m *laneMemory) free(rt *C.dm_runtime) {
	for _, r := range m.runs {
		C.dm_binding_free(rt, r.binding)
	}
	m.runs = nil
	for _, b := range []*block{&m.views, &m.lengths, &m.positions} {
		b.free()
	}
}
