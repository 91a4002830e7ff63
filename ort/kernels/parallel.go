package kernels

// #include "parallel.h"
import "C"

// Threads are threads of this package's own, for tests and benchmarks. Free
// ends them.
type Threads struct{ c *C.dm_parallel }

// NewThreads starts n - 1 threads; the caller of a kernel is the n-th.
func NewThreads(n int) Threads { return Threads{C.dm_threads_new(C.int(n))} }

// Free ends the threads.
func (t Threads) Free() { C.dm_threads_free(t.c) }
