// The operators of domain "draftmill": what the rewritten graphs of the CPU
// (ort/graph) name in place of ONNX Runtime's own. They are thin: they read
// tensors and attributes, lend the kernels (ort/kernels) the threads of the
// session, and compute in place.
//
//   Matrices        y_0 .. y_n-1 = x W_0 + b_0 .. x W_n-1 + b_n-1
//                   x float [.., K], y_i float [.., N_i]
//                   matrices  ints, addresses of n dm_matrix
//                   residual  int, 1: a second input like y_0, the only output, is
//                             added to it
//   Gated           y = act(x G + b_g) * (x U + b_u)
//                   matrices  ints, the addresses of G's and U's dm_matrix
//                   activation  int, a dm_activation
//   PagedAttention  as com.microsoft.PagedAttention, in float32, for any leading
//                   dimensions of query, key and value; the cache is updated in
//                   place, its outputs are the same memory. Further inputs:
//                   17 copies, int32 [copies, 2], slots of the cache; 18
//                   input_lengths, int32 [sequences], and 19 bias, [heads,
//                   distances]: inputs and bias of dm_attention
//   CrossAttention  attention to the first input_lengths places of each sequence:
//                   query, key_cache, value_cache, cumulative_sequence_length,
//                   input_lengths, block_table
//
// All take threads, int: how many threads the session has.
#ifndef DRAFTMILL_ORT_OPERATORS_H
#define DRAFTMILL_ORT_OPERATORS_H

#include "kernels/table.h"
#include "shim.h"

// A constant matrix and its bias, packed by the kernels. Its owner keeps it
// until the last session that names its address has ended.
typedef struct {
  int quantized;      // what weights is: a dm_qmatrix, or else a dm_fmatrix
  const void *weights;
  const float *bias;  // [n], or NULL
  int64_t k, n;
} dm_matrix;

// Makes the domain, once per process: it lives as long as the process.
char *dm_operators_open(const dm_runtime *rt, const dm_kernels *kernels, void **domain);

// Makes the operators known to sessions with these options.
char *dm_operators_use(const dm_runtime *rt, void *options, void *domain);

// Frees the memory that operators keep between runs. None must be running.
void dm_operators_trim(void);

#endif
