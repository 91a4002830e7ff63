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
typedef int (*stream_fn)(void **, unsigned);
typedef int (*host_alloc_fn)(void **, size_t, unsigned);
typedef int (*alloc_fn)(unsigned long long *, size_t);
typedef int (*to_device_fn)(unsigned long long, const void *, size_t, void *);
typedef int (*from_device_fn)(void *, unsigned long long, size_t, void *);
typedef int (*wait_fn)(void *);

typedef struct {
  init_fn init;
  device_fn get;
  retain_fn retain;
  push_fn push;
  pop_fn pop;
  memory_fn memory;
  release_fn release;
  stream_fn stream;
  host_alloc_fn host_alloc;
  alloc_fn alloc;
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
  d->stream = (stream_fn)dlsym(cuda, "cuStreamCreate");
  d->host_alloc = (host_alloc_fn)dlsym(cuda, "cuMemHostAlloc");
  d->alloc = (alloc_fn)dlsym(cuda, "cuMemAlloc_v2");
  d->to_device = (to_device_fn)dlsym(cuda, "cuMemcpyHtoDAsync_v2");
  d->from_device = (from_device_fn)dlsym(cuda, "cuMemcpyDtoHAsync_v2");
  d->wait = (wait_fn)dlsym(cuda, "cuStreamSynchronize");
  if (!d->init || !d->get || !d->retain || !d->push || !d->pop || !d->memory || !d->release || !d->stream ||
      !d->host_alloc || !d->alloc || !d->to_device || !d->from_device || !d->wait)
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

struct dm_stream {
  driver driver;
  void *context; // retained for good
  void *stream;
  char *host;
  unsigned long long memory;
};

// A stream that the default one does not wait for, nor it for the default one: ORT
// copies what sessions are made of there.
enum { STREAM_NON_BLOCKING = 1 };

char *dm_stream_open(const char *library, int device, size_t bytes, dm_stream **out) {
  dm_stream *s = calloc(1, sizeof *s);
  int handle = 0;
  void *context = NULL;
  char *err = s == NULL ? strdup("out of memory") : load(library, &s->driver);
  if (err == NULL) err = enter(&s->driver, device, &handle);
  if (err != NULL) {
    free(s);
    return err;
  }
  const driver *d = &s->driver;
  int code = 0;
  if ((code = d->stream(&s->stream, STREAM_NON_BLOCKING)) != 0) err = failed("cuStreamCreate", code);
  else if ((code = d->host_alloc((void **)&s->host, bytes, 0)) != 0) err = failed("cuMemHostAlloc", code);
  else if ((code = d->alloc(&s->memory, bytes)) != 0) err = failed("cuMemAlloc", code);
  if (err != NULL) { // the context is given up with what was made in it
    leave(d, handle);
    free(s);
    return err;
  }
  d->pop(&context);
  s->context = context;
  *out = s;
  return NULL;
}

void *dm_stream_handle(const dm_stream *s) { return s->stream; }
void *dm_stream_host(const dm_stream *s) { return s->host; }
void *dm_stream_memory(const dm_stream *s) { return (void *)(size_t)s->memory; }

// Makes one call of the driver in the stream's context.
static char *called(const dm_stream *s, const char *call, int code) {
  void *context = NULL;
  s->driver.pop(&context);
  return code == 0 ? NULL : failed(call, code);
}

char *dm_stream_upload(const dm_stream *s, void *to, size_t offset, size_t bytes) {
  int code = s->driver.push(s->context);
  if (code != 0) return failed("cuCtxPushCurrent", code);
  return called(s, "cuMemcpyHtoDAsync",
                s->driver.to_device((unsigned long long)(size_t)to, s->host + offset, bytes, s->stream));
}

char *dm_stream_read(const dm_stream *s, void *to, const void *from, size_t bytes) {
  int code = s->driver.push(s->context);
  if (code != 0) return failed("cuCtxPushCurrent", code);
  code = s->driver.from_device(to, (unsigned long long)(size_t)from, bytes, s->stream);
  if (code != 0) return called(s, "cuMemcpyDtoHAsync", code);
  return called(s, "cuStreamSynchronize", s->driver.wait(s->stream));
}

char *dm_stream_wait(const dm_stream *s) {
  int code = s->driver.push(s->context);
  if (code != 0) return failed("cuCtxPushCurrent", code);
  return called(s, "cuStreamSynchronize", s->driver.wait(s->stream));
}
