// A CUDA driver for tests: one GPU of 80 GB, of which 60 are free, and the order of
// calls that the real one wants. Its memory is the process's; copies arrive when
// they are waited for.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int inited, retained, waiting;
static __thread int pushed; // a thread has contexts of its own
static struct {
  void *to;
  const void *from;
  size_t bytes;
} copies[64];

int cuInit(unsigned flags) { return inited = flags == 0, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = 7, !inited ? 3 : ordinal == 0 ? 0 : 101; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return retained++, *context = &retained, device == 7 ? 0 : 101; }
int cuCtxPushCurrent_v2(void *context) { return pushed++, context == &retained ? 0 : 201; }
int cuCtxPopCurrent_v2(void **context) { return pushed--, *context = &retained, 0; }
int cuMemGetInfo_v2(size_t *available, size_t *total) {
  *available = 60000000000, *total = 80000000000;
  return pushed == 1 && retained == 1 ? 0 : 201;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return retained--, device == 7 ? 0 : 101; }
int cuStreamCreate(void **stream, unsigned flags) { return *stream = &copies, pushed == 1 && flags == 1 ? 0 : 201; }
int cuMemHostAlloc(void **host, size_t bytes, unsigned flags) { return *host = malloc(bytes), pushed == 1 && flags == 0 ? 0 : 201; }
int cuMemAlloc_v2(unsigned long long *memory, size_t bytes) { return *memory = (size_t)malloc(bytes), pushed == 1 ? 0 : 201; }
static int copy(void *to, const void *from, size_t bytes, void *stream) {
  if (pushed != 1 || stream != &copies || waiting == sizeof copies / sizeof *copies) return 201;
#ifdef AT_ONCE // where nothing runs behind the host's back
  return memcpy(to, from, bytes), 0;
#endif
  copies[waiting].to = to, copies[waiting].from = from, copies[waiting++].bytes = bytes;
  return 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream) {
  return copy((void *)(size_t)to, from, bytes, stream);
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream) {
  return copy(to, (void *)(size_t)from, bytes, stream);
}
int cuStreamSynchronize(void *stream) {
  for (int i = 0; i < waiting; i++) memcpy(copies[i].to, copies[i].from, copies[i].bytes);
  return waiting = 0, pushed == 1 && stream == &copies ? 0 : 201;
}
