// What float.c asks of each level.
#ifndef DRAFTMILL_KERNELS_FLOAT_INTERNAL_H
#define DRAFTMILL_KERNELS_FLOAT_INTERNAL_H

#include "float.h"

// A panel is this many columns of a matrix: for each k one run of so many weights.
#define DM_FLOAT_PANEL 32

// Adds `depth` steps over k of some rows times one panel to sums, [rows, panel].
typedef struct dm_float_tile {
  size_t rows, depth;
  const float *x; // step k of row r is x[k * x_step + r * x_row]
  size_t x_step, x_row;
  const float *w;
  float *sums;
  int begin; // sums begin at 0
} dm_float_tile;

#endif
