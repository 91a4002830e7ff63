package ort

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// weights are a model's large initializers, held once for all its sessions.
// Files are mapped, so that the pages behind a weight that the kernels have
// packed into a layout of their own can be dropped; the packed forms are shared
// through a container of ONNX Runtime. Its optimizers fold what depends on
// weights alone into further weights, anew in each session: the two nodes that
// exporters leave behind large weights, a Cast from half precision and a
// Transpose, are therefore folded here. On a device sessions share a copy of each
// weight there, and the optimizers see the file's.
type weights struct {
	runtime *C.dm_runtime
	device  *device
	mover   *mover // of one tensor, while weights go to the device
	dir     string
	files   map[string][]byte // mapped files, by their location
	tensors map[string]*weight
	packed  unsafe.Pointer // OrtPrepackedWeightsContainer
}

// weight is one initializer: row-major data, in a mapped file or in a block.
type weight struct {
	data  unsafe.Pointer
	bytes int
	typ   graph.ElementType
	dims  []int64
	own   block
	value unsafe.Pointer // OrtValue, made when a session first asks

	onDevice    block          // the same data where sessions run; empty on the CPU
	deviceValue unsafe.Pointer // OrtValue over them
}

// foldedLocation stands for a file where there is none: the value is given to
// each session.
const foldedLocation = "folded"

// maxRank is what a dm_view can describe.
const maxRank = 4

// newWeights takes hold of the external initializers of m, a model in the
// folder dir, and folds what can be folded in m itself.
func newWeights(d *device, dir string, m *onnxpb.ModelProto) (*weights, error) {
	rt := d.runtime
	w := &weights{runtime: rt, device: d, dir: dir, files: map[string][]byte{}, tensors: map[string]*weight{}}
	err := goError(C.dm_packed_new(rt, &w.packed))
	for _, t := range m.Graph.Initializer {
		if err == nil && t.GetDataLocation() == graph.External {
			err = w.add(t)
		}
	}
	if err == nil {
		err = w.fold(m.Graph)
	}
	if err != nil {
		return nil, errors.Join(err, w.free())
	}
	return w, nil
}

// add maps a tensor. One of a form that is not known here is left to the
// sessions, which read it themselves.
func (w *weights) add(t *onnxpb.TensorProto) error {
	x := &weight{typ: graph.ElementType(t.GetDataType()), dims: t.Dims}
	if x.typ.Size() == 0 || len(t.Dims) > maxRank {
		return nil
	}
	if x.typ == graph.Float16 && len(t.Dims) == 1 && t.Dims[0] < 1<<17 {
		return nil // of a normalization, which on the CPU widens it for itself and cannot share that
	}
	x.bytes = x.typ.Size()
	for _, n := range t.Dims {
		if n <= 0 || n > 1<<40/int64(x.bytes) {
			return nil
		}
		x.bytes *= int(n)
	}
	file, err := w.file(graph.ExternalData(t, "location"))
	if err != nil {
		return err
	}
	offset := 0
	if text := graph.ExternalData(t, "offset"); text != "" {
		if offset, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("initializer %s: offset %q", t.GetName(), text)
		}
	}
	if offset < 0 || offset > len(file)-x.bytes {
		return fmt.Errorf("initializer %s: bytes %d to %d are behind the end of %s", t.GetName(), offset, offset+x.bytes, graph.ExternalData(t, "location"))
	}
	x.data = unsafe.Pointer(&file[offset])
	if offset%x.typ.Size() != 0 { // inside a model file weights begin anywhere
		if x.own, err = newBlock(w.runtime, nil, x.bytes); err != nil {
			return err
		}
		copy(view[byte](&x.own, 0, x.bytes), file[offset:])
		x.data = x.own.data
	}
	w.tensors[t.GetName()] = x
	return nil
}

func (w *weights) file(location string) ([]byte, error) {
	if data, ok := w.files[location]; ok {
		return data, nil
	}
	data, err := graph.MapFile(filepath.Join(w.dir, location))
	if err != nil {
		return nil, fmt.Errorf("external data %s: %w", location, reason(err))
	}
	w.files[location] = data
	return data, nil
}

// fold computes the nodes of g that only convert or transpose a weight.
func (w *weights) fold(g *onnxpb.GraphProto) error {
	for again := true; again; {
		again = false
		for _, node := range g.Node {
			if len(node.Input) != 1 || len(node.Output) != 1 || w.tensors[node.Output[0]] != nil {
				continue
			}
			x := w.tensors[node.Input[0]]
			if x == nil {
				continue
			}
			y, err := w.foldNode(node, x)
			if err != nil {
				return fmt.Errorf("node %s: %w", node.GetName(), err)
			}
			if y == nil {
				continue
			}
			again = true
			name := node.Output[0]
			w.tensors[name] = y
			t := &onnxpb.TensorProto{Name: &name, Dims: y.dims, DataType: proto.Int32(int32(y.typ))}
			graph.SetExternal(t, foldedLocation, 0, y.bytes)
			g.Initializer = append(g.Initializer, t)
		}
	}
	nodes := slices.DeleteFunc(g.Node, func(n *onnxpb.NodeProto) bool { return len(n.Output) == 1 && w.tensors[n.Output[0]] != nil })
	g.Node = nil
	graph.Prune(g, nodes)
	kept := map[string]bool{}
	for _, t := range g.Initializer {
		kept[t.GetName()] = true
	}
	for name, x := range w.tensors {
		if !kept[name] {
			x.free(w.runtime)
			delete(w.tensors, name)
		}
	}
	return nil
}

// foldNode is the node's output, or nil where it is not one to be folded.
func (w *weights) foldNode(node *onnxpb.NodeProto, x *weight) (y *weight, err error) {
	switch node.GetOpType() {
	case "Cast":
		if to := graph.Attribute(node, "to"); to == nil || graph.ElementType(to.GetI()) != graph.Float32 || (x.typ != graph.Float16 && x.typ != graph.BFloat16) {
			return nil, nil
		}
		y = &weight{typ: graph.Float32, dims: x.dims, bytes: 2 * x.bytes}
	case "Transpose":
		if perm := graph.Attribute(node, "perm"); len(x.dims) != 2 || x.typ != graph.Float32 || perm != nil && !slices.Equal(perm.Ints, []int64{1, 0}) {
			return nil, nil
		}
		y = &weight{typ: graph.Float32, dims: []int64{x.dims[1], x.dims[0]}, bytes: x.bytes}
	default:
		return nil, nil
	}
	if y.own, err = newBlock(w.runtime, nil, y.bytes); err != nil {
		return nil, err
	}
	y.data = y.own.data
	if node.GetOpType() == "Cast" {
		widen(y.data, x.data, y.bytes/y.typ.Size(), x.typ)
	} else {
		n := x.bytes / x.typ.Size()
		transpose(unsafe.Slice((*float32)(y.data), n), unsafe.Slice((*float32)(x.data), n), int(x.dims[0]), int(x.dims[1]))
	}
	return y, nil
}

// transpose writes src, [rows, columns], as [columns, rows], tile by tile so
// that both sides stay in the cache.
func transpose(dst, src []float32, rows, columns int) {
	const tile = 32
	for r0 := 0; r0 < rows; r0 += tile {
		for c0 := 0; c0 < columns; c0 += tile {
			for r := r0; r < min(r0+tile, rows); r++ {
				for c := c0; c < min(c0+tile, columns); c++ {
					dst[c*rows+r] = src[r*columns+c]
				}
			}
		}
	}
}

// share makes a session with these options take the initializers of g from
// here.
func (w *weights) share(options unsafe.Pointer, g *onnxpb.GraphProto) error {
	var names []*C.char
	var values, shared []unsafe.Pointer
	defer func() {
		for _, name := range names {
			C.free(unsafe.Pointer(name))
		}
	}()
	given := 0 // of the values: the first ones, which no file holds
	for _, folded := range []bool{true, false} {
		for _, t := range g.Initializer {
			x := w.tensors[t.GetName()]
			if x == nil || folded != (graph.ExternalData(t, "location") == foldedLocation) {
				continue
			}
			if err := w.open(x); err != nil {
				return fmt.Errorf("initializer %s: %w", t.GetName(), err)
			}
			names, values, shared = append(names, C.CString(t.GetName())), append(values, x.value), append(shared, x.shared())
		}
		if folded {
			given = len(names)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return goError(C.dm_share(w.runtime, options, &names[0], &values[0], C.size_t(given), &shared[0], C.size_t(len(names))))
}

// open makes the weight's values.
func (w *weights) open(x *weight) error {
	if x.value != nil {
		return nil
	}
	var err error
	if !w.device.onCPU() && x.bytes%moveWord == 0 {
		err = w.upload(x)
	}
	if err == nil {
		x.value, err = x.newValue(w.runtime, x.data, nil)
	}
	return err
}

// upload copies a weight to the device.
func (w *weights) upload(x *weight) (err error) {
	if w.mover == nil {
		if w.mover, err = w.device.newMover(1); err != nil {
			return err
		}
	}
	if x.onDevice, err = newBlock(w.runtime, w.device.memory, x.bytes); err != nil {
		return err
	}
	row := moveWord
	for x.bytes%(2*row) == 0 && row < 1<<10 {
		row *= 2
	}
	from := block{runtime: w.runtime, data: x.data, size: x.bytes}
	w.mover.set(0, &from, &x.onDevice, 1, x.bytes/row, x.bytes/row, row)
	if err := w.mover.move(x.bytes / row); err != nil {
		return err
	}
	x.deviceValue, err = x.newValue(w.runtime, x.onDevice.data, x.onDevice.info())
	return err
}

// shared is the value that sessions compute with; nil leaves it to them.
func (x *weight) shared() unsafe.Pointer {
	if x.onDevice.memory != nil {
		return x.deviceValue
	}
	return x.value
}

// newValue makes an OrtValue of the weight over data in some memory.
func (x *weight) newValue(rt *C.dm_runtime, data, memory unsafe.Pointer) (value unsafe.Pointer, err error) {
	v := (*C.dm_view)(C.calloc(1, C.sizeof_dm_view))
	defer C.free(unsafe.Pointer(v))
	v.data, v.memory, v.bytes, v._type, v.rank = data, memory, C.size_t(x.bytes), C.int32_t(x.typ), C.size_t(len(x.dims))
	for i, n := range x.dims {
		v.shape[i] = C.int64_t(n)
	}
	err = goError(C.dm_value_new(rt, v, &value))
	return value, err
}

func (x *weight) free(rt *C.dm_runtime) {
	for _, value := range []*unsafe.Pointer{&x.value, &x.deviceValue} {
		if *value != nil {
			C.dm_value_free(rt, *value)
			*value = nil
		}
	}
	x.onDevice.free()
	x.own.free()
}

// forget gives back what only the making of a session needed: the mapped pages,
// which come back from the file where they are read again, and the weights that
// the session packed and then found packed already. Without it two sessions
// more take as much memory as two copies of the weights.
func (w *weights) forget() error {
	C.dm_trim()
	return w.forgetPages()
}

// forgetting gives mapped pages back again and again while a session is being
// made, so that reading a model takes the memory of what the kernels pack and
// not that of the file besides. stop ends it.
func (w *weights) forgetting() (stop func() error) {
	var wg sync.WaitGroup
	end := make(chan struct{})
	var failed error
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				failed = errors.Join(failed, w.forgetPages())
			case <-end:
				return
			}
		}
	})
	return func() error {
		close(end)
		wg.Wait()
		return failed
	}
}

func (w *weights) forgetPages() (err error) {
	for _, data := range w.files {
		err = errors.Join(err, syscall.Madvise(data, syscall.MADV_DONTNEED))
	}
	return err
}

// free follows the end of all sessions.
func (w *weights) free() error {
	if w.mover != nil {
		w.mover.free()
		w.mover = nil
	}
	if w.packed != nil {
		C.dm_packed_free(w.runtime, w.packed)
		w.packed = nil
	}
	for _, x := range w.tensors {
		x.free(w.runtime)
	}
	var err error
	for _, data := range w.files {
		err = errors.Join(err, syscall.Munmap(data))
	}
	w.tensors, w.files = nil, nil
	C.dm_trim()
	return err
}
