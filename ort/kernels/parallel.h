// A small pool of threads for tests and benchmarks of the kernels alone; in a
// session they run on ONNX Runtime's.
#ifndef DRAFTMILL_KERNELS_PARALLEL_H
#define DRAFTMILL_KERNELS_PARALLEL_H

#include "kernels.h"

// Threads that wait by spinning. The caller computes too, so that threads - 1
// are started. Free ends them.
dm_parallel *dm_threads_new(int threads);
void dm_threads_free(dm_parallel *p);

// Reads all of a buffer once: the speed of memory, which no kernel exceeds. Gives a
// sum that has no meaning.
uint64_t dm_threads_read(const dm_parallel *p, const uint64_t *data, size_t count);

#endif
