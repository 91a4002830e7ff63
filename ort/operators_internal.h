// What the operators share: tensors of a run, the session's threads, memory, and how
// ONNX Runtime is asked. operators.c is the place of all of it.
#ifndef DRAFTMILL_ORT_OPERATORS_INTERNAL_H
#define DRAFTMILL_ORT_OPERATORS_INTERNAL_H

#include <string.h>

#include "operators.h"

enum { DM_FAIL = 1, DM_INVALID = 2 }; // OrtErrorCode
enum { DM_MAX_RANK = 8 };

typedef void *dm_status;

// The kernels that all operators compute with, from dm_operators_open on.
extern const dm_kernels *dm_op_kernels;

// A tensor of the run.
typedef struct {
  void *data; // NULL where an optional input is missing
  int64_t dims[DM_MAX_RANK];
  size_t rank;
} dm_tensor;

dm_status dm_op_fail(int code, const char *message);
dm_status dm_op_input(void *context, size_t index, dm_tensor *t);
// data is NULL where an optional output is missing.
dm_status dm_op_output(void *context, size_t index, const int64_t *dims, size_t rank, void **data);

// The product of all dimensions but the last.
static inline size_t dm_op_rows(const dm_tensor *t) {
  size_t n = 1;
  for (size_t i = 0; i + 1 < t->rank; i++) n *= (size_t)t->dims[i];
  return n;
}

// Attributes; an optional one that is missing stays as it is.
dm_status dm_op_int(const void *info, const char *name, int64_t *value);
dm_status dm_op_ints(const void *info, const char *name, int64_t *values, size_t *n);
void dm_op_optional_int(const void *info, const char *name, int64_t *value);
void dm_op_optional_float(const void *info, const char *name, float *value);

// Memory for the time of one run of an operator; NULL where there is none.
void *dm_op_scratch(size_t size);
void dm_op_give(void *scratch);

// The session's threads, for one run: failed says why one did not go on.
typedef struct {
  const void *context;
  dm_status failed;
} dm_op_threads;

// What kernels are given of them.
dm_parallel dm_op_parallel(dm_op_threads *t, int threads);

// What makes a node of each operator, and runs it.
dm_status dm_matrices_new(const void *info, void **kernel);
dm_status dm_gated_new(const void *info, void **kernel);
dm_status dm_product_compute(void *kernel, void *context);
dm_status dm_paged_new(const void *info, void **kernel);
dm_status dm_paged8_new(const void *info, void **kernel);
dm_status dm_paged_compute(void *kernel, void *context);
dm_status dm_cross_new(const void *info, void **kernel);
dm_status dm_cross_compute(void *kernel, void *context);

#endif
