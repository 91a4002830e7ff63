// A thin layer over the part of ONNX Runtime's C API that the Go binding lacks:
// memory from its allocators, tensors over that memory, sessions, I/O binding,
// and one call that binds and runs.
//
// The API is a struct of function pointers that only ever grows at its end, so
// a function is named by its position in that struct (the enum in shim.c) and
// no header of ONNX Runtime is needed. Objects are opaque pointers. Every
// function that can fail returns NULL, or a message that the caller frees with
// free().
#ifndef DRAFTMILL_ORT_SHIM_H
#define DRAFTMILL_ORT_SHIM_H

#include <stddef.h>
#include <stdint.h>

// The loaded library: its function table, its one environment, the default
// (CPU) allocator, which the library owns, and a description of CPU memory.
// They live as long as the process.
typedef struct {
  void *const *api;
  void *env;
  void *allocator;
  void *memory;
} dm_runtime;

// One tensor of one run: a name of the graph and row-major data that the
// caller owns and keeps until nothing bound to it runs again. name is owned by
// the caller too. memory describes where the data are, NULL for the CPU; on a
// device they may be a handle that cannot be computed with. type is ONNX's
// TensorProto.DataType. here says of an input that the session reads it on the host,
// where it runs on a device.
typedef struct {
  const char *name;
  void *data;
  const void *memory;
  size_t bytes;
  int64_t shape[4];
  size_t rank;
  int32_t type;
  int32_t here;
} dm_view;

// The session's objects that a run needs; options may be NULL. With synchronize 1
// a run waits for the copies to and from a device that it begins and ends with, with 2
// for those that it ends with. quiet is the caller's: the options say that nothing is
// waited for.
typedef struct {
  void *session;
  void *options;
  void *binding;
  int synchronize;
  int quiet;
} dm_run_handles;

// Loads the library (or finds it loaded) and fills rt. *version is the
// library's own version string, valid as long as the process, set as soon as
// it is known.
char *dm_open(const char *path, uint32_t api_version, dm_runtime *rt, const char **version);

// Where the session needs its input of this name: *memory describes it, is owned
// by the session, and *on_cpu says whether the CPU reaches it.
char *dm_input_memory(const dm_runtime *rt, void *session, const char *name, const void **memory,
                      int *on_cpu);

// An allocator of the session's for such memory. It ends before the session.
char *dm_allocator_new(const dm_runtime *rt, void *session, const void *memory, void **out);
void dm_allocator_free(const dm_runtime *rt, void *allocator);

// Memory of an allocator, NULL for the CPU's.
char *dm_alloc(const dm_runtime *rt, void *allocator, size_t bytes, void **out);
char *dm_free(const dm_runtime *rt, void *allocator, void *data);

// A tensor over the view's data, and its end, which leaves the data alone.
char *dm_value_new(const dm_runtime *rt, const dm_view *view, void **out);
void dm_value_free(const dm_runtime *rt, void *value);

// A session of the model at path, or one of the model in these bytes.
char *dm_session_open(const dm_runtime *rt, const char *path, void *options, void **out);
char *dm_session_new(const dm_runtime *rt, const void *model, size_t bytes, void *options,
                     void **out);
void dm_session_free(const dm_runtime *rt, void *session);

// Gives freed memory back to the system, where the C library keeps it.
void dm_trim(void);

char *dm_binding_new(const dm_runtime *rt, void *session, void **out);
void dm_binding_free(const dm_runtime *rt, void *binding);

// Binds the views' data as inputs or outputs, in place of what was bound under
// these names before.
char *dm_bind(const dm_runtime *rt, void *binding, const dm_view *views, size_t n, int outputs);

// Binds ins and outs and runs once.
char *dm_forward(const dm_runtime *rt, const dm_run_handles *h, const dm_view *ins, size_t nin,
                 const dm_view *outs, size_t nout);

// Runs what is bound n times: the bare loop that draftmill is measured against.
char *dm_loop(const dm_runtime *rt, const dm_run_handles *h, size_t n);

// Sets an entry of run options, by its name in ONNX Runtime.
char *dm_run_option(const dm_runtime *rt, void *options, const char *key, const char *value);

// Widens n half-precision (bf16 = 0) or bfloat16 (bf16 = 1) numbers to float32.
void dm_widen(const uint16_t *src, float *dst, size_t n, int bf16);

#endif
