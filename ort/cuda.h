// What of CUDA's driver is needed beside ONNX Runtime: how much memory a GPU has,
// and copies to memory at an address that stays.
// The driver's library is looked up when it is asked for, so that a program runs
// where there is none.
#ifndef DRAFTMILL_ORT_CUDA_H
#define DRAFTMILL_ORT_CUDA_H

#include <stddef.h>

// The memory, in bytes, of the device-th GPU that this process sees: what is free
// and what there is. It returns NULL, or a message that the caller frees.
char *dm_cuda_memory(const char *library, int device, size_t *available, size_t *total);

// Bytes that go from one place to another, of which one is the device's.
typedef struct {
  void *to;
  const void *from;
  size_t bytes;
} dm_copy;

// Makes the copies, all to the device-th GPU or all from it, and waits for them.
char *dm_cuda_copy(const char *library, int device, const dm_copy *copies, size_t n, int to_device);

#endif
