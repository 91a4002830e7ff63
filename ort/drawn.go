package ort

// #include "shim.h"
import "C"

import (
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/graph"
)

// drawnTokens are what a draft step has drawn: int64 [rows, 1], where sessions run.
// In spans -1-i stands for the i-th token of all steps.
type drawnTokens struct {
	ids  *block
	rows int
}

// refs is how many tokens there are.
func refs(drawn []drawnTokens) (n int) {
	for _, d := range drawn {
		n += d.rows
	}
	return n
}

// composer makes the input ids of a run of which a device has drawn some, and the
// host knows the others.
type composer struct {
	gatherer
	out   block // int64, where the session runs
	index block // int64
	used  []piece
}

// piece is a tensor of some rows.
type piece struct {
	block *block
	rows  int
}

// compose is where the n ids are, of which the host's have -1-i for what was drawn:
// in memory that is given, else in some of its own, or where a step has left just
// these.
func (c *composer) compose(d *device, ids *block, n int, drawn []drawnTokens, to *block) (*block, error) {
	all := view[int64](ids, 0, n)
	if to == nil {
		if b := wholeStep(all, drawn); b != nil {
			return b, nil
		}
		if err := growBlockOn(d.runtime, d.memory, &c.out, 8*n); err != nil {
			return nil, err
		}
		to = &c.out
	}
	if err := growBlock(d.runtime, &c.index, 8*n); err != nil {
		return nil, err
	}
	for i, index := range view[int64](&c.index, 0, n) {
		if index = int64(i); all[i] < 0 {
			index, all[i] = int64(n)-1-all[i], 0
		}
		view[int64](&c.index, 0, n)[i] = index
	}
	c.used = append(c.used[:0], piece{ids, n})
	for _, x := range drawn {
		c.used = append(c.used, piece{x.ids, x.rows})
	}
	return to, c.gather(d, c.used, 1, graph.Int64, &c.index, n, to)
}

// wholeStep is the step of which the ids are all that it drew, in its order; nil where they
// are not.
func wholeStep(ids []int64, drawn []drawnTokens) *block {
	first := 0
	for _, x := range drawn {
		if -1-ids[0] == int64(first) && len(ids) == x.rows {
			for i, id := range ids {
				if id != -1-int64(first+i) {
					return nil
				}
			}
			return x.ids
		}
		first += x.rows
	}
	return nil
}

// hasDrawn reports whether some of n ids are a device's.
func hasDrawn(ids *block, n int) bool {
	for _, id := range view[int64](ids, 0, n) {
		if id < 0 {
			return true
		}
	}
	return false
}

func (c *composer) free() {
	c.out.free()
	c.index.free()
	c.gatherer.free()
}

// gatherer runs the sessions that take rows of some tensors, as one tensor.
type gatherer struct {
	options *yort.RunOptions
}

// gather puts n rows of that width, of which index (int64) says which of all pieces'
// rows they are, into out. Nobody waits for it.
func (g *gatherer) gather(d *device, pieces []piece, width int, t graph.ElementType, index *block, n int, out *block) (err error) {
	if g.options == nil {
		if g.options, err = yort.NewRunOptions(); err != nil {
			return err
		}
	}
	session, err := d.gatherSession(len(pieces), t)
	if err != nil {
		return err
	}
	views, err := newViews(d.runtime, len(pieces)+2)
	if err != nil {
		return err
	}
	defer views.free()
	var binding unsafe.Pointer
	if err := goError(C.dm_binding_new(d.runtime, session, &binding)); err != nil {
		return err
	}
	defer C.dm_binding_free(d.runtime, binding)
	set := func(name string, t graph.ElementType, b *block, shape ...int) {
		v := &views.name([]string{name}, t)[0]
		setView(v, b.data, t.Size(), shape...)
		v.memory = b.info()
	}
	for i, p := range pieces {
		set(graph.GatherPiece(i), t, p.block, p.rows, width)
	}
	set(graph.GatherRows, graph.Int64, index, n)
	set(graph.GatherOut, t, out, n, width)
	handles, err := newBlock(d.runtime, nil, C.sizeof_dm_run_handles)
	if err != nil {
		return err
	}
	defer handles.free()
	run := (*C.dm_run_handles)(handles.data)
	*run = C.dm_run_handles{session: session, options: rawRunOptions(g.options), binding: binding}
	in := views.all[:len(pieces)+1]
	if err := d.place(session, in); err != nil {
		return err
	}
	return d.launch(run, in, views.all[len(pieces)+1:], false)
}

func (g *gatherer) free() { freeOptions(&g.options) }

// knownHere are spans with the tokens in place of what stands for them, where a
// device's memory is the host's.
func knownHere(spans []span, drawn []drawnTokens) []span {
	var tokens []int64
	for _, d := range drawn {
		tokens = append(tokens, view[int64](d.ids, 0, d.rows)...)
	}
	known := append([]span(nil), spans...)
	for i := range known {
		s := &known[i]
		s.Tokens = append([]int32(nil), s.Tokens...)
		for j, x := range s.Tokens {
			if x < 0 {
				s.Tokens[j] = int32(tokens[-1-x])
			}
		}
	}
	return known
}
