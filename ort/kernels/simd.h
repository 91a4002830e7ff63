// The kernels of one level: simd_*.c compile the same *_simd.h for their
// instruction set and put what came of it into a table.
#ifndef DRAFTMILL_KERNELS_SIMD_H
#define DRAFTMILL_KERNELS_SIMD_H

#include "activations.h"
#include "attention_internal.h"
#include "float_internal.h"

typedef struct dm_simd {
  void (*activate)(dm_activation act, size_t n, const float *x, const float *with, float *y);
  void (*prepare)(const dm_attention *a, size_t token, int32_t position, size_t slot, float *q,
                  size_t tokens);
  void (*widen)(const int8_t *cache, const float *scale, size_t size, size_t width,
                const size_t *at, int from, int to, float *y);
  void (*attend)(const dm_attention *a, const dm_attention_rows *rows);
  void (*merge)(const dm_attention *a, float *out, float *most, float *sum, const float *next,
                float next_most, float next_sum);
  void (*finish)(const dm_attention *a, size_t head, const float *out, float most, float sum,
                 float *y);
  void (*multiply)(const dm_float_tile *t);
  size_t tile; // rows that one call of multiply takes at most
} dm_simd;

extern const dm_simd dm_simd_portable, dm_simd_avx2, dm_simd_avx512, dm_simd_neon;

// The table of dm_cpu_level().
const dm_simd *dm_simd_now(void);

#endif
