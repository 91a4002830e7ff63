// The kernels as a table of functions, for callers that are compiled apart from
// them (package ort): cgo links each package by itself first.
#ifndef DRAFTMILL_KERNELS_TABLE_H
#define DRAFTMILL_KERNELS_TABLE_H

#include "attention.h"
#include "float.h"
#include "quantized.h"

typedef struct {
  size_t (*qscratch)(size_t rows, size_t k, int block);
  int (*qblock)(const dm_qmatrix *w);
  void (*qmatmul)(const dm_qproduct *products, size_t count, const float *x, size_t ldx,
                  size_t rows, void *scratch, const dm_parallel *threads);
  void (*qgated)(const dm_qproduct *gate, const dm_qproduct *up, dm_activation activation,
                 float *y, size_t ldy, const float *x, size_t ldx, size_t rows, void *scratch,
                 const dm_parallel *threads);
  size_t (*fscratch)(size_t rows, size_t k, int threads);
  void (*fmatmul)(const dm_fproduct *products, size_t count, const float *x, size_t ldx,
                  size_t rows, void *scratch, const dm_parallel *threads);
  void (*fgated)(const dm_fproduct *gate, const dm_fproduct *up, dm_activation activation,
                 float *y, size_t ldy, const float *x, size_t ldx, size_t rows, void *scratch,
                 const dm_parallel *threads);
  const char *(*attention_refuses)(const dm_attention *a);
  size_t (*attention_scratch)(const dm_attention *a, int threads);
  void (*attention_run)(const dm_attention *a, void *scratch, const dm_parallel *threads);
} dm_kernels;

extern const dm_kernels dm_kernels_table;

#endif
