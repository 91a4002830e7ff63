package ort

// #include "shim.h"
import "C"

import (
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/graph"
)

// blockTokens is how many tokens a cache block holds on the CPU: few, so that
// the last block of a sequence, which is half empty on average, weighs little.
const blockTokens = 16

// paged are caches in blocks of one pool, for a graph that takes ragged passes:
// the tokens of all spans are one packed row, and the attention operator finds
// each span's keys and values through its row of the block table.
//
// The pool's memory is one tensor per layer for the keys and one for the values,
// [blocks, block tokens, KV heads, head size], bound once as input and output.
// The system gives it pages when they are first written to, so that a large
// pool costs what its sequences use.
type paged struct {
	model   *Model
	runtime *C.dm_runtime
	pool    *blockPool
	tables  []blockTable // by slot
	tensors []block      // in the order of the graph's caches
	token   int          // bytes of one token in one tensor

	views   views
	binding unsafe.Pointer // OrtIoBinding
	handles block          // dm_run_handles
	inputs  []C.dm_view    // of each run
	output  []C.dm_view
	in      struct {
		ids, positions, cumulative, pasts, table, rows feed
	}
	logits block // float32 [R, vocab]
}

// feed is an input of a run: its view, and the memory that it points to.
type feed struct {
	view   *C.dm_view // nil where the graph has no such input
	memory block
	elem   int
}

// defaultSequences is for how many sequences of the whole context a decoder has
// cache blocks, where nothing else is said.
const defaultSequences = 8

func newPaged(m *Model, options *yort.RunOptions, cacheBytes int) (_ *paged, err error) {
	blocks := defaultSequences * ((m.context + blockTokens - 1) / blockTokens)
	if cacheBytes > 0 {
		blocks = max(1, cacheBytes/(blockTokens*m.bundle.CacheBytesPerToken()))
	}
	p := &paged{model: m, runtime: m.runtime, pool: newBlockPool(blockTokens, blocks)}
	defer func() {
		if err != nil {
			p.free()
		}
	}()
	r := m.session.ragged
	if p.views, err = newViews(p.runtime, 7+len(r.Caches)+len(r.CachesOut)); err != nil {
		return nil, err
	}
	all := p.views.left
	const long, short = 8, 4 // bytes of an int64 and of an int32
	for _, f := range []struct {
		to   *feed
		name string
		t    graph.ElementType
		elem int
	}{
		{&p.in.ids, graph.InputIDs, graph.Int64, long},
		{&p.in.positions, graph.PositionIDs, graph.Int64, long},
		{&p.in.cumulative, graph.CumulativeLengths, graph.Int32, short},
		{&p.in.pasts, graph.PastLengths, graph.Int32, short},
		{&p.in.table, graph.BlockTable, graph.Int32, short},
		{&p.in.rows, graph.LogitRows, graph.Int64, long},
	} {
		if f.name != graph.PositionIDs || r.Positions {
			f.to.view, f.to.elem = &p.views.name([]string{f.name}, f.t)[0], f.elem
			p.inputs = all[:len(p.inputs)+1]
		}
	}
	p.output = p.views.name([]string{graph.Logits}, graph.Float32)
	if p.handles, err = newBlock(p.runtime, nil, C.sizeof_dm_run_handles); err != nil {
		return nil, err
	}
	if err = goError(C.dm_binding_new(p.runtime, m.session.session, &p.binding)); err != nil {
		return nil, err
	}
	*p.run() = C.dm_run_handles{session: m.session.session, options: rawRunOptions(options), binding: p.binding}
	return p, p.bindCaches(r)
}

// bindCaches makes the pool's memory and binds it.
func (p *paged) bindCaches(r *graph.Ragged) error {
	b := p.model.bundle
	const elem = 4
	p.token = b.KVHeads * b.HeadSize * elem
	blocks := len(p.pool.holders)
	past, present := p.views.name(r.Caches, graph.Float32), p.views.name(r.CachesOut, graph.Float32)
	p.tensors = make([]block, len(r.Caches))
	for i := range p.tensors {
		var err error
		if p.tensors[i], err = newBlock(p.runtime, nil, blocks*blockTokens*p.token); err != nil {
			return err
		}
		for _, v := range []*C.dm_view{&past[i], &present[i]} {
			setView(v, p.tensors[i].data, elem, blocks, blockTokens, b.KVHeads, b.HeadSize)
		}
	}
	if err := goError(C.dm_bind(p.runtime, p.binding, &past[0], C.size_t(len(past)), 0)); err != nil {
		return err
	}
	return goError(C.dm_bind(p.runtime, p.binding, &present[0], C.size_t(len(present)), 1))
}

func (p *paged) run() *C.dm_run_handles { return (*C.dm_run_handles)(p.handles.data) }

func (p *paged) add() error {
	p.tables = append(p.tables, nil)
	return nil
}

func (p *paged) capacity() int { return len(p.pool.holders) * blockTokens }

func (p *paged) reserve(slot, past, n int) (bool, error) {
	copies, ok := p.pool.reserve(&p.tables[slot], past, n)
	for _, c := range copies {
		size := blockTokens * p.token
		for i := range p.tensors {
			t := &p.tensors[i]
			copy(view[byte](t, int(c.to)*size, c.tokens*p.token), view[byte](t, int(c.from)*size, c.tokens*p.token))
		}
	}
	return ok, nil
}

func (p *paged) share(dst, src, n int) error {
	p.pool.share(&p.tables[dst], p.tables[src], n)
	return nil
}

func (p *paged) truncate(slot, n int) { p.pool.truncate(&p.tables[slot], n) }

func (p *paged) forward(spans []Span, rows int) ([]float32, error) {
	tokens, width := 0, 1
	for i := range spans {
		tokens += len(spans[i].Tokens)
		width = max(width, p.pool.blocksFor(spans[i].Past+len(spans[i].Tokens)))
	}
	computed := max(1, rows) // the graph takes no fewer
	if err := p.size(len(spans), tokens, width, computed); err != nil {
		return nil, err
	}
	ids, wanted := view[int64](&p.in.ids.memory, 0, tokens), view[int64](&p.in.rows.memory, 0, computed)
	wanted[0] = 0
	cumulative, pasts := view[int32](&p.in.cumulative.memory, 0, len(spans)+1), view[int32](&p.in.pasts.memory, 0, len(spans))
	table := view[int32](&p.in.table.memory, 0, len(spans)*width)
	clear(table) // behind a sequence's last block; never read
	at, row := 0, 0
	cumulative[0] = 0
	for i := range spans {
		s := &spans[i]
		for j, t := range s.Tokens {
			ids[at+j] = int64(t)
		}
		if p.in.positions.view != nil {
			positions := view[int64](&p.in.positions.memory, 0, tokens)
			for j := range s.Tokens {
				positions[at+j] = int64(s.Past + j)
			}
		}
		at += len(s.Tokens)
		for j := range s.Rows {
			wanted[row] = int64(at - s.Rows + j)
			row++
		}
		cumulative[i+1], pasts[i] = int32(at), int32(s.Past)
		blocks := p.tables[s.Slot]
		copy(table[i*width:(i+1)*width], blocks[:min(width, len(blocks))])
	}
	if err := goError(C.dm_forward(p.runtime, p.run(), &p.inputs[0], C.size_t(len(p.inputs)), &p.output[0], 1)); err != nil {
		return nil, err
	}
	return view[float32](&p.logits, 0, rows*p.model.Vocab()), nil
}

// size makes room for a pass and sets the shapes of what it binds.
func (p *paged) size(spans, tokens, width, rows int) error {
	vocab := p.model.Vocab()
	if err := growBlock(p.runtime, &p.logits, 4*rows*vocab); err != nil {
		return err
	}
	setView(&p.output[0], p.logits.data, 4, rows, vocab)
	for _, f := range []struct {
		to    *feed
		shape []int
	}{
		{&p.in.ids, []int{1, tokens}},
		{&p.in.positions, []int{1, tokens}},
		{&p.in.cumulative, []int{spans + 1}},
		{&p.in.pasts, []int{spans}},
		{&p.in.table, []int{spans, width}},
		{&p.in.rows, []int{rows}},
	} {
		if f.to.view == nil {
			continue
		}
		n := f.to.elem
		for _, d := range f.shape {
			n *= d
		}
		if err := growBlock(p.runtime, &f.to.memory, n); err != nil {
			return err
		}
		setView(f.to.view, f.to.memory.data, f.to.elem, f.shape...)
	}
	return nil
}

// free releases the binding and then the memory that is bound.
func (p *paged) free() {
	if p.binding != nil {
		C.dm_binding_free(p.runtime, p.binding)
		p.binding = nil
	}
	for i := range p.tensors {
		p.tensors[i].free()
	}
	for _, b := range []*block{&p.in.ids.memory, &p.in.positions.memory, &p.in.cumulative.memory, &p.in.pasts.memory, &p.in.table.memory, &p.in.rows.memory, &p.logits, &p.handles} {
		b.free()
	}
	p.views.free()
}
