// Activation functions between the matrices of a feed-forward block.
#ifndef DRAFTMILL_KERNELS_ACTIVATIONS_H
#define DRAFTMILL_KERNELS_ACTIVATIONS_H

#include "kernels.h"

typedef enum {
  DM_SILU = 0,      // x / (1 + exp(-x))
  DM_GELU_ERF = 1,  // x / 2 * (1 + erf(x / sqrt 2))
  DM_GELU_TANH = 2, // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
} dm_activation;

// y[i] = act(x[i]) * with[i], or act(x[i]) where with is NULL, for n numbers. y
// may be x or with. Each result is within a few ulp and depends on its own x[i]
// and with[i] alone, to the bit: not on i, n or the level of the processor. One
// thread; no alignment is needed.
void dm_activate(dm_activation act, size_t n, const float *x, const float *with, float *y);

#endif
