// A CUDA driver for tests: one GPU of 80 GB, of which 60 are free, and the order of
// calls that the real one wants.
#include <stddef.h>

static int inited, retained, pushed;

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
