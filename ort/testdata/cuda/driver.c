// A CUDA driver for tests: one GPU of 80 GB, of which 60 are free, and the order of
// calls that the real one wants. Its memory is the process's; copies arrive when
// they are waited for.
#include <stddef.h>
#include <string.h>

static int inited, retained, pushed, waiting;
static struct {
  void *to;
  const void *from;
  size_t bytes;
} copies[16];

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
static int copy(void *to, const void *from, size_t bytes) {
  if (pushed != 1 || waiting == 16) return 201;
  copies[waiting].to = to, copies[waiting].from = from, copies[waiting++].bytes = bytes;
  return 0;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes) { return copy((void *)(size_t)to, from, bytes); }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes) { return copy(to, (void *)(size_t)from, bytes); }
int cuCtxSynchronize(void) {
  for (; waiting > 0; waiting--) memcpy(copies[waiting - 1].to, copies[waiting - 1].from, copies[waiting - 1].bytes);
  return pushed == 1 ? 0 : 201;
}
