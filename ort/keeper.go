package ort

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
)

// keeper gathers the logits of a pass of several runs, each of which has left its
// own in a block of the device, as one block of the rows that are wanted. A session
// does that, for the reasons that a mover has.
type keeper struct {
	pieces []block // one a run
	used   int
	sizes  []int   // rows in each, by run
	wanted []int64 // rows of all of them, one behind the other
	gatherer
	rows  block // the rows that are wanted
	index block // int64, wanted
	waste block // of runs of which none is
}

// keep makes the pass and gathers what is wanted of it.
func (s *solo) keep(spans []span, rows int, drawn []drawnTokens) (kept, error) {
	s.drawn = drawn
	k, l, m := &s.keeper, s.model.bundle.layout, s.model.session.device.memory
	k.used, k.sizes, k.wanted = 0, k.sizes[:0], k.wanted[:0]
	all := 0
	err := s.runs(spans, func(span *span, from, to, wanted int) error {
		out := &k.waste
		if wanted > 0 {
			if k.used == len(k.pieces) {
				k.pieces = append(k.pieces, block{})
			}
			out = &k.pieces[k.used]
			k.used++
			k.sizes = append(k.sizes, to-from)
			all += to - from
			for i := range wanted {
				k.wanted = append(k.wanted, int64(all-wanted+i))
			}
		}
		return s.feed(span.Slot, span.Past+from, span.Tokens[from:to], m, out)
	})
	if err != nil || rows == 0 {
		return kept{}, err
	}
	if err := s.gather(rows); err != nil {
		return kept{}, fmt.Errorf("gather %d rows of logits: %w", rows, err)
	}
	return kept{data: k.rows.data, info: k.rows.info(), elem: l.Logits, rows: rows}, nil
}

// gather runs the session that puts the rows together.
func (s *solo) gather(rows int) (err error) {
	k, device := &s.keeper, s.model.session.device
	vocab, elem := s.model.Vocab(), s.model.bundle.layout.Logits
	if err := growBlockOn(s.runtime, device.memory, &k.rows, rows*vocab*elem.Size()); err != nil {
		return err
	}
	if err := growBlock(s.runtime, &k.index, 8*rows); err != nil {
		return err
	}
	copy(view[int64](&k.index, 0, rows), k.wanted)
	var pieces []piece
	for i := range k.used {
		pieces = append(pieces, piece{&k.pieces[i], k.sizes[i]})
	}
	return k.gather(device, pieces, vocab, elem, &k.index, rows, &k.rows)
}

func (k *keeper) free(*C.dm_runtime) {
	for i := range k.pieces {
		k.pieces[i].free()
	}
	for _, b := range []*block{&k.rows, &k.index, &k.waste} {
		b.free()
	}
	k.gatherer.free()
}

// gathering says which of a device's sessions.
type gathering struct {
	pieces int
	elem   graph.ElementType
}

// gatherSession is the session that gathers rows of so many pieces.
func (d *device) gatherSession(n int, t graph.ElementType) (session unsafe.Pointer, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if session := d.gathers[gathering{n, t}]; session != nil {
		return session, nil
	}
	options, err := newSessionOptions(Options{Threads: 1}, d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, options.Destroy()) }()
	model, err := proto.Marshal(graph.NewGather(n, t))
	if err != nil {
		return nil, err
	}
	if err := goError(C.dm_session_new(d.runtime, unsafe.Pointer(&model[0]), C.size_t(len(model)), rawSessionOptions(options), &session)); err != nil {
		return nil, err
	}
	d.gathers[gathering{n, t}] = session
	return session, nil
}
