#include "cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The driver's functions return 0 or the number of an error. A context is used in
// the thread that it was pushed in, and ONNX Runtime computes in each device's
// primary one.
typedef int (*init_fn)(unsigned);
typedef int (*device_fn)(int *, int);
typedef int (*retain_fn)(void **, int);
typedef int (*push_fn)(void *);
typedef int (*pop_fn)(void **);
typedef int (*memory_fn)(size_t *, size_t *);
typedef int (*release_fn)(int);

static char *failed(const char *call, int code) {
  char text[96];
  snprintf(text, sizeof text, "%s: CUDA driver error %d", call, code);
  return strdup(text);
}

char *dm_cuda_memory(const char *library, int device, size_t *available, size_t *total) {
  // It stays loaded: ONNX Runtime uses it too.
  void *cuda = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (cuda == NULL) return strdup(dlerror());
  const init_fn init = (init_fn)dlsym(cuda, "cuInit");
  const device_fn get = (device_fn)dlsym(cuda, "cuDeviceGet");
  const retain_fn retain = (retain_fn)dlsym(cuda, "cuDevicePrimaryCtxRetain");
  const push_fn push = (push_fn)dlsym(cuda, "cuCtxPushCurrent_v2");
  const pop_fn pop = (pop_fn)dlsym(cuda, "cuCtxPopCurrent_v2");
  const memory_fn memory = (memory_fn)dlsym(cuda, "cuMemGetInfo_v2");
  const release_fn release = (release_fn)dlsym(cuda, "cuDevicePrimaryCtxRelease_v2");
  if (!init || !get || !retain || !push || !pop || !memory || !release)
    return strdup("the CUDA driver's library lacks a function: install a newer driver");
  int handle = 0, code = 0;
  void *context = NULL;
  if ((code = init(0)) != 0) return failed("cuInit", code);
  if ((code = get(&handle, device)) != 0) return failed("cuDeviceGet", code);
  if ((code = retain(&context, handle)) != 0) return failed("cuDevicePrimaryCtxRetain", code);
  char *err = NULL;
  if ((code = push(context)) != 0) {
    err = failed("cuCtxPushCurrent", code);
  } else {
    if ((code = memory(available, total)) != 0) err = failed("cuMemGetInfo", code);
    pop(&context);
  }
  release(handle);
  return err;
}
