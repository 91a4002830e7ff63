package ort

// #include "shim.h"
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/graph"
)

// blockTokens is how many tokens a cache block holds on the CPU: few, so that
// the last block of a sequence, which is half empty on average, weighs little.
const blockTokens = 16

// paging is how the caches of a device are kept.
type paging struct {
	block     int  // tokens of a block
	sequences int  // most sequences of one run; 0: any number
	metadata  bool // the graph takes bounds of the lengths
	copies    bool // the graph copies what one sequence of a run begins with from another
	moves     bool // blocks are copied by a session, as their memory is a device's
	capture   bool // passes of uniform shape are filled up and recorded (captured.go)
	repeats   int  // of tests: further runs of a recorded pass
}

// pagingOn is the paging of a device for heads of a size.
func pagingOn(d *device, headSize int) paging {
	if d.onCPU() {
		return paging{block: blockTokens, copies: true}
	}
	return paging{block: graph.BlockTokens(headSize), sequences: graph.MostSequences, metadata: true, moves: true}
}

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
	paging  paging
	pool    *blockPool
	tables  []blockTable // by slot
	tensors []block      // in the order of the graph's caches
	token   int          // bytes of one token in one tensor
	mover   *mover       // of a block of all tensors; nil where memory is copied
	waste   blockTable   // a block that is nobody's, where passes are filled up

	capturing capturing
	number    string // of the recorded graph that the run options name

	views   views
	caches  [2][]C.dm_view // past and present, as they are bound
	binding unsafe.Pointer // OrtIoBinding
	handles block          // dm_run_handles
	inputs  []C.dm_view    // of each run
	output  []C.dm_view
	in      struct {
		ids, positions, cumulative, pasts, table, rows, metadata, lengths, copies feed
	}
	composer composer
	drawn    []drawnTokens // that the spans of the pass under way may name
	logits   [2]outputs    // float32 [R, vocab], on the host and where the session runs
	keeping  bool          // the pass under way leaves its logits there
	single   bool          // and is one run
	kept     kept
}

// outputs are logits, and room for the one row of runs that want none.
type outputs struct{ rows, spare block }

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
	g := m.session.paging
	blocks := defaultSequences * ((m.context + g.block - 1) / g.block)
	if cacheBytes > 0 {
		blocks = max(1, cacheBytes/(g.block*m.CacheBytesPerToken()))
	}
	if g.capture {
		blocks++
	}
	p := &paged{model: m, runtime: m.runtime, paging: g, pool: newBlockPool(g.block, blocks)}
	if g.capture {
		p.waste = blockTable{p.pool.take()}
	}
	defer func() {
		if err != nil {
			p.free()
		}
	}()
	r := m.session.ragged
	if p.views, err = newViews(p.runtime, 10+len(r.Caches)+len(r.CachesOut)); err != nil {
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
		{&p.in.metadata, graph.AttentionMetadata, graph.Int32, short},
		{&p.in.lengths, graph.InputLengths, graph.Int32, short},
		{&p.in.copies, graph.Copies, graph.Int32, short},
	} {
		if (f.name != graph.InputLengths || r.Crossed) && (f.name != graph.PositionIDs || r.Positions) && (f.name != graph.AttentionMetadata || g.metadata) && (f.name != graph.Copies || g.copies) {
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
	if err = m.session.device.place(m.session.session, p.inputs); err != nil {
		return nil, err
	}
	if g.moves {
		if p.mover, err = m.session.device.newMover(len(r.Caches)); err != nil {
			return nil, err
		}
	}
	return p, p.bindCaches(r)
}

// bindCaches makes the pool's memory and binds it.
func (p *paged) bindCaches(r *graph.Ragged) error {
	b, elem := p.model.bundle, r.Cache.Size()
	p.token = b.KVHeads * b.HeadSize * elem
	blocks, size := len(p.pool.holders), p.paging.block
	past, present := p.views.name(r.Caches, r.Cache), p.views.name(r.CachesOut, r.Cache)
	p.caches = [2][]C.dm_view{past, present}
	p.tensors = make([]block, len(r.Caches))
	for i := range p.tensors {
		var err error
		if p.tensors[i], err = newBlock(p.runtime, p.model.session.device.memory, blocks*size*p.token); err != nil {
			return err
		}
		for _, v := range []*C.dm_view{&past[i], &present[i]} {
			setView(v, p.tensors[i].data, elem, blocks, size, b.KVHeads, b.HeadSize)
			v.memory = p.tensors[i].info()
		}
	}
	return p.bindPool(p.binding)
}

// bindPool binds the pool's memory, as what goes in and what comes out.
func (p *paged) bindPool(binding unsafe.Pointer) error {
	for outputs, views := range p.caches {
		if err := goError(C.dm_bind(p.runtime, binding, &views[0], C.size_t(len(views)), C.int(outputs))); err != nil {
			return err
		}
	}
	return nil
}

func (p *paged) run() *C.dm_run_handles { return (*C.dm_run_handles)(p.handles.data) }

func (p *paged) add() error {
	p.tables = append(p.tables, nil)
	return nil
}

func (p *paged) capacity() int {
	blocks := len(p.pool.holders)
	if p.paging.capture {
		blocks--
	}
	return blocks * p.paging.block
}

func (p *paged) reserve(slot, past, n int) (bool, error) {
	copies, ok := p.pool.reserve(&p.tables[slot], past, n)
	for _, c := range copies {
		if err := p.copyBlock(c); err != nil {
			return false, err
		}
	}
	return ok, nil
}

// copyBlock copies the first tokens of a block, in all layers. Where a mover does
// it the device's addresses can be counted with, as CUDA's can.
func (p *paged) copyBlock(c blockCopy) error {
	size := p.paging.block * p.token
	for i := range p.tensors {
		t := &p.tensors[i]
		if p.mover == nil {
			copy(view[byte](t, int(c.to)*size, c.tokens*p.token), view[byte](t, int(c.from)*size, c.tokens*p.token))
			continue
		}
		from, to := *t, *t
		from.data, to.data = t.at(int(c.from)*size), t.at(int(c.to)*size)
		p.mover.set(i, &from, &to, 1, p.paging.block, c.tokens, p.token)
	}
	if p.mover == nil {
		return nil
	}
	return p.mover.move(c.tokens, false)
}

func (p *paged) share(dst, src, n int) error {
	p.pool.share(&p.tables[dst], p.tables[src], n)
	return nil
}

func (p *paged) truncate(slot, n int) { p.pool.truncate(&p.tables[slot], n) }

func (p *paged) forward(spans []span, rows int) ([]float32, error) {
	if err := p.runs(spans, rows, false); err != nil {
		return nil, err
	}
	return view[float32](&p.out().rows, 0, rows*p.model.Vocab()), nil
}

func (p *paged) keep(spans []span, rows int, drawn []drawnTokens) (kept, error) {
	p.drawn = drawn
	err := p.runs(spans, rows, true)
	p.kept.rows = rows
	return p.kept, err
}

// runs makes as many runs as the device's bound on sequences asks for.
func (p *paged) runs(spans []span, rows int, keep bool) error {
	p.keeping, p.single = keep, len(p.together(spans)) == len(spans)
	out := &p.out().rows
	if err := growBlockOn(p.runtime, p.memory(), out, 4*max(1, rows)*p.model.Vocab()); err != nil {
		return err
	}
	p.kept = kept{data: out.data, info: out.info(), elem: graph.Float32}
	for at := 0; len(spans) > 0; {
		some := p.together(spans)
		spans = spans[len(some):]
		n, err := p.pass(some, at)
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

// out is where the logits of the pass under way go, and memory what it is in.
func (p *paged) out() *outputs {
	if p.keeping {
		return &p.logits[1]
	}
	return &p.logits[0]
}

func (p *paged) memory() *memory {
	if p.keeping {
		return p.model.session.device.memory
	}
	return nil
}

// together are the first spans, as many as one run takes. Where the graph does not
// copy what it has just computed, a span that begins like another one waits for the
// next run.
func (p *paged) together(spans []span) []span {
	if most := p.paging.sequences; most > 0 {
		spans = spans[:min(most, len(spans))]
	}
	if p.paging.copies {
		return spans
	}
	for i, s := range spans {
		if s.held < s.Past && slices.ContainsFunc(spans[:i], func(o span) bool { return o.Slot == s.lender }) {
			return spans[:i]
		}
	}
	return spans
}

// lend copies what a slot lacks of its beginning from the one that has been fed it,
// in whole beginnings of blocks: they agree on all tokens.
func (p *paged) lend(s *span) error {
	size := p.paging.block
	for i := s.held / size; i*size < s.Past; i++ {
		if err := p.copyBlock(blockCopy{from: p.tables[s.lender][i], to: p.tables[s.Slot][i], tokens: min(size, s.Past-i*size)}); err != nil {
			return err
		}
	}
	return nil
}

// pass runs the graph on some spans, and puts their rows of logits where row at
// is; it returns how many they are.
func (p *paged) pass(spans []span, at int) (rows int, err error) {
	copies := 0
	for i := range spans {
		switch s := &spans[i]; {
		case s.held == s.Past:
		case p.paging.copies:
			copies += s.Past - s.held
		default:
			if err := p.lend(s); err != nil {
				return 0, err
			}
		}
	}
	if copies == 0 && (p.single || !p.keeping) { // what is recorded copies nothing
		if c, s, err := p.recorded(spans); err != nil {
			return 0, err
		} else if c != nil {
			return p.replay(c, s, spans, at)
		}
	}
	if p.paging.capture {
		if err := p.runOption(eager); err != nil {
			return 0, err
		}
	}
	l := lengthsOf(spans)
	width := p.pool.blocksFor(max(1, l.longest))
	if err := p.size(len(spans), l.tokens, width, l.rows, at, copies); err != nil {
		return 0, err
	}
	p.pack(spans, shape{sequences: len(spans)}, width)
	p.packCopies(spans, copies)
	p.bound(l.fed, l.longest, l.longest)
	if hasDrawn(&p.in.ids.memory, l.tokens) {
		ids, err := p.composer.compose(p.model.session.device, &p.in.ids.memory, l.tokens, p.drawn, nil)
		if err != nil {
			return 0, fmt.Errorf("put %d tokens together: %w", l.tokens, err)
		}
		p.in.ids.view.data, p.in.ids.view.memory = ids.data, ids.info()
		defer func() { p.in.ids.view.memory = nil }()
	}
	return l.rows, p.model.session.device.launch(p.run(), p.inputs, p.output, !p.keeping)
}

// bound sets the bounds of the lengths, where the graph takes them.
func (p *paged) bound(fed, longest, least int) {
	if p.in.metadata.view != nil {
		copy(view[int32](&p.in.metadata.memory, 0, 3), []int32{int32(fed), int32(longest), int32(least)})
	}
}

// size makes room for a run and sets the shapes of what it binds. Its logits go
// where row at is, and where it wants none the one that it gives goes there.
func (p *paged) size(spans, tokens, width, rows, at, copies int) error {
	vocab := p.model.Vocab()
	out := p.out()
	to := out.rows.at(4 * at * vocab)
	if rows == 0 {
		if err := growBlockOn(p.runtime, p.memory(), &out.spare, 4*vocab); err != nil {
			return err
		}
		to, rows = out.spare.data, 1
	}
	setView(&p.output[0], to, 4, rows, vocab)
	p.output[0].memory = out.rows.info()
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
		{&p.in.metadata, []int{3}},
		{&p.in.lengths, []int{spans}},
		{&p.in.copies, []int{copies, 2}},
	} {
		if f.to.view == nil {
			continue
		}
		n := f.to.elem
		for _, d := range f.shape {
			n *= d
		}
		if err := growBlock(p.runtime, &f.to.memory, max(n, f.to.elem)); err != nil {
			return err
		}
		setView(f.to.view, f.to.memory.data, f.to.elem, f.shape...)
	}
	return nil
}

// free releases the bindings and then the memory that is bound.
func (p *paged) free() {
	for _, c := range p.capturing.shapes {
		c.free(p)
	}
	if p.binding != nil {
		C.dm_binding_free(p.runtime, p.binding)
		p.binding = nil
	}
	if p.mover != nil {
		p.mover.free()
	}
	for i := range p.tensors {
		p.tensors[i].free()
	}
	p.composer.free()
	for _, b := range []*block{&p.in.ids.memory, &p.in.positions.memory, &p.in.cumulative.memory, &p.in.pasts.memory, &p.in.table.memory, &p.in.rows.memory, &p.in.metadata.memory, &p.in.lengths.memory, &p.in.copies.memory, &p.logits[0].rows, &p.logits[0].spare, &p.logits[1].rows, &p.logits[1].spare, &p.handles} {
		b.free()
	}
	p.views.free()
}
