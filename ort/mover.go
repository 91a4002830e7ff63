package ort

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"
	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// A mover copies tensors to, from and within a device by running a session of
// its own, a Slice for each tensor. What a session is bound to it finds on
// every device, whereas a device's memory may be handles that nobody else can
// add a number to (WebGPU), and each device would need copies of its own kind.
type mover struct {
	runtime *C.dm_runtime
	device  *device
	n       int
	handles block // dm_run_handles
	options *yort.RunOptions
	binding unsafe.Pointer
	views   block // dm_view: n sources, n destinations, the length
	length  block // int64 [1]
	names   []*C.char
}

// moveWord is the size in bytes of what movers move: words of bits, whatever
// they mean, under the name of float32, which is what WebGPU's Slice takes.
// Nothing is computed with them; a test sees that all bits arrive.
const moveWord = 4

func moveFrom(i int) string { return fmt.Sprintf("from.%d", i) }
func moveTo(i int) string   { return fmt.Sprintf("to.%d", i) }

const moveLength = "length"

// moveGraph keeps the first length entries along the third axis of n tensors:
//
//	to.i = from.i[:, :, :length, :]
func moveGraph(n int) ([]byte, error) {
	constant := func(name string, v byte) *onnxpb.TensorProto {
		return &onnxpb.TensorProto{Name: &name, Dims: []int64{1}, DataType: proto.Int32(int32(graph.Int64)), RawData: []byte{v, 0, 0, 0, 0, 0, 0, 0}}
	}
	g := &onnxpb.GraphProto{
		Initializer: []*onnxpb.TensorProto{constant("start", 0), constant("axis", 2)},
		Input:       []*onnxpb.ValueInfoProto{graph.Value(moveLength, graph.Int64, 1)},
	}
	for i := range n {
		g.Node = append(g.Node, &onnxpb.NodeProto{
			OpType: proto.String("Slice"), Name: proto.String(fmt.Sprintf("move.%d", i)),
			Input: []string{moveFrom(i), "start", moveLength, "axis"}, Output: []string{moveTo(i)},
		})
		g.Input = append(g.Input, graph.Value(moveFrom(i), graph.Float32, -1, -1, -1, -1))
		g.Output = append(g.Output, graph.Value(moveTo(i), graph.Float32, -1, -1, -1, -1))
	}
	g.Name = proto.String("move")
	m := &onnxpb.ModelProto{
		IrVersion: proto.Int64(8), Graph: g,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: proto.Int64(13)}},
	}
	return proto.Marshal(m)
}

// moverSession is the session that moves n tensors at a time.
func (d *device) moverSession(n int) (session unsafe.Pointer, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if session := d.movers[n]; session != nil {
		return session, nil
	}
	options, err := newSessionOptions(Options{Threads: 1}, d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, options.Destroy()) }()
	model, err := moveGraph(n)
	if err != nil {
		return nil, err
	}
	if err := goError(C.dm_session_new(d.runtime, unsafe.Pointer(&model[0]), C.size_t(len(model)), rawSessionOptions(options), &session)); err != nil {
		return nil, err
	}
	d.movers[n] = session
	return session, nil
}

// newMover moves n tensors at a time; one goroutine uses it at a time.
func (d *device) newMover(n int) (*mover, error) {
	m := &mover{runtime: d.runtime, device: d, n: n}
	if err := m.prepare(); err != nil {
		m.free()
		return nil, fmt.Errorf("prepare to move caches: %w", err)
	}
	return m, nil
}

func (m *mover) prepare() error {
	session, err := m.device.moverSession(m.n)
	if err != nil {
		return err
	}
	for _, b := range []struct {
		to   *block
		size int
	}{{&m.handles, C.sizeof_dm_run_handles}, {&m.views, (2*m.n + 1) * C.sizeof_dm_view}, {&m.length, 8}} {
		if *b.to, err = newBlock(m.runtime, nil, b.size); err != nil {
			return err
		}
	}
	if err := goError(C.dm_binding_new(m.runtime, session, &m.binding)); err != nil {
		return err
	}
	if m.options, err = yort.NewRunOptions(); err != nil {
		return err
	}
	*m.run() = C.dm_run_handles{session: session, options: rawRunOptions(m.options), binding: m.binding}
	views := view[C.dm_view](&m.views, 0, 2*m.n+1)
	clear(views)
	name := func(i int, name string, t graph.ElementType) {
		cname := C.CString(name)
		m.names = append(m.names, cname)
		views[i].name, views[i]._type = cname, C.int32_t(t)
	}
	for i := range m.n {
		name(i, moveFrom(i), graph.Float32)
		name(m.n+i, moveTo(i), graph.Float32)
	}
	name(2*m.n, moveLength, graph.Int64)
	setView(&views[2*m.n], m.length.data, 8, 1)
	return nil
}

func (m *mover) run() *C.dm_run_handles { return (*C.dm_run_handles)(m.handles.data) }

// set says that tensor i moves from one block to the other: of each of the
// heads, entries of row bytes, of which from has so many and to gets length.
func (m *mover) set(i int, from, to *block, heads, entries, length, row int) {
	views := view[C.dm_view](&m.views, 0, 2*m.n)
	setView(&views[i], from.data, moveWord, 1, heads, entries, row/moveWord)
	views[i].memory = from.info()
	setView(&views[m.n+i], to.data, moveWord, 1, heads, length, row/moveWord)
	views[m.n+i].memory = to.info()
}

// move does what was set for every tensor, with the length that was. It has to be
// waited for where memory of the host is read or written.
func (m *mover) move(length int, wait bool) error {
	view[int64](&m.length, 0, 1)[0] = int64(length)
	views := view[C.dm_view](&m.views, 0, 2*m.n+1)
	if err := goError(C.dm_bind(m.runtime, m.binding, &views[2*m.n], 1, 0)); err != nil { // which is read on the host
		return err
	}
	return m.device.launch(m.run(), views[:m.n], views[m.n:2*m.n], wait)
}

// free ends the mover; its session is the device's.
func (m *mover) free() {
	if m.binding != nil {
		C.dm_binding_free(m.runtime, m.binding)
		m.binding = nil
	}
	freeOptions(&m.options)
	for _, b := range []*block{&m.handles, &m.views, &m.length} {
		b.free()
	}
	for _, name := range m.names {
		C.free(unsafe.Pointer(name))
	}
	m.names = nil
}
