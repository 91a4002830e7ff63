// Products of float32 activations with matrices of 4-bit and 8-bit weights: what
// ONNX Runtime's MatMulNBits computes with accuracy_level 4. A row of activations
// is cut into the weights' blocks; each block becomes int8 (absolute maximum / 127,
// round to nearest even), products of a block are summed in int32 without loss, and
// blocks are added in float32 in the order of k:
//
//   y[m][n] = sum over blocks of (sum of qa * (qw - zero point)) * (sa * sw)
//
// with one fused multiply-add a block, on every instruction set. So a row's result
// is the same to the bit with any number of rows, threads and on every level.
#ifndef DRAFTMILL_KERNELS_QUANTIZED_H
#define DRAFTMILL_KERNELS_QUANTIZED_H

#include "activations.h"

// A matrix as com.microsoft.MatMulNBits has it, in the caller's memory: n columns
// of k weights each, every column cut into ceil(k / block) blocks.
typedef struct dm_qsource {
  size_t n, k;
  int bits;  // 4 or 8
  int block; // 32, 64, 128 or 256
  // [n][blocks][block * bits / 8]; of two weights in a byte the first is the low
  // half. What follows k in the last block is ignored.
  const uint8_t *weights;
  const void *scales; // [n][blocks], float32, or float16 where half is set
  int half;
  // [n][ceil(blocks * bits / 8)], packed as the weights are; NULL stands for 8 in 4
  // bits and 128 in 8 bits.
  const uint8_t *zero_points;
} dm_qsource;

// NULL where the source can be packed, else why not (a constant string). It looks
// at sizes alone, not at memory.
const char *dm_qrefuses(const dm_qsource *source);

// A packed matrix: read-only, in memory of its own, shared by any threads.
typedef struct dm_qmatrix dm_qmatrix;

// Packs the source, read once and in order; it may go away afterwards. threads may
// be NULL. NULL where the source is refused or memory is out. A matrix that was
// packed runs on every level.
dm_qmatrix *dm_qpack(const dm_qsource *source, const dm_parallel *threads);
void dm_qfree(dm_qmatrix *w); // NULL is fine
size_t dm_qbytes(const dm_qmatrix *w);
size_t dm_qcolumns(const dm_qmatrix *w); // n
size_t dm_qdepth(const dm_qmatrix *w);   // k
int dm_qblock(const dm_qmatrix *w);

// One matrix that the input is multiplied with, and where the result goes.
typedef struct dm_qproduct {
  const dm_qmatrix *w;
  const float *bias; // [n], or NULL
  float *y;          // [rows][n], ldy floats from row to row
  size_t ldy;
  const float *residual; // [rows][n] with ldr, added last, or NULL; may be y itself
  size_t ldr;
} dm_qproduct;

// Bytes of scratch memory that a product of so many rows needs. It is the caller's,
// need not be aligned, and is free again when the product is there.
size_t dm_qscratch(size_t rows, size_t k, int block);

// Multiplies x, [rows][k] with ldx floats from row to row, with one or more matrices
// of the same k and block. Activations are quantized once. threads may be NULL.
void dm_qmatmul(const dm_qproduct *products, size_t count, const float *x, size_t ldx,
                size_t rows, void *scratch, const dm_parallel *threads);

// The gated product of an MLP: y = activation(x G + bias of G) * (x U + bias of U).
// Both matrices have the same n, k and block. Fields y and residual of gate and up
// are not looked at.
void dm_qgated(const dm_qproduct *gate, const dm_qproduct *up, dm_activation activation,
               float *y, size_t ldy, const float *x, size_t ldx, size_t rows, void *scratch,
               const dm_parallel *threads);

#endif
