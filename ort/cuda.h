// What of CUDA's driver is needed beside ONNX Runtime: how much memory a GPU has,
// and a stream, with copies in it.
// The driver's library is looked up when it is asked for, so that a program runs
// where there is none.
#ifndef DRAFTMILL_ORT_CUDA_H
#define DRAFTMILL_ORT_CUDA_H

#include <stddef.h>

// The memory, in bytes, of the device-th GPU that this process sees: what is free
// and what there is. It returns NULL, or a message that the caller frees.
char *dm_cuda_memory(const char *library, int device, size_t *available, size_t *total);

// A stream of a GPU, in which the sessions there compute one after another, and as
// much memory of the host that the GPU reads as of its own, by way of which small
// inputs get there. It lives as long as the process.
typedef struct dm_stream dm_stream;

char *dm_stream_open(const char *library, int device, size_t bytes, dm_stream **out);
void *dm_stream_handle(const dm_stream *s);
void *dm_stream_host(const dm_stream *s);
void *dm_stream_memory(const dm_stream *s);

// Copies from the host's memory of the stream to the device, behind what runs in the
// stream already. The bytes stay as they are until that has been waited for.
char *dm_stream_upload(const dm_stream *s, void *to, size_t offset, size_t bytes);

// Copies from the device to any memory of the host, and waits for it.
char *dm_stream_read(const dm_stream *s, void *to, const void *from, size_t bytes);

// Waits for all that runs in the stream.
char *dm_stream_wait(const dm_stream *s);

// Bytes that go from one place to another; here says that both are the host's.
typedef struct {
  void *to;
  const void *from;
  size_t bytes;
  int here;
} dm_copy;

#endif
