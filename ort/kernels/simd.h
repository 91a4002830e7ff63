// The kernels of one level: simd_*.c compile the same *_simd.h for their
// instruction set and put what came of it into a table.
#ifndef DRAFTMILL_KERNELS_SIMD_H
#define DRAFTMILL_KERNELS_SIMD_H

#include "activations.h"

typedef struct dm_simd {
  void (*activate)(dm_activation act, size_t n, const float *x, const float *with, float *y);
} dm_simd;

extern const dm_simd dm_simd_portable, dm_simd_avx2, dm_simd_avx512, dm_simd_neon;

// The table of dm_cpu_level().
const dm_simd *dm_simd_now(void);

#endif
