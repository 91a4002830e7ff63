package ort

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"unsafe"

	"github.com/draftmill/draftmill/ort/graph"
)

// views are the tensors that a decoder's runs bind, in memory that C reads: a
// name and a type that are there for good, and data and a shape that change from
// run to run.
type views struct {
	memory block
	names  []*C.char
	all    []C.dm_view
	left   []C.dm_view
}

// newViews makes room for n views.
func newViews(rt *C.dm_runtime, n int) (v views, err error) {
	if v.memory, err = newBlock(rt, nil, n*C.sizeof_dm_view); err != nil {
		return v, err
	}
	v.all = view[C.dm_view](&v.memory, 0, n)
	clear(v.all)
	v.left = v.all
	return v, nil
}

// name takes the next views for tensors of these names.
func (v *views) name(names []string, t graph.ElementType) []C.dm_view {
	taken := v.left[:len(names):len(names)]
	v.left = v.left[len(names):]
	for i, name := range names {
		cname := C.CString(name)
		v.names = append(v.names, cname)
		taken[i].name, taken[i]._type = cname, C.int32_t(t)
	}
	return taken
}

// since are the views that were named from that one on.
func (v *views) since(first *C.dm_view) []C.dm_view {
	at := int(uintptr(unsafe.Pointer(first))-uintptr(unsafe.Pointer(&v.all[0]))) / C.sizeof_dm_view
	return v.all[at : len(v.all)-len(v.left)]
}

func (v *views) free() {
	for _, name := range v.names {
		C.free(unsafe.Pointer(name))
	}
	v.names, v.all, v.left = nil, nil, nil
	v.memory.free()
}

// setView points a view at row-major data of the given shape.
func setView(v *C.dm_view, data unsafe.Pointer, elem int, shape ...int) {
	v.data = data
	v.rank = C.size_t(len(shape))
	bytes := elem
	for i, n := range shape {
		v.shape[i] = C.int64_t(n)
		bytes *= n
	}
	v.bytes = C.size_t(bytes)
}

// growBlock makes the block at least so large; what it held is lost.
func growBlock(rt *C.dm_runtime, b *block, size int) error { return growBlockOn(rt, nil, b, size) }

// growBlockOn does the same in a device's memory.
func growBlockOn(rt *C.dm_runtime, m *memory, b *block, size int) (err error) {
	if b.size >= size && b.data != nil {
		return nil
	}
	b.free()
	*b, err = newBlock(rt, m, max(size, 64))
	return err
}
