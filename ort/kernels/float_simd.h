// Rows times a panel of a float32 matrix on one level.
#include "float_internal.h"

// R rows and N vectors of a panel, from vector `first`. The chains of all R x N
// vectors run side by side in registers.
V_INLINE void multiply_by(const int R, const int N, int first, const dm_float_tile *t, size_t row,
                          size_t x_step, size_t x_row) {
  v16 sum[12][2];
  float *sums = t->sums + row * DM_FLOAT_PANEL + first * DM_LANES;
#pragma GCC unroll 12
  for (int r = 0; r < R; r++)
#pragma GCC unroll 2
    for (int n = 0; n < N; n++)
      sum[r][n] = t->begin ? v_zero() : v_load(sums + r * DM_FLOAT_PANEL + n * DM_LANES);
  const float *w = t->w + first * DM_LANES, *x = t->x + row * x_row;
  for (size_t k = 0; k < t->depth; k++, w += DM_FLOAT_PANEL, x += x_step) {
    v_prefetch(w + 16 * DM_FLOAT_PANEL);
    if (N == 2) v_prefetch(w + 16 * DM_FLOAT_PANEL + DM_LANES);
    v16 v[2];
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) v[n] = v_load(w + n * DM_LANES);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      v16 p = v_set(x[(size_t)r * x_row]);
#pragma GCC unroll 2
      for (int n = 0; n < N; n++) sum[r][n] = v_fma(p, v[n], sum[r][n]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; r++)
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) v_store(sums + r * DM_FLOAT_PANEL + n * DM_LANES, sum[r][n]);
}

// Where the rows of x lie side by side, a step of k is one run of t->rows numbers;
// else a row is one run. The compiler makes a loop of its own for each.
#define MULTIPLY(R, N, first, row)                                                                 \
  if (t->x_row == 1) multiply_by(R, N, first, t, row, t->x_step, 1);                               \
  else multiply_by(R, N, first, t, row, 1, t->x_row)

#if defined(DM_SIMD_AVX512)
#define TILE_ROWS 12
static void multiply(const dm_float_tile *t) {
  switch (t->rows) {
  case 1: MULTIPLY(1, 2, 0, 0); break;
  case 2: MULTIPLY(2, 2, 0, 0); break;
  case 3: MULTIPLY(3, 2, 0, 0); break;
  case 4: MULTIPLY(4, 2, 0, 0); break;
  case 5: MULTIPLY(5, 2, 0, 0); break;
  case 6: MULTIPLY(6, 2, 0, 0); break;
  case 7: MULTIPLY(7, 2, 0, 0); break;
  case 8: MULTIPLY(8, 2, 0, 0); break;
  case 9: MULTIPLY(9, 2, 0, 0); break;
  case 10: MULTIPLY(10, 2, 0, 0); break;
  case 11: MULTIPLY(11, 2, 0, 0); break;
  case 12: MULTIPLY(12, 2, 0, 0); break;
  }
}
#elif defined(DM_SIMD_PORTABLE)
#define TILE_ROWS 1
static void multiply(const dm_float_tile *t) {
  MULTIPLY(1, 1, 0, 0);
  MULTIPLY(1, 1, 1, 0);
}
#else
// Sixteen registers of eight lanes: six rows of half a panel.
#define TILE_ROWS 6
static void multiply(const dm_float_tile *t) {
  for (int first = 0; first < 2; first++) switch (t->rows) {
    case 1: MULTIPLY(1, 1, first, 0); break;
    case 2: MULTIPLY(2, 1, first, 0); break;
    case 3: MULTIPLY(3, 1, first, 0); break;
    case 4: MULTIPLY(4, 1, first, 0); break;
    case 5: MULTIPLY(5, 1, first, 0); break;
    case 6: MULTIPLY(6, 1, first, 0); break;
    }
}
#endif
