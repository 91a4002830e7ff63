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
typedef int (*to_device_fn)(unsigned long long, const void *, size_t);
typedef int (*from_device_fn)(void *, unsigned long long, size_t);
typedef int (*wait_fn)(void);

typedef struct {
  init_fn init;
  device_fn get;
  retain_fn retain;
  push_fn push;
  pop_fn pop;
  memory_fn memory;
  release_fn release;
  to_device_fn to_device;
  from_device_fn from_device;
  wait_fn wait;
} driver;

static char *failed(const char *call, int code) {
  char text[96];
  snprintf(text, sizeof text, "%s: CUDA driver error %d", call, code);
  return strdup(text);
}

// The library stays loaded: ONNX Runtime uses it too.
static char *load(const char *library, driver *d) {
  void *cuda = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (cuda == NULL) return strdup(dlerror());
  d->init = (init_fn)dlsym(cuda, "cuInit");
  d->get = (device_fn)dlsym(cuda, "cuDeviceGet");
  d->retain = (retain_fn)dlsym(cuda, "cuDevicePrimaryCtxRetain");
  d->push = (push_fn)dlsym(cuda, "cuCtxPushCurrent_v2");
  d->pop = (pop_fn)dlsym(cuda, "cuCtxPopCurrent_v2");
  d->memory = (memory_fn)dlsym(cuda, "cuMemGetInfo_v2");
  d->release = (release_fn)dlsym(cuda, "cuDevicePrimaryCtxRelease_v2");
  d->to_device = (to_device_fn)dlsym(cuda, "cuMemcpyHtoD_v2");
  d->from_device = (from_device_fn)dlsym(cuda, "cuMemcpyDtoH_v2");
  d->wait = (wait_fn)dlsym(cuda, "cuCtxSynchronize");
  if (!d->init || !d->get || !d->retain || !d->push || !d->pop || !d->memory || !d->release || !d->to_device ||
      !d->from_device || !d->wait)
    return strdup("the CUDA driver's library lacks a function: install a newer driver");
  return NULL;
}

// Enters a device's primary context, and leaves it.
static char *enter(const driver *d, int device, int *handle) {
  void *context = NULL;
  int code = 0;
  if ((code = d->init(0)) != 0) return failed("cuInit", code);
  if ((code = d->get(handle, device)) != 0) return failed("cuDeviceGet", code);
  if ((code = d->retain(&context, *handle)) != 0) return failed("cuDevicePrimaryCtxRetain", code);
  if ((code = d->push(context)) != 0) {
    d->release(*handle);
    return failed("cuCtxPushCurrent", code);
  }
  return NULL;
}

static void leave(const driver *d, int handle) {
  void *context = NULL;
  d->pop(&context);
  d->release(handle);
}

char *dm_cuda_memory(const char *library, int device, size_t *available, size_t *total) {
  driver d;
  int handle = 0;
  char *err = load(library, &d);
  if (err == NULL) err = enter(&d, device, &handle);
  if (err != NULL) return err;
  const int code = d.memory(available, total);
  if (code != 0) err = failed("cuMemGetInfo", code);
  leave(&d, handle);
  return err;
}

char *dm_cuda_copy(const char *library, int device, const dm_copy *copies, size_t n, int to_device) {
  driver d;
  int handle = 0;
  char *err = load(library, &d);
  if (err == NULL) err = enter(&d, device, &handle);
  if (err != NULL) return err;
  int code = 0;
  for (size_t i = 0; code == 0 && i < n; i++) {
    const dm_copy *c = &copies[i];
    code = to_device ? d.to_device((unsigned long long)(size_t)c->to, c->from, c->bytes)
                     : d.from_device(c->to, (unsigned long long)(size_t)c->from, c->bytes);
  }
  if (code != 0) err = failed("cuMemcpy", code);
  // A small copy may be under way when its call returns, and ONNX Runtime computes in
  // a stream that does not wait for it.
  if (err == NULL && (code = d.wait()) != 0) err = failed("cuCtxSynchronize", code);
  leave(&d, handle);
  return err;
}
