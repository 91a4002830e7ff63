package ort

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// samplerRun is the session of one of a sampler's graphs, with memory for its
// inputs and outputs.
type samplerRun struct {
	runtime   *C.dm_runtime
	session   unsafe.Pointer // OrtSession
	options   *yort.RunOptions
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

func (r *samplerRun) prepare(m *onnxpb.ModelProto, d *device) (err error) {
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
	if err = d.place(r.session, r.ins); err != nil {
		return err
	}
	if r.handles, err = newBlock(r.runtime, nil, C.sizeof_dm_run_handles); err != nil {
		return err
	}
	if err = goError(C.dm_binding_new(r.runtime, r.session, &r.binding)); err != nil {
		return err
	}
	if r.options, err = yort.NewRunOptions(); err != nil {
		return err
	}
	*(*C.dm_run_handles)(r.handles.data) = C.dm_run_handles{session: r.session, options: rawRunOptions(r.options), binding: r.binding}
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
		if len(row.Edits) > 0 && !o.Edits {
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
		r.noise(rows),
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
	return nil
}

// noise sets the inputs that a race takes.
func (r *samplerRun) noise(rows []SamplerRow) error {
	counters := make([]int64, len(rows))
	err := fill(r, graph.SamplerKeys, len(rows), graph.NoiseKeys, func(row int, to []int64) {
		counters[row] = graph.Noise(rows[row].Noise, to)
	})
	return errors.Join(err, fill(r, graph.SamplerCounter, len(rows), 1, func(row int, to []int64) { to[0] = counters[row] }))
}

// drafted sets the inputs that are the drafted tokens', and makes room for what
// is said of them.
func (r *samplerRun) drafted(drafted []Drafted, rows int) error {
	for i, d := range drafted {
		if d.Row < 0 || d.Row >= rows {
			return fmt.Errorf("drafted token %d: row %d, of %d rows", i, d.Row, rows)
		}
	}
	n := len(drafted)
	for _, err := range []error{
		fill(r, graph.DraftedRows, n, 1, func(i int, to []int64) { to[0] = int64(drafted[i].Row) }),
		fill(r, graph.ResidualUniforms, n, 1, func(i int, to []float32) { to[0] = uniform(drafted[i].Uniform) }),
	} {
		if err != nil {
			return err
		}
	}
	rowsIn := r.in(graph.DraftedRows)
	setView(rowsIn.view, rowsIn.memory.data, rowsIn.elem, n)
	return r.out(graph.VerifyNumbers).make(r.runtime, n, graph.VerifiedNumbers)
}

// forward runs the graph.
func (r *samplerRun) forward(d *device, wait bool) error {
	return d.launch((*C.dm_run_handles)(r.handles.data), r.ins, r.outs, wait)
}

// drawnOf reads what is said of n rows.
func drawnOf(numbers *block, n int) []Drawn {
	drawn := make([]Drawn, n)
	for i := range drawn {
		drawn[i] = drawnFrom(view[float32](numbers, 4*graph.DrawnNumbers*i, graph.DrawnNumbers))
	}
	return drawn
}

func drawnFrom(x []float32) Drawn {
	f := int(x[graph.DrawnFlags])
	return Drawn{
		Token: int32(x[graph.DrawnToken]), Prob: float64(x[graph.DrawnProb]), Margin: float64(x[graph.DrawnMargin]),
		NaN: f&graph.FlagNaN != 0, None: f&graph.FlagNone != 0, Wide: f == graph.FlagWide,
	}
}

// verified reads what is said of n drafted tokens.
func (r *samplerRun) verified(n int, race bool) []Verified {
	all := make([]Verified, n)
	said := &r.out(graph.VerifyNumbers).memory
	for i := range all {
		x := view[float32](said, 4*graph.VerifiedNumbers*i, graph.VerifiedNumbers)
		all[i] = Verified{
			Drafted: drawnFrom(x),
			P:       float64(x[graph.VerifyP]), Q: float64(x[graph.VerifyQ]), Overlap: min(float64(x[graph.VerifyOverlap]), 1),
			Below: float64(x[graph.VerifyBelow]), Scaled: float64(x[graph.VerifyScaled]), Unadjusted: float64(x[graph.VerifyUnadjusted]),
			Recovered: -1,
		}
		if !race {
			all[i].Recovered = int32(x[graph.VerifyRecovered])
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
	freeOptions(&r.options)
	for _, t := range r.tensors {
		t.memory.free()
	}
	r.handles.free()
	r.views.free()
}
