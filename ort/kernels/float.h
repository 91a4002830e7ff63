// Products of float32 activations with constant matrices of float32 weights, also
// such as were float16 or bfloat16. Each result is one chain of fused
// multiply-adds over k in its order, from 0, and then the bias, on every
// instruction set: so a row's result is the same to the bit with any number of
// rows and threads and on every level.
#ifndef DRAFTMILL_KERNELS_FLOAT_H
#define DRAFTMILL_KERNELS_FLOAT_H

#include "activations.h"

// A packed matrix of k x n weights: read-only, in memory of its own, shared by any
// threads, the same for every level.
typedef struct dm_fmatrix dm_fmatrix;

typedef enum { DM_FLOAT32 = 0, DM_FLOAT16 = 1, DM_BFLOAT16 = 2 } dm_ftype;

// Packs [k, n] weights, or [n, k] where transposed, ld numbers from row to row; they
// are widened without rounding and may go away afterwards. threads may be NULL.
// NULL where memory is out or a size is 0.
dm_fmatrix *dm_fpack(const void *w, dm_ftype type, size_t k, size_t n, size_t ld, int transposed,
                     const dm_parallel *threads);
void dm_ffree(dm_fmatrix *w); // NULL is fine
size_t dm_fbytes(const dm_fmatrix *w);
size_t dm_fcolumns(const dm_fmatrix *w); // n
size_t dm_fdepth(const dm_fmatrix *w);   // k

// One matrix that the input is multiplied with, and where the result goes.
typedef struct dm_fproduct {
  const dm_fmatrix *w;
  const float *bias; // [n], or NULL
  float *y;          // [rows, n], ldy floats from row to row
  size_t ldy;
  const float *residual; // [rows, n] with ldr, added last, or NULL; may be y itself
  size_t ldr;
} dm_fproduct;

// Bytes of scratch memory that a product of so many rows of k numbers needs. They
// need not be aligned and are free again when the product is there.
size_t dm_fscratch(size_t rows, size_t k, int threads);

// y = x W (+ bias) (+ residual) for one or more matrices of the same k; x is
// [rows, k] with ldx floats from row to row. threads may be NULL.
void dm_fmatmul(const dm_fproduct *products, size_t count, const float *x, size_t ldx, size_t rows,
                void *scratch, const dm_parallel *threads);

// The gated product of a feed-forward block: y = act(x G + bias of G) (x U + bias of
// U). G and U have the same n and k. Fields y and residual of gate and up are not
// looked at.
void dm_fgated(const dm_fproduct *gate, const dm_fproduct *up, dm_activation act, float *y,
               size_t ldy, const float *x, size_t ldx, size_t rows, void *scratch,
               const dm_parallel *threads);

#endif
