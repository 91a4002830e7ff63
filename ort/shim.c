#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

// Positions in OrtApi. They agree in the headers of API versions 24 and 30;
// a position, once released, never changes.
enum {
  GET_ERROR_MESSAGE = 2,
  CREATE_ENV = 3,
  CREATE_SESSION = 7,
  CREATE_SESSION_FROM_BYTES = 8, // CreateSessionFromArray
  SESSION_INPUT_COUNT = 30,
  SESSION_INPUT_NAME = 36,
  CREATE_TENSOR_WITH_DATA = 49,
  CREATE_CPU_MEMORY_INFO = 69,
  ALLOCATOR_ALLOC = 75,
  ALLOCATOR_FREE = 76,
  DEFAULT_ALLOCATOR = 78,
  RELEASE_STATUS = 93,
  RELEASE_SESSION = 95,
  RELEASE_VALUE = 96,
  CREATE_ALLOCATOR = 131,
  RELEASE_ALLOCATOR = 132,
  RUN_WITH_BINDING = 133,
  CREATE_IO_BINDING = 134,
  RELEASE_IO_BINDING = 135,
  BIND_INPUT = 136,
  BIND_OUTPUT = 137,
  ADD_RUN_CONFIG_ENTRY = 165,
  SYNCHRONIZE_INPUTS = 202,
  SYNCHRONIZE_OUTPUTS = 203,
  MEMORY_DEVICE_TYPE = 225,
  SESSION_INPUT_MEMORY = 380,
};

enum { DEVICE_ALLOCATOR = 0, MEM_TYPE_DEFAULT = 0, LOG_FATAL = 4, DEVICE_TYPE_CPU = 0 };

typedef void *status;

typedef struct {
  void *const *(*get_api)(uint32_t);
  const char *(*get_version)(void);
} api_base;

typedef const char *(*message_fn)(status);
typedef void (*release_fn)(void *);
typedef status (*count_fn)(const void *, size_t *);
typedef status (*name_fn)(const void *, size_t, void *, char **);
typedef status (*infos_fn)(const void *, const void **, size_t);
typedef void (*device_type_fn)(const void *, int *);
typedef status (*allocator_fn)(const void *, const void *, void **);
typedef status (*sync_fn)(void *);
typedef status (*tensor_fn)(const void *, void *, size_t, const int64_t *, size_t, int, void **);
typedef status (*env_fn)(int, const char *, void **);
typedef status (*memory_fn)(int, int, void **);
typedef status (*alloc_fn)(void *, size_t, void **);
typedef status (*free_fn)(void *, void *);
typedef status (*make_fn)(void **);
typedef status (*binding_fn)(void *, void **);
typedef status (*bind_fn)(void *, const char *, void *);
typedef status (*session_fn)(void *, const char *, void *, void **);
typedef status (*bytes_session_fn)(void *, const void *, size_t, void *, void **);
typedef status (*run_fn)(void *, void *, void *);
typedef status (*option_fn)(void *, const char *, const char *);

static char *failure(void *const *api, status s) {
  if (s == NULL) return NULL;
  char *message = strdup(((message_fn)api[GET_ERROR_MESSAGE])(s));
  ((release_fn)api[RELEASE_STATUS])(s);
  return message;
}

char *dm_open(const char *path, uint32_t api_version, dm_runtime *rt, const char **version) {
  *version = NULL;
  void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (library == NULL) return strdup(dlerror());
  const api_base *(*base)(void) = (const api_base *(*)(void))dlsym(library, "OrtGetApiBase");
  if (base == NULL) return strdup("it has no OrtGetApiBase: not an ONNX Runtime library");
  *version = base()->get_version();
  rt->api = base()->get_api(api_version);
  if (rt->api == NULL) return strdup("it is too old for this program");
  char *err = failure(rt->api, ((make_fn)rt->api[DEFAULT_ALLOCATOR])(&rt->allocator));
  if (err != NULL) return err;
  // There is one environment in a process; whoever asks later gets the same. It
  // logs nothing that a call returns as an error too.
  err = failure(rt->api, ((env_fn)rt->api[CREATE_ENV])(LOG_FATAL, "draftmill", &rt->env));
  if (err != NULL) return err;
  return failure(rt->api, ((memory_fn)rt->api[CREATE_CPU_MEMORY_INFO])(DEVICE_ALLOCATOR,
                                                                       MEM_TYPE_DEFAULT, &rt->memory));
}

// The session lists the memory of all inputs in the order of their names.
char *dm_input_memory(const dm_runtime *rt, void *session, const char *name, const void **memory,
                      int *on_cpu) {
  size_t n = 0;
  status s = ((count_fn)rt->api[SESSION_INPUT_COUNT])(session, &n);
  if (s != NULL) return failure(rt->api, s);
  const void **infos = calloc(n + 1, sizeof *infos);
  if (infos == NULL) return strdup("out of memory");
  s = ((infos_fn)rt->api[SESSION_INPUT_MEMORY])(session, infos, n);
  *memory = NULL;
  for (size_t i = 0; s == NULL && *memory == NULL && i < n; i++) {
    char *input = NULL;
    s = ((name_fn)rt->api[SESSION_INPUT_NAME])(session, i, rt->allocator, &input);
    if (s != NULL) break;
    if (strcmp(input, name) == 0) *memory = infos[i];
    s = ((free_fn)rt->api[ALLOCATOR_FREE])(rt->allocator, input);
  }
  free(infos);
  if (s != NULL) return failure(rt->api, s);
  if (*memory == NULL) return strdup("the session has no such input");
  int type = 0;
  ((device_type_fn)rt->api[MEMORY_DEVICE_TYPE])(*memory, &type);
  *on_cpu = type == DEVICE_TYPE_CPU;
  return NULL;
}

char *dm_allocator_new(const dm_runtime *rt, void *session, const void *memory, void **out) {
  return failure(rt->api, ((allocator_fn)rt->api[CREATE_ALLOCATOR])(session, memory, out));
}

void dm_allocator_free(const dm_runtime *rt, void *allocator) {
  ((release_fn)rt->api[RELEASE_ALLOCATOR])(allocator);
}

char *dm_alloc(const dm_runtime *rt, void *allocator, size_t bytes, void **out) {
  *out = NULL;
  if (allocator == NULL) allocator = rt->allocator;
  char *err = failure(rt->api, ((alloc_fn)rt->api[ALLOCATOR_ALLOC])(allocator, bytes, out));
  if (err == NULL && *out == NULL) return strdup("out of memory");
  return err;
}

char *dm_free(const dm_runtime *rt, void *allocator, void *data) {
  if (allocator == NULL) allocator = rt->allocator;
  return failure(rt->api, ((free_fn)rt->api[ALLOCATOR_FREE])(allocator, data));
}

char *dm_value_new(const dm_runtime *rt, const dm_view *v, void **out) {
  return failure(rt->api, ((tensor_fn)rt->api[CREATE_TENSOR_WITH_DATA])(
                              v->memory ? v->memory : rt->memory, v->data, v->bytes, v->shape,
                              v->rank, v->type, out));
}

void dm_value_free(const dm_runtime *rt, void *value) {
  ((release_fn)rt->api[RELEASE_VALUE])(value);
}

char *dm_session_open(const dm_runtime *rt, const char *path, void *options, void **out) {
  return failure(rt->api, ((session_fn)rt->api[CREATE_SESSION])(rt->env, path, options, out));
}

char *dm_session_new(const dm_runtime *rt, const void *model, size_t bytes, void *options,
                     void **out) {
  return failure(rt->api, ((bytes_session_fn)rt->api[CREATE_SESSION_FROM_BYTES])(
                              rt->env, model, bytes, options, out));
}

void dm_session_free(const dm_runtime *rt, void *session) {
  ((release_fn)rt->api[RELEASE_SESSION])(session);
}

void dm_trim(void) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

char *dm_binding_new(const dm_runtime *rt, void *session, void **out) {
  return failure(rt->api, ((binding_fn)rt->api[CREATE_IO_BINDING])(session, out));
}

void dm_binding_free(const dm_runtime *rt, void *binding) {
  ((release_fn)rt->api[RELEASE_IO_BINDING])(binding);
}

// The binding shares ownership of a bound value, which is only a descriptor:
// the value is released here and the data stays the caller's.
char *dm_bind(const dm_runtime *rt, void *binding, const dm_view *views, size_t n, int outputs) {
  bind_fn bind = (bind_fn)rt->api[outputs ? BIND_OUTPUT : BIND_INPUT];
  release_fn release = (release_fn)rt->api[RELEASE_VALUE];
  for (size_t i = 0; i < n; i++) {
    const dm_view *v = &views[i];
    void *value = NULL;
    char *err = dm_value_new(rt, v, &value);
    if (err != NULL) return err;
    status s = bind(binding, v->name, value);
    release(value);
    if (s != NULL) return failure(rt->api, s);
  }
  return NULL;
}

char *dm_forward(const dm_runtime *rt, const dm_run_handles *h, const dm_view *ins, size_t nin,
                 const dm_view *outs, size_t nout) {
  char *err = dm_bind(rt, h->binding, ins, nin, 0);
  if (err == NULL) err = dm_bind(rt, h->binding, outs, nout, 1);
  if (err == NULL) err = dm_loop(rt, h, 1);
  return err;
}

char *dm_loop(const dm_runtime *rt, const dm_run_handles *h, size_t n) {
  run_fn run = (run_fn)rt->api[RUN_WITH_BINDING];
  for (size_t i = 0; i < n; i++) {
    status s = NULL;
    if (h->synchronize == 1) s = ((sync_fn)rt->api[SYNCHRONIZE_INPUTS])(h->binding);
    if (s == NULL) s = run(h->session, h->options, h->binding);
    if (s == NULL && h->synchronize) s = ((sync_fn)rt->api[SYNCHRONIZE_OUTPUTS])(h->binding);
    if (s != NULL) return failure(rt->api, s);
  }
  return NULL;
}

char *dm_run_option(const dm_runtime *rt, void *options, const char *key, const char *value) {
  return failure(rt->api, ((option_fn)rt->api[ADD_RUN_CONFIG_ENTRY])(options, key, value));
}

static float from_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

// Half precision by scaling: the exponent and fraction are moved to their
// places in a float32 and the bias is corrected by a multiplication by 2^112,
// which is exact and also normalizes subnormal numbers.
static float half(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16;
  uint32_t body = (uint32_t)(h & 0x7fff) << 13;
  if (body >= 0x0f800000) return from_bits(sign | 0x7f800000 | (body & 0x007fffff));
  float f = from_bits(body) * 0x1p112f;
  return sign ? -f : f;
}

void dm_widen(const uint16_t *src, float *dst, size_t n, int bf16) {
  if (bf16) {
    for (size_t i = 0; i < n; i++) dst[i] = from_bits((uint32_t)src[i] << 16);
  } else {
    for (size_t i = 0; i < n; i++) dst[i] = half(src[i]);
  }
}
