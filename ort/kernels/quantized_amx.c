// Many rows on AMX tiles: a panel of 16 rows times a unit of 32 k and 16 columns is
// one instruction. Its int32 sums are exact, and what follows is as on AVX-512, so
// that the bits are the same.
#include "quantized_internal.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,amx-tile,amx-int8")))
#include "quantized_scales512.inc"

enum {
  // Units of weights that are unpacked at a time: 8 KB, which stay in the innermost
  // cache while panels of activations go by.
  SLAB = 16,
  TILE = QLANES * 4,    // bytes of a tile's row
  UNIT = QUNIT * QLANES // bytes of an unpacked unit
};

// Tiles 0 to 3 are sums, [rows][16] int32; 4 and 5 activations, [rows][32] int8; 6
// and 7 weights, [8][64] int8.
static TARGET void configure(size_t rows) {
  struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } __attribute__((aligned(64))) c = {.palette = 1};
  for (int i = 0; i < 4; i++) c.bytes[i] = TILE, c.rows[i] = (uint8_t)rows;
  for (int i = 4; i < 6; i++) c.bytes[i] = QUNIT, c.rows[i] = (uint8_t)rows;
  for (int i = 6; i < 8; i++) c.bytes[i] = TILE, c.rows[i] = QUNIT / 4;
  _tile_loadconfig(&c);
}

// Unpacks blocks from to to-1 of a group to signed bytes, in the order of a tile.
// What is subtracted is the zero point of 4 bits, and 128 of 8 bits, whose zero
// points come with the sums.
static TARGET void unpack(const dm_qmatrix *w, const uint8_t *data, size_t from, size_t to, int8_t *out) {
  const __m512i low = _mm512_set1_epi8(15);
  size_t each = (size_t)w->block / QUNIT;
  const uint8_t *units = data + from * each * (size_t)w->bits * 64;
  for (size_t b = from; b < to; b++) {
    __m512i zero = _mm512_set1_epi8(w->bits == 4 ? 8 : (char)128);
    if (w->bits == 4 && (w->kind == QJOINED || w->zeros)) {
      __m512i z = w->kind == QJOINED
                      ? joined_zeros(data + w->scales, b)
                      : _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(data + w->zeros + b * QLANES)));
      zero = _mm512_mullo_epi32(z, _mm512_set1_epi32(0x01010101));
    }
    for (size_t u = 0; u < each; u++, out += UNIT, units += w->bits * 64)
      for (size_t j = 0; j < 4; j++) {
        __m512i w0, w1;
        if (w->bits == 4) {
          __m512i v = _mm512_load_si512(units + 64 * j);
          w0 = _mm512_and_si512(v, low), w1 = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
        } else {
          w0 = _mm512_load_si512(units + 128 * j), w1 = _mm512_load_si512(units + 128 * j + 64);
        }
        _mm512_store_si512(out + 128 * j, _mm512_sub_epi8(w0, zero));
        _mm512_store_si512(out + 128 * j + 64, _mm512_sub_epi8(w1, zero));
      }
  }
}

// One block's sums into tile T, and from there to memory.
#define SUM(T)                                                              \
  do {                                                                      \
    _tile_zero(T);                                                          \
    for (size_t u = 0; u < each; u++, a += height * QUNIT, weights += UNIT) { \
      _tile_loadd(4, a, QUNIT);                                             \
      _tile_loadd(6, weights, TILE);                                        \
      _tile_dpbssd(T, 4, 6);                                                \
    }                                                                       \
    _tile_stored(T, sums[T], TILE);                                         \
  } while (0)

// Blocks from to to-1 of a panel. R is 8 or 16; rows beyond the panel's are computed
// from what happens to be there, and not used.
static inline TARGET __attribute__((always_inline)) void
panel(const size_t R, const dm_qmatrix *w, const uint8_t *data, const int8_t *weights, size_t from, size_t to,
      const int8_t *a, const qstart *s, size_t height, const char *ahead, float *out) {
  static const size_t LATE = 2; // blocks that tiles are ahead of the rest
  const size_t each = (size_t)w->block / QUNIT, fetch = (size_t)w->block * (size_t)w->bits / 512 + 1;
  const uint8_t *scales = data + w->scales;
  const uint8_t *zeros = w->bits == 8 && w->zeros ? data + w->zeros : NULL;
  _Alignas(64) int32_t sums[4][16][QLANES];
  __m512 f[16];
#pragma GCC unroll 16
  for (size_t r = 0; r < R; r++) f[r] = from == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(out + r * QLANES);
  a += from * each * height * QUNIT, s += from * height;
  for (size_t i = from; i < to + LATE; i++) {
    if (i < to) {
      switch (i % 4) {
      case 0: SUM(0); break;
      case 1: SUM(1); break;
      case 2: SUM(2); break;
      case 3: SUM(3); break;
      }
      if (ahead)
        for (size_t j = 0; j < fetch; j++) _mm_prefetch(ahead + (i * fetch + j) * 64, _MM_HINT_T1);
    }
    if (i < from + LATE) continue;
    size_t b = i - LATE;
    __m512 scale = scales_of(scales, w->kind, b);
    __m512i z = _mm512_setzero_si512();
    if (zeros) { // as 16 bits below zeros
      z = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(zeros + b * QLANES)));
      z = _mm512_maskz_sub_epi16(0x55555555, z, _mm512_set1_epi16(128));
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < R; r++) {
      __m512i sum = _mm512_load_si512(sums[b % 4][r]);
      if (zeros) sum = _mm512_add_epi32(sum, _mm512_madd_epi16(z, _mm512_set1_epi32(s[r].minus)));
      f[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(s[r].scale)), f[r]);
    }
    s += height;
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < R; r++) _mm512_storeu_ps(out + r * QLANES, f[r]);
}

static TARGET __attribute__((noinline)) void
panel8(const dm_qmatrix *w, const uint8_t *data, const int8_t *weights, size_t from, size_t to, const int8_t *a,
       const qstart *s, size_t height, const char *ahead, float *out) {
  panel(8, w, data, weights, from, to, a, s, height, ahead, out);
}
static TARGET __attribute__((noinline)) void
panel16(const dm_qmatrix *w, const uint8_t *data, const int8_t *weights, size_t from, size_t to, const int8_t *a,
        const qstart *s, size_t height, const char *ahead, float *out) {
  panel(16, w, data, weights, from, to, a, s, height, ahead, out);
}

TARGET void qmultiply_amx(const dm_qmatrix *w, size_t group, int more, const qrows *x, size_t first, size_t rows,
                          float *out) {
  const uint8_t *data = w->data + group * w->stride;
  _Alignas(64) int8_t weights[SLAB * UNIT];
  size_t blocks = SLAB / ((size_t)w->block / QUNIT); // of a slab
  size_t now = 0; // rows that tiles are configured for
  for (size_t from = 0; from < w->blocks; from += blocks) {
    size_t to = from + blocks < w->blocks ? from + blocks : w->blocks;
    unpack(w, data, from, to, weights);
    __asm__ volatile("" ::: "memory"); // tiles read what was written
    for (size_t row = 0; row < rows; row += QPANEL) {
      size_t height = qpanel(x, first + row);
      if (height != now) configure(now = height);
      // While the first panel is computed, the next group comes from memory.
      const char *ahead = more && row == 0 ? (const char *)data + w->stride : NULL;
      (height > 8 ? panel16 : panel8)(w, data, weights, from, to, qvalues(x, first + row), qstarts(x, first + row),
                                      height, ahead, out + row * QLANES);
    }
  }
  _tile_release();
}
#endif
