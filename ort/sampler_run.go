package ort

// #include "shim.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// samplerRun is the session of one of a sampler's graphs, with memory for its
// inputs and outputs.
type samplerRun struct {
	runtime   *C.dm_runtime
	session   unsafe.Pointer // OrtSession
	binding   unsafe.Pointer // OrtIoBinding
	handles   block          // dm_run_handles
	views     views
	ins, outs []C.dm_view
	tensors   map[string]*samplerTensor
}

// samplerTensor is an input or output: a view, and the memory of those that are
// not another's.
type samplerTensor struct {
	view   *C.dm_view
	memory block
	elem   int
}

// at points the tensor at memory of someone else's.
func (t *samplerTensor) at(b *block, shape ...int) { t.point(b.data, b.info(), shape...) }

func (t *samplerTensor) point(data, info unsafe.Pointer, shape ...int) {
	setView(t.view, data, t.elem, shape...)
	t.view.memory = info
}

// make gives the tensor a shape, and memory for it on the host.
func (t *samplerTensor) make(rt *C.dm_runtime, shape ...int) error {
	size := t.elem
	for _, n := range shape {
		size *= n
	}
	if err := growBlock(rt, &t.memory, size); err != nil {
		return err
	}
	t.at(&t.memory, shape...)
	return nil
}

func (r *samplerRun) prepare(m *onnxpb.ModelProto, synchronize bool) (err error) {
	g := m.Graph
	if r.views, err = newViews(r.runtime, len(g.Input)+len(g.Output)); err != nil {
		return err
	}
	all := r.views.all
	for _, v := range append(g.Input[:len(g.Input):len(g.Input)], g.Output...) {
		t := graph.ElementType(v.GetType().GetTensorType().GetElemType())
		r.tensors[v.GetName()] = &samplerTensor{view: &r.views.name([]string{v.GetName()}, t)[0], elem: t.Size()}
	}
	r.ins, r.outs = all[:len(g.Input)], all[len(g.Input):]
	if r.handles, err = newBlock(r.runtime, nil, C.sizeof_dm_run_handles); err != nil {
		return err
	}
	if err = goError(C.dm_binding_new(r.runtime, r.session, &r.binding)); err != nil {
		return err
	}
	*(*C.dm_run_handles)(r.handles.data) = C.dm_run_handles{session: r.session, binding: r.binding}
	if synchronize {
		(*C.dm_run_handles)(r.handles.data).synchronize = 1
	}
	return nil
}

func (r *samplerRun) in(name string) *samplerTensor  { return r.tensors[name] }
func (r *samplerRun) out(name string) *samplerTensor { return r.tensors[name] }

// fill makes an input of n rows of width numbers and calls set for each row.
func fill[T any](r *samplerRun, name string, n, width int, set func(row int, to []T)) error {
	t := r.in(name)
	if t == nil {
		return nil
	}
	if err := t.make(r.runtime, n, width); err != nil {
		return err
	}
	all := view[T](&t.memory, 0, n*width)
	for i := range n {
		set(i, all[i*width:(i+1)*width])
	}
	return nil
}

// rows sets the inputs that are the rows', and makes room for their outputs.
func (r *samplerRun) rows(o graph.SamplerOptions, from *lent, rows []SamplerRow) error {
	if len(rows) == 0 || len(rows) != from.rows || from.data == nil && len(from.host)%o.Vocab != 0 {
		return fmt.Errorf("there are %d rows of %d logits", from.rows, o.Vocab)
	}
	edits := 1
	for i := range rows {
		row := &rows[i]
		switch {
		case o.Race && len(row.Noise) != o.Vocab:
			return fmt.Errorf("row %d: %d numbers of noise for a vocabulary of %d", i, len(row.Noise), o.Vocab)
		case len(row.Edits) > 0 && !o.Edits:
			return fmt.Errorf("row %d: the sampler was made without edits", i)
		}
		for _, e := range row.Edits {
			if e.Token < 0 || int(e.Token) >= o.Vocab {
				return fmt.Errorf("row %d: an edit of token %d, outside the vocabulary of %d", i, e.Token, o.Vocab)
			}
		}
		edits = max(edits, len(row.Edits))
	}
	n := len(rows)
	edit := func(row, i int) Edit {
		if e := rows[row].Edits; len(e) > 0 {
			return e[min(i, len(e)-1)]
		}
		return Edit{Penalty: 1}
	}
	number := func(name string, of func(Edit) float32) error {
		return fill(r, name, n, edits, func(row int, to []float32) {
			for i := range to {
				to[i] = of(edit(row, i))
			}
		})
	}
	if from.data != nil {
		r.in(graph.SamplerLogits).point(from.data, from.info, n, o.Vocab)
	} else if err := fill(r, graph.SamplerLogits, n, o.Vocab, func(row int, to []float32) { copy(to, from.host[row*o.Vocab:]) }); err != nil {
		return err
	}
	for _, err := range []error{
		fill(r, graph.SamplerNoise, n, o.Vocab, func(row int, to []float32) { copy(to, rows[row].Noise) }),
		fill(r, graph.SamplerUniforms, n, 1, func(row int, to []float32) { to[0] = uniform(rows[row].Uniform) }),
		fill(r, graph.EditTokens, n, edits, func(row int, to []int64) {
			for i := range to {
				to[i] = int64(edit(row, i).Token)
			}
		}),
		fill(r, graph.EditBan, n, edits, func(row int, to []bool) {
			for i := range to {
				to[i] = edit(row, i).Ban
			}
		}),
		number(graph.EditAdd, func(e Edit) float32 { return e.Add }),
		number(graph.EditPenalty, func(e Edit) float32 { return e.Penalty }),
		number(graph.EditLess, func(e Edit) float32 { return e.Less }),
		number(graph.EditPresence, func(e Edit) float32 { return e.Presence }),
	} {
		if err != nil {
			return err
		}
	}
	for _, name := range []string{graph.SamplerTokens, graph.SamplerProbs, graph.SamplerMargin, graph.SamplerFlags} {
		if err := r.out(name).make(r.runtime, n, 1); err != nil {
			return err
		}
	}
	return nil
}

// drafted sets the inputs that are the drafted tokens', and makes room for what
// is said of them.
func (r *samplerRun) drafted(o graph.SamplerOptions, drafted []Drafted, rows int) error {
	for i, d := range drafted {
		if d.Token < 0 || int(d.Token) >= o.Vocab || d.Row < 0 || d.Row >= rows {
			return fmt.Errorf("drafted token %d: id %d and row %d, of a vocabulary of %d and %d rows", i, d.Token, d.Row, o.Vocab, rows)
		}
	}
	n := len(drafted)
	for _, err := range []error{
		fill(r, graph.DraftedTokens, n, 1, func(i int, to []int64) { to[0] = int64(drafted[i].Token) }),
		fill(r, graph.DraftedRows, n, 1, func(i int, to []int64) { to[0] = int64(drafted[i].Row) }),
		fill(r, graph.ResidualUniforms, n, 1, func(i int, to []float32) { to[0] = uniform(drafted[i].Uniform) }),
	} {
		if err != nil {
			return err
		}
	}
	rowsIn := r.in(graph.DraftedRows)
	setView(rowsIn.view, rowsIn.memory.data, rowsIn.elem, n)
	for _, name := range verifyOutputs {
		if t := r.out(name); t != nil {
			if err := t.make(r.runtime, n, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

var verifyOutputs = []string{
	graph.VerifyP, graph.VerifyQ, graph.VerifyOverlap, graph.VerifyBelow,
	graph.VerifyScaled, graph.VerifyUnadjusted, graph.VerifyRecovered,
}

// forward runs the graph and reads what it says of the rows; wide is how many of
// them are to be computed with more candidates.
func (r *samplerRun) forward(rows int) (drawn []Drawn, wide int, err error) {
	h := (*C.dm_run_handles)(r.handles.data)
	if err := goError(C.dm_forward(r.runtime, h, &r.ins[0], C.size_t(len(r.ins)), &r.outs[0], C.size_t(len(r.outs)))); err != nil {
		return nil, 0, err
	}
	tokens := view[int64](&r.out(graph.SamplerTokens).memory, 0, rows)
	probs, margins, flags := r.numbers(graph.SamplerProbs, rows), r.numbers(graph.SamplerMargin, rows), r.numbers(graph.SamplerFlags, rows)
	drawn = make([]Drawn, rows)
	for i := range drawn {
		f := int(flags[i])
		drawn[i] = Drawn{Token: int32(tokens[i]), Prob: float64(probs[i]), Margin: float64(margins[i]), NaN: f&graph.FlagNaN != 0, None: f&graph.FlagNone != 0}
		if f == graph.FlagWide {
			wide++
		}
	}
	return drawn, wide, nil
}

// numbers are an output of one number each.
func (r *samplerRun) numbers(name string, n int) []float32 {
	return view[float32](&r.out(name).memory, 0, n)
}

func (r *samplerRun) verified(n int) []Verified {
	all := make([]Verified, n)
	p, q, overlap := r.numbers(graph.VerifyP, n), r.numbers(graph.VerifyQ, n), r.numbers(graph.VerifyOverlap, n)
	below, scaled, unadjusted := r.numbers(graph.VerifyBelow, n), r.numbers(graph.VerifyScaled, n), r.numbers(graph.VerifyUnadjusted, n)
	for i := range all {
		all[i] = Verified{
			P: float64(p[i]), Q: float64(q[i]), Overlap: min(float64(overlap[i]), 1), Below: float64(below[i]),
			Scaled: float64(scaled[i]), Unadjusted: float64(unadjusted[i]), Recovered: -1,
		}
		if t := r.out(graph.VerifyRecovered); t != nil {
			all[i].Recovered = int32(view[int64](&t.memory, 0, n)[i])
		}
	}
	return all
}

// free ends the session after what is bound to it.
func (r *samplerRun) free() {
	if r.binding != nil {
		C.dm_binding_free(r.runtime, r.binding)
		r.binding = nil
	}
	if r.session != nil {
		C.dm_session_free(r.runtime, r.session)
		r.session = nil
	}
	for _, t := range r.tensors {
		t.memory.free()
	}
	r.handles.free()
	r.views.free()
}
