package ort

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// align is the spacing of the tensors that share one block: a cache line, and
// what the widest vector instructions like.
const align = 64

// liveBytes counts what is allocated through block, for the tests of leaks.
var liveBytes atomic.Int64

// block is memory of ONNX Runtime's allocator. The zero block is empty.
type block struct {
	runtime *C.dm_runtime
	data    unsafe.Pointer
	size    int
}

func newBlock(rt *C.dm_runtime, size int) (block, error) {
	b := block{runtime: rt, size: size}
	if err := goError(C.dm_alloc(rt, C.size_t(size), &b.data)); err != nil {
		return block{}, fmt.Errorf("allocate %d MiB: %w", size>>20, err)
	}
	liveBytes.Add(int64(size))
	return b, nil
}

// free gives the memory back; an empty block is left alone.
func (b *block) free() {
	if b.data == nil {
		return
	}
	// Freeing fails only for a pointer that the allocator never gave.
	if err := goError(C.dm_free(b.runtime, b.data)); err != nil {
		panic("ort: free: " + err.Error())
	}
	liveBytes.Add(-int64(b.size))
	*b = block{}
}

// at is the address of byte off.
func (b *block) at(off int) unsafe.Pointer { return unsafe.Add(b.data, off) }

// view is a slice over n elements of the block from byte off on.
func view[T any](b *block, off, n int) []T { return unsafe.Slice((*T)(b.at(off)), n) }

// aligned rounds a size in bytes up to the next tensor's start.
func aligned(size int) int { return (size + align - 1) / align * align }

// widen converts n numbers of a half-precision type at src to float32 at dst.
func widen(dst, src unsafe.Pointer, n int, t elementType) {
	bf16 := C.int(0)
	if t == bfloat16Type {
		bf16 = 1
	}
	C.dm_widen((*C.uint16_t)(src), (*C.float)(dst), C.size_t(n), bf16)
}
