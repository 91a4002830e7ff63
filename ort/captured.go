package ort

// #include <stdlib.h>
// #include "cuda.h"
// #include "shim.h"
import "C"

import (
	"fmt"
	"math/bits"
	"runtime"
	"strconv"
	"unsafe"
)

// A pass in which all sequences feed as many tokens, a verification of K+1 or a
// draft step of one, is much the same kernels each time. CUDA can record them as a
// graph, and a replay costs one launch in place of hundreds, if every address and
// every size is what it was. So such passes have memory of their own for each
// shape, sequences are filled up to a power of two, and tables are as wide as the
// context asks for. Other passes run as they come.
//
// ONNX Runtime keeps what it recorded by thread: a goroutine that records passes on
// a device stays on its own from then on.
//
// What fills up is a sequence of token 0 over a block that is nobody's. Its rows
// are computed and not looked at, and as rows do not depend on each other, it
// changes none of them. ONNX Runtime runs a graph once or more before it has it
// recorded; a pass writes to the cache what it wrote before, so that these runs
// change nothing either.

// shape is what recorded passes have in common: sequences, and of each the tokens
// that it feeds and the rows of logits that it wants.
type shape struct{ sequences, tokens, rows int }

const (
	capturedTokens = 16 // most tokens that a sequence feeds in a recorded pass
	capturedShapes = 32 // most shapes of a decoder that are recorded
	capturedAfter  = 3  // passes of a shape before it is
)

// eager is the number of no recorded graph.
const eager = "-1"

// captured is a recorded shape: inputs and logits at addresses that stay.
type captured struct {
	number  string
	binding unsafe.Pointer // OrtIoBinding
	feeds   []block        // on the device, in the order of paged's inputs; the metadata are the host's
	logits  block          // on the device
	copies  []C.dm_copy    // of the pass under way
}

// capturing counts shapes, and keeps those that are recorded.
type capturing struct {
	seen   map[shape]int
	shapes map[shape]*captured
}

// shapeOf is the shape that a run of spans is filled up to, and whether it is one
// that is recorded.
func (p *paged) shapeOf(spans []span) (s shape, ok bool) {
	first := &spans[0]
	s = shape{tokens: len(first.Tokens), rows: first.Rows}
	for i := range spans {
		if len(spans[i].Tokens) != s.tokens || spans[i].Rows != s.rows {
			return s, false
		}
	}
	s.sequences = 1 << bits.Len(uint(len(spans)-1))
	if p.paging.sequences > 0 {
		s.sequences = min(s.sequences, p.paging.sequences)
	}
	return s, s.rows > 0 && s.tokens <= min(capturedTokens, p.paging.block) && s.sequences >= len(spans)
}

// recorded is the shape of some spans as it is recorded; nil where they run as they
// come.
func (p *paged) recorded(spans []span) (*captured, shape, error) {
	if !p.paging.capture {
		return nil, shape{}, nil
	}
	s, ok := p.shapeOf(spans)
	if !ok {
		return nil, s, nil
	}
	c := &p.capturing
	if got := c.shapes[s]; got != nil {
		return got, s, nil
	}
	if c.seen == nil {
		c.seen, c.shapes = map[shape]int{}, map[shape]*captured{}
	}
	if c.seen[s]++; c.seen[s] < capturedAfter || len(c.shapes) == capturedShapes {
		return nil, s, nil
	}
	got, err := p.record(s)
	if err != nil {
		return nil, s, fmt.Errorf("record passes of %d sequences with %d tokens each: %w", s.sequences, s.tokens, err)
	}
	c.shapes[s] = got
	return got, s, nil
}

// width is that of a block table for any sequence.
func (p *paged) width() int { return p.pool.blocksFor(p.model.context) }

// record makes the memory of a shape and binds it.
func (p *paged) record(s shape) (_ *captured, err error) {
	c := &captured{number: strconv.Itoa(len(p.capturing.shapes) + 1)}
	defer func() {
		if err != nil {
			c.free(p)
		}
	}()
	device, rows := p.model.session.device, s.sequences*s.rows
	memory := device.memory
	if !device.onCPU() && len(p.capturing.shapes) == 0 {
		runtime.LockOSThread() // for good
	}
	if err = p.size(s.sequences, s.sequences*s.tokens, p.width(), rows, 0, 0); err != nil {
		return nil, err
	}
	if err = goError(C.dm_binding_new(p.runtime, p.model.session.session, &c.binding)); err != nil {
		return nil, err
	}
	views := C.calloc(C.size_t(len(p.inputs)+1), C.sizeof_dm_view) // C reads names through it
	defer C.free(views)
	bound := unsafe.Slice((*C.dm_view)(views), len(p.inputs)+1)
	for i := range p.inputs {
		m := memory
		if p.inputs[i].name == p.metadataName() {
			m = nil
		}
		b, err := newBlock(p.runtime, m, int(p.inputs[i].bytes))
		if err != nil {
			return nil, err
		}
		c.feeds = append(c.feeds, b)
		bound[i] = p.inputs[i]
		bound[i].data, bound[i].memory = b.data, b.info()
	}
	if c.logits, err = newBlock(p.runtime, memory, 4*rows*p.model.Vocab()); err != nil {
		return nil, err
	}
	out := &bound[len(p.inputs)]
	*out = p.output[0]
	setView(out, c.logits.data, 4, rows, p.model.Vocab())
	out.memory = c.logits.info()
	if err = goError(C.dm_bind(p.runtime, c.binding, &bound[0], C.size_t(len(p.inputs)), 0)); err != nil {
		return nil, err
	}
	if err = goError(C.dm_bind(p.runtime, c.binding, out, 1, 1)); err != nil {
		return nil, err
	}
	return c, p.bindPool(c.binding)
}

// metadataName is the name of the input that stays on the host, in C memory.
func (p *paged) metadataName() *C.char {
	if p.in.metadata.view == nil {
		return nil
	}
	return p.in.metadata.view.name
}

// replay makes a pass of a recorded shape: its inputs go to where they always are,
// and the rows of logits that are wanted come from there.
func (p *paged) replay(c *captured, s shape, spans []span, at int) (rows int, err error) {
	if err := p.size(s.sequences, s.sequences*s.tokens, p.width(), s.sequences*s.rows, at, 0); err != nil {
		return 0, err
	}
	p.pack(spans, s, p.width())
	// Bounds that hold for every replay: they choose the kernels that are recorded.
	p.bound(s.tokens, p.model.context, 0)
	device := p.model.session.device
	copies := c.copies[:0]
	for i := range c.feeds {
		if &p.inputs[i] == p.in.ids.view && hasDrawn(&p.in.ids.memory, s.sequences*s.tokens) {
			if _, err := p.composer.compose(device, &p.in.ids.memory, s.sequences*s.tokens, p.drawn, &c.feeds[i]); err != nil {
				return 0, err
			}
			continue
		}
		copies = append(copies, C.dm_copy{to: c.feeds[i].data, from: p.inputs[i].data, bytes: p.inputs[i].bytes})
		if c.feeds[i].memory == nil {
			copies[len(copies)-1].here = 1
		}
	}
	if err := device.upload(copies); err != nil {
		return 0, err
	}
	c.copies, rows = copies, len(spans)*s.rows
	if err := p.runOption(c.number); err != nil {
		return 0, err
	}
	run := *p.run()
	p.run().binding = c.binding
	err = device.again(p.run(), 1+p.paging.repeats, false) // the copy of the logits is waited for
	p.run().binding = run.binding
	if err != nil {
		return 0, err
	}
	if p.keeping {
		p.kept.data, p.kept.info = c.logits.data, c.logits.info()
		return rows, nil
	}
	vocab := p.model.Vocab()
	return rows, device.download(C.dm_copy{to: p.out().rows.at(4 * at * vocab), from: c.logits.data, bytes: C.size_t(4 * rows * vocab)})
}

// runOption says which recorded graph the next run is.
func (p *paged) runOption(number string) error {
	if p.number == number {
		return nil
	}
	err := p.model.session.device.option(p.run().options, "gpu_graph_id", number)
	if err == nil {
		p.number = number
	}
	return err
}

func (c *captured) free(p *paged) {
	if c.binding != nil {
		C.dm_binding_free(p.runtime, c.binding)
	}
	for i := range c.feeds {
		c.feeds[i].free()
	}
	c.logits.free()
}
