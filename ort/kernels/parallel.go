package kernels

// #include "parallel.h"
import "C"

import "unsafe"

// Threads are threads of this package's own, for tests and benchmarks. Free
// ends them.
type Threads struct{ c *C.dm_parallel }

// NewThreads starts n - 1 threads; the caller of a kernel is the n-th.
func NewThreads(n int) Threads { return Threads{C.dm_threads_new(C.int(n))} }

// Free ends the threads.
func (t Threads) Free() { C.dm_threads_free(t.c) }

// Read reads a buffer once on all threads: the time that a kernel needs at least
// for as many bytes.
func (t Threads) Read(data []uint64) uint64 {
	return uint64(C.dm_threads_read(t.c, (*C.uint64_t)(unsafe.SliceData(data)), C.size_t(len(data))))
}
