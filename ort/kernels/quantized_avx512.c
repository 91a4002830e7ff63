// The paths for AVX-512, with VNNI and without.
#include "quantized_internal.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")))
#include "quantized_rows.inc"

// A tile is up to 8 rows of a panel by the 16 columns of a group. The number of rows
// and the bits are constants once this is inlined, so that everything stays in
// registers: 8 sums in int32, 8 in float32, 8 vectors of weights.
static inline TARGET __attribute__((always_inline)) void
tile(const size_t R, const int bits, const dm_qmatrix *w, const uint8_t *data, size_t ahead,
     const int8_t *a, const qstart *s, size_t height, float *out) {
  const __m512i low = _mm512_set1_epi8(15);
  const uint8_t *units = data, *scales = data + w->scales;
  const uint8_t *zeros = w->zeros ? data + w->zeros : NULL;
  const size_t each = (size_t)w->block / QUNIT;
  const int half = w->half;
  __m512 f[8];
#pragma GCC unroll 8
  for (size_t r = 0; r < R; r++) f[r] = _mm512_setzero_ps();
  for (size_t b = 0; b < w->blocks; b++) {
    __m512i sum[8];
    if (zeros) {
      __m512i z = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(zeros + b * QLANES)));
#pragma GCC unroll 8
      for (size_t r = 0; r < R; r++) sum[r] = _mm512_madd_epi16(z, _mm512_set1_epi32(s[r].minus));
    } else {
#pragma GCC unroll 8
      for (size_t r = 0; r < R; r++) sum[r] = _mm512_set1_epi32(bits == 4 ? s[r].minus8 : s[r].minus128);
    }
    for (size_t u = 0; u < each; u++) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        __m512i w0, w1; // k = 8j to 8j+3, and 8j+4 to 8j+7
        if (bits == 4) {
          __m512i v = _mm512_load_si512(units + 64 * j);
          if (ahead) _mm_prefetch((const char *)(units + ahead + 64 * j), _MM_HINT_T0);
          w0 = _mm512_and_si512(v, low);
          w1 = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
        } else {
          w0 = _mm512_load_si512(units + 128 * j);
          w1 = _mm512_load_si512(units + 128 * j + 64);
          if (ahead) {
            _mm_prefetch((const char *)(units + ahead + 128 * j), _MM_HINT_T0);
            _mm_prefetch((const char *)(units + ahead + 128 * j + 64), _MM_HINT_T0);
          }
        }
#pragma GCC unroll 8
        for (size_t r = 0; r < R; r++) {
          int32_t k0, k1;
          memcpy(&k0, a + r * QUNIT + 8 * j, 4);
          memcpy(&k1, a + r * QUNIT + 8 * j + 4, 4);
          sum[r] = _mm512_dpbusd_epi32(sum[r], w0, _mm512_set1_epi32(k0));
          sum[r] = _mm512_dpbusd_epi32(sum[r], w1, _mm512_set1_epi32(k1));
        }
      }
      units += bits * 64;
      a += height * QUNIT;
    }
    __m512 scale;
    if (half) {
      scale = _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(scales + b * QLANES * 2)));
    } else {
      scale = _mm512_load_ps(scales + b * QLANES * 4);
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < R; r++)
      f[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r]), _mm512_mul_ps(scale, _mm512_set1_ps(s[r].scale)), f[r]);
    s += height;
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < R; r++) _mm512_storeu_ps(out + r * QLANES, f[r]);
}

#define TILE(R)                                                                              \
  static TARGET void tile4_##R(const dm_qmatrix *w, const uint8_t *data, size_t ahead,        \
                               const int8_t *a, const qstart *s, size_t height, float *out) { \
    tile(R, 4, w, data, ahead, a, s, height, out);                                            \
  }                                                                                          \
  static TARGET void tile8_##R(const dm_qmatrix *w, const uint8_t *data, size_t ahead,        \
                               const int8_t *a, const qstart *s, size_t height, float *out) { \
    tile(R, 8, w, data, ahead, a, s, height, out);                                            \
  }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8)

typedef void (*tiling)(const dm_qmatrix *, const uint8_t *, size_t, const int8_t *, const qstart *, size_t, float *);
static const tiling tiles[2][8] = {
    {tile4_1, tile4_2, tile4_3, tile4_4, tile4_5, tile4_6, tile4_7, tile4_8},
    {tile8_1, tile8_2, tile8_3, tile8_4, tile8_5, tile8_6, tile8_7, tile8_8},
};

static TARGET void multiply(const dm_qmatrix *w, size_t group, int more, const qrows *x, size_t first,
                            size_t rows, float *out) {
  const uint8_t *data = w->data + group * w->stride;
  for (size_t row = 0; row < rows;) {
    // A panel's rows in one or two tiles of about the same height.
    size_t height = qpanel(x, first + row), end = row + height < rows ? row + height : rows;
    while (row < end) {
      size_t r = end - row > 8 ? (end - row + 1) / 2 : end - row;
      // The last tile fetches the next group while it computes this one.
      size_t ahead = more && row + r == rows ? w->stride : 0;
      tiles[w->bits == 8][r - 1](w, data, ahead, qvalues(x, first + row), qstarts(x, first + row), height,
                                 out + row * QLANES);
      row += r;
    }
  }
}

const qpath qpath_avx512_vnni = {quantize, multiply, gate};
#endif
