package ort

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/draftmill/draftmill/ort/graph"
)

// liveBytes counts what is allocated through block, for the tests of leaks.
var liveBytes atomic.Int64

// memory is a device's: an OrtAllocator and the OrtMemoryInfo of what it gives.
// The CPU's is a nil pointer.
type memory struct{ allocator, info unsafe.Pointer }

// block is memory of one of ONNX Runtime's allocators. The zero block is empty.
// The data of a block on a device may be a handle: there is no going to the
// middle of it, and Go and C do not read it.
type block struct {
	runtime *C.dm_runtime
	memory  *memory
	data    unsafe.Pointer
	size    int
}

func newBlock(rt *C.dm_runtime, m *memory, size int) (block, error) {
	b := block{runtime: rt, memory: m, size: size}
	if err := goError(C.dm_alloc(rt, b.allocator(), C.size_t(size), &b.data)); err != nil {
		return block{}, fmt.Errorf("allocate %d MiB: %w", size>>20, err)
	}
	liveBytes.Add(int64(size))
	return b, nil
}

func (b *block) allocator() unsafe.Pointer {
	if b.memory == nil {
		return nil
	}
	return b.memory.allocator
}

// info is the OrtMemoryInfo of the block, nil on the CPU.
func (b *block) info() unsafe.Pointer {
	if b.memory == nil {
		return nil
	}
	return b.memory.info
}

// free gives the memory back; an empty block is left alone.
func (b *block) free() {
	if b.data == nil {
		return
	}
	// Freeing fails only for a pointer that the allocator never gave.
	if err := goError(C.dm_free(b.runtime, b.allocator(), b.data)); err != nil {
		panic("ort: free: " + err.Error())
	}
	liveBytes.Add(-int64(b.size))
	*b = block{}
}

// at is the address of byte off of a block on the CPU.
func (b *block) at(off int) unsafe.Pointer { return unsafe.Add(b.data, off) }

// view is a slice over n elements of the block from byte off on.
func view[T any](b *block, off, n int) []T { return unsafe.Slice((*T)(b.at(off)), n) }

// widen converts n numbers of a half-precision type at src to float32 at dst.
func widen(dst, src unsafe.Pointer, n int, t graph.ElementType) {
	bf16 := C.int(0)
	if t == graph.BFloat16 {
		bf16 = 1
	}
	C.dm_widen((*C.uint16_t)(src), (*C.float)(dst), C.size_t(n), bf16)
}
