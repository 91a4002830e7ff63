// What the files of the quantized product share: the packed forms of weights and
// activations, and the paths for instruction sets.
#ifndef DRAFTMILL_KERNELS_QUANTIZED_INTERNAL_H
#define DRAFTMILL_KERNELS_QUANTIZED_INTERNAL_H

#include "quantized.h"

enum {
  QLANES = 16, // columns of a group
  QUNIT = 32,  // k of a unit, the smallest block
  QPANEL = 16, // rows of a panel of activations
  QCHUNK = 128, // most rows that a path is given at once
  QTILES = 16   // rows from which AMX, where there is, is faster than VNNI
};

// How a matrix's scales are stored.
typedef enum {
  QFLOAT, // float32
  QHALF,  // float16
  // A float16 that is not negative and has the last three bits of its mantissa clear,
  // without these and its sign: 12 bits. Above them is the zero point, 4 bits. So zero
  // points take no memory, and reading memory is what a product of few rows waits for.
  QJOINED
} qscales;

// Weights lie in groups of 16 columns. A group is
//   - units of 32 k: 4 bits: 4 vectors of 64 bytes; byte 4n + i of vector j holds
//     k = 8j + i of column n in its low half and k = 8j + 4 + i in its high half.
//     8 bits: 8 vectors; byte 4n + i of vector j holds k = 4j + i of column n.
//   - scales, [blocks][16], in the smallest form that loses nothing
//   - zero points, [blocks][16] bytes, where the source has them and the scales do not
//     hold them
// each part and each group at a multiple of 64 bytes. Columns beyond n are zeros.
struct dm_qmatrix {
  size_t n, k;
  int bits, block;
  qscales kind;       // of scales
  size_t blocks;      // of a column
  size_t groups;      // of columns
  size_t scales, zeros; // where they begin in a group; zeros = 0: none of their own
  size_t stride;      // bytes of a group
  size_t bytes;       // of data
  uint8_t *data;
};

// What a block of a row's activations is multiplied with and starts from.
typedef struct {
  float scale;
  int32_t minus;    // -(sum of the block's int8 activations), fits in 16 bits
  int32_t minus8;   // 8 times that: where sums start without zero points, 4 bits
  int32_t minus128; // and 8 bits
} qstart;

// Quantized activations lie in panels of 16 rows; the last one has fewer. A panel of
// h rows is [k / 32][h][32] int8, and beside it [blocks][h] qstart. So all that a
// block of weights needs of a panel is together, and a unit of the panel is what an
// AMX tile loads. Behind the last start there is room for 16 more, which a path may
// read and not use.
typedef struct {
  size_t rows, blocks;
  int block;
  int8_t *values;
  qstart *starts;
} qrows;

static inline size_t qpanel(const qrows *x, size_t row) {
  size_t rest = x->rows - row / QPANEL * QPANEL;
  return rest < QPANEL ? rest : QPANEL;
}
static inline int8_t *qvalues(const qrows *x, size_t row) {
  size_t first = row / QPANEL * QPANEL;
  return x->values + first * x->blocks * (size_t)x->block + (row - first) * QUNIT;
}
static inline qstart *qstarts(const qrows *x, size_t row) {
  size_t first = row / QPANEL * QPANEL;
  return x->starts + first * x->blocks + (row - first);
}

// A path is how one instruction set computes. All give the same bits.
typedef struct {
  // Quantizes a row of k floats into its place.
  void (*quantize)(const float *x, size_t k, const qrows *to, size_t row);
  // Multiplies rows first to first+rows-1 (at most QCHUNK, first a multiple of
  // QPANEL) with a group of columns, into out[rows][QLANES]. more: the next group is
  // wanted soon after and may be fetched ahead.
  void (*multiply)(const dm_qmatrix *w, size_t group, int more, const qrows *x, size_t first,
                   size_t rows, float *out);
} qpath;

extern const qpath qpath_portable;
#if defined(__x86_64__)
extern const qpath qpath_avx2, qpath_avx_vnni, qpath_avx512, qpath_avx512_vnni;
// AMX takes over multiply where there are many rows.
void qmultiply_amx(const dm_qmatrix *w, size_t group, int more, const qrows *x, size_t first,
                   size_t rows, float *out);
#elif defined(__aarch64__)
extern const qpath qpath_neon, qpath_neon_dot;
#endif

static inline float qhalf(uint16_t h) { // float16 to float32
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, bits = (uint32_t)(h & 0x7fff) << 13;
  union { uint32_t u; float f; } v, magic = {.u = 0x77800000}; // 2^112
  v.u = bits;
  v.f *= magic.f; // moves the exponent's offset; makes normal numbers of subnormal ones
  if (bits >= 0x0f800000) v.u = bits | 0x7f800000; // infinities and NaN
  v.u |= sign;
  return v.f;
}

static inline float qscale(const dm_qmatrix *w, size_t group, size_t block, size_t lane) {
  const uint8_t *s = w->data + group * w->stride + w->scales;
  size_t i = block * QLANES + lane;
  switch (w->kind) {
  case QJOINED: return qhalf((uint16_t)(((const uint16_t *)s)[i] << 3 & 0x7fff));
  case QHALF: return qhalf(((const uint16_t *)s)[i]);
  default: return ((const float *)s)[i];
  }
}

static inline int32_t qzero(const dm_qmatrix *w, size_t group, size_t block, size_t lane) {
  const uint8_t *data = w->data + group * w->stride;
  size_t i = block * QLANES + lane;
  if (w->kind == QJOINED) return ((const uint16_t *)(data + w->scales))[i] >> 12;
  if (w->zeros) return data[w->zeros + i];
  return w->bits == 4 ? 8 : 128;
}

#endif
