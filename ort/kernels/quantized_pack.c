// Packing: from the source's columns to groups of 16 columns.
#include "quantized_internal.h"

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

static size_t up64(size_t n) { return (n + 63) & ~(size_t)63; }

const char *dm_qrefuses(const dm_qsource *s) {
  if (s->bits != 4 && s->bits != 8) return "only weights of 4 and 8 bits are taken";
  if (s->block != 32 && s->block != 64 && s->block != 128 && s->block != 256)
    return "only blocks of 32, 64, 128 and 256 weights are taken";
  if (s->n == 0 || s->k == 0) return "the matrix is empty";
  if (s->n > (size_t)1 << 31 || s->k > (size_t)1 << 31) return "the matrix is too large";
  return NULL;
}

// float16 to float32 and back: whether a scale loses nothing in 16 bits.
static int to_half(float f, uint16_t *h) {
  union { float f; uint32_t u; } v = {.f = f};
  uint32_t sign = v.u >> 16 & 0x8000, rest = v.u & 0x7fffffff;
  if (rest == 0) return *h = (uint16_t)sign, 1;
  int exponent = (int)(rest >> 23) - 127;
  if (exponent > 15 || exponent < -24) return 0;
  uint32_t mantissa = (rest & 0x7fffff) | 0x800000;
  int drop = exponent < -14 ? 13 + (-14 - exponent) : 13;
  if (mantissa & ((1u << drop) - 1)) return 0;
  mantissa >>= drop;
  *h = (uint16_t)(sign | (exponent < -14 ? mantissa : (uint32_t)(exponent + 15) << 10 | (mantissa & 0x3ff)));
  return 1;
}

// Scale i of a source as float16; whether it is one.
static inline int half_scale(const dm_qsource *s, size_t i, uint16_t *h) {
  if (s->half) return *h = ((const uint16_t *)s->scales)[i], 1;
  return to_half(((const float *)s->scales)[i], h);
}

// The smallest form that holds all scales of a source.
static qscales kind_of(const dm_qsource *s, size_t blocks) {
  qscales kind = s->zero_points != NULL && s->bits == 4 ? QJOINED : QHALF;
  for (size_t i = 0; i < s->n * blocks; i++) {
    uint16_t h;
    if (!half_scale(s, i, &h)) return QFLOAT;
    if (h & 0x8007) kind = QHALF;
  }
  return kind;
}

// Of eight nibbles k0..k7 in the source's order makes k0 k4 k1 k5 k2 k6 k3 k7: byte i
// then has k = i below and k = 4 + i above.
static inline uint32_t shuffle(uint32_t x) {
  uint32_t t = ((x >> 8) ^ x) & 0x0000ff00;
  x ^= t ^ (t << 8);
  t = ((x >> 4) ^ x) & 0x00f000f0;
  return x ^ t ^ (t << 4);
}

typedef struct {
  const dm_qsource *s;
  dm_qmatrix *w;
  size_t each; // groups of a part
} packing;

// A group's weights, from the 16 columns that lie one after another in the source.
static void pack_weights(const dm_qsource *s, const dm_qmatrix *w, size_t group, uint8_t *to) {
  size_t words = w->blocks * (size_t)w->block * (size_t)w->bits / 32; // of a column
  size_t columns = s->n - group * QLANES < QLANES ? s->n - group * QLANES : QLANES;
  const uint8_t *from = s->weights + group * QLANES * words * 4;
  if (columns < QLANES) memset(to, 0, words * 4 * QLANES);
  // Sixteen words of each column are a kilobyte of the group, which stays in cache.
  for (size_t first = 0; first < words; first += 16) {
    size_t last = first + 16 < words ? first + 16 : words;
    for (size_t c = 0; c < columns; c++) {
      const uint8_t *column = from + c * words * 4;
      for (size_t i = first; i < last; i++) {
        uint32_t x;
        memcpy(&x, column + 4 * i, 4);
        if (w->bits == 4) x = shuffle(x);
        memcpy(to + (i * QLANES + c) * 4, &x, 4);
      }
    }
  }
}

static void pack_group(const dm_qsource *s, const dm_qmatrix *w, size_t group) {
  uint8_t *to = w->data + group * w->stride;
  pack_weights(s, w, group, to);
  size_t zero_bytes = (w->blocks * (size_t)w->bits + 7) / 8; // of a column
  uint8_t *zeros = to + w->zeros;
  for (size_t lane = 0; lane < QLANES; lane++) {
    size_t column = group * QLANES + lane;
    int in = column < s->n;
    for (size_t b = 0; b < w->blocks; b++) {
      size_t at = b * QLANES + lane, i = column * w->blocks + b;
      uint8_t zero = 0;
      if (in && s->zero_points != NULL) {
        const uint8_t *z = s->zero_points + column * zero_bytes;
        zero = w->bits == 8 ? z[b] : z[b / 2] >> b % 2 * 4 & 15;
      }
      if (w->zeros) zeros[at] = zero;
      if (w->kind == QFLOAT) {
        ((float *)(to + w->scales))[at] = !in ? 0 : ((const float *)s->scales)[i];
        continue;
      }
      uint16_t h = 0;
      if (in) half_scale(s, i, &h);
      if (w->kind == QJOINED) h = (uint16_t)(h >> 3 | zero << 12);
      ((uint16_t *)(to + w->scales))[at] = h;
    }
  }
}

static void pack_part(void *arg, size_t part) {
  const packing *p = arg;
  size_t first = part * p->each, last = first + p->each;
  if (last > p->w->groups) last = p->w->groups;
  for (size_t g = first; g < last; g++) pack_group(p->s, p->w, g);
}

dm_qmatrix *dm_qpack(const dm_qsource *s, const dm_parallel *threads) {
  if (dm_qrefuses(s) != NULL || s->weights == NULL || s->scales == NULL) return NULL;
  dm_qmatrix *w = calloc(1, sizeof *w);
  if (w == NULL) return NULL;
  w->n = s->n, w->k = s->k, w->bits = s->bits, w->block = s->block;
  w->blocks = (s->k + (size_t)s->block - 1) / (size_t)s->block;
  w->groups = (s->n + QLANES - 1) / QLANES;
  w->kind = kind_of(s, w->blocks);
  w->scales = w->blocks * (size_t)w->block * QLANES * (size_t)w->bits / 8;
  w->stride = w->scales + up64(w->blocks * QLANES * (w->kind == QFLOAT ? 4 : 2));
  if (s->zero_points != NULL && w->kind != QJOINED) {
    w->zeros = w->stride;
    w->stride += up64(w->blocks * QLANES);
  }
  w->bytes = w->groups * w->stride;
  // Large matrices in huge pages, where the system has them: fewer entries of the
  // page table to look up.
  size_t align = w->bytes >= (size_t)4 << 20 ? (size_t)2 << 20 : 64;
  w->data = aligned_alloc(align, (w->bytes + align - 1) & ~(align - 1));
  if (w->data == NULL) {
    free(w);
    return NULL;
  }
#if defined(__linux__)
  if (align > 64) madvise(w->data, w->bytes, MADV_HUGEPAGE);
#endif
  size_t each = ((size_t)4 << 20) / w->stride + 1; // parts of about 4 MB
  packing p = {.s = s, .w = w, .each = each};
  size_t parts = (w->groups + each - 1) / each;
  if (threads != NULL) threads->run(threads->pool, pack_part, &p, parts);
  else
    for (size_t i = 0; i < parts; i++) pack_part(&p, i);
  return w;
}

void dm_qfree(dm_qmatrix *w) {
  if (w == NULL) return;
  free(w->data);
  free(w);
}

size_t dm_qbytes(const dm_qmatrix *w) { return w->bytes; }
size_t dm_qcolumns(const dm_qmatrix *w) { return w->n; }
size_t dm_qdepth(const dm_qmatrix *w) { return w->k; }
int dm_qblock(const dm_qmatrix *w) { return w->block; }
