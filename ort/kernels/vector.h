// Sixteen float32 lanes, the same on every level: one AVX-512 register, two of
// AVX2, four of NEON, or an array. Each operation rounds once, as IEEE 754 says,
// and a multiplication is fused with an addition only by v_fma, so that the same
// kernel gives the same bits on every level. Included by simd_*.c alone, which
// define DM_SIMD_* and what the compiler may use.
#ifndef DRAFTMILL_KERNELS_VECTOR_H
#define DRAFTMILL_KERNELS_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DM_LANES 16
// Registers are kept across calls only where all is inlined; the portable arrays
// would merely make the compiler slow.
#if defined(DM_SIMD_PORTABLE)
#define V_INLINE static __attribute__((unused))
#else
#define V_INLINE static inline __attribute__((always_inline))
#endif

#if defined(DM_SIMD_AVX512)
#include <immintrin.h>

typedef __m512 v16;
V_INLINE __mmask16 v_first(size_t n) { return (__mmask16)((1u << n) - 1); }
V_INLINE v16 v_load(const float *p) { return _mm512_loadu_ps(p); }
V_INLINE void v_store(float *p, v16 v) { _mm512_storeu_ps(p, v); }
V_INLINE v16 v_load_n(const float *p, size_t n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
V_INLINE void v_store_n(float *p, v16 v, size_t n) { _mm512_mask_storeu_ps(p, v_first(n), v); }
V_INLINE v16 v_set(float f) { return _mm512_set1_ps(f); }
V_INLINE v16 v_zero(void) { return _mm512_setzero_ps(); }
V_INLINE v16 v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
V_INLINE v16 v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
V_INLINE v16 v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
V_INLINE v16 v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
V_INLINE v16 v_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
V_INLINE v16 v_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
V_INLINE v16 v_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
V_INLINE v16 v_less(v16 a, v16 b, v16 yes, v16 no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
V_INLINE v16 v_between(v16 v, v16 other, size_t from, size_t to) {
  return _mm512_mask_blend_ps((__mmask16)(v_first(to) & ~v_first(from)), other, v);
}
V_INLINE v16 v_power(v16 t) {
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23),
                                              _mm512_set1_epi32(127 << 23)));
}
V_INLINE __m256 v_fold8(v16 v) {
  return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}
V_INLINE __m256 v_most8(v16 v) {
  return _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}
V_INLINE float s_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
V_INLINE void v_prefetch(const void *p) { _mm_prefetch(p, _MM_HINT_T0); }
V_INLINE void v_prefetch_far(const void *p) { _mm_prefetch(p, _MM_HINT_T1); }

#elif defined(DM_SIMD_AVX2)
#include <immintrin.h>

typedef struct {
  __m256 a, b;
} v16;
V_INLINE v16 v_two(__m256 a, __m256 b) { return (v16){a, b}; }
V_INLINE __m256i v_count8(void) { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
V_INLINE __m256i v_below(__m256i lane, size_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
V_INLINE __m256i v_count16(void) { return _mm256_add_epi32(v_count8(), _mm256_set1_epi32(8)); }
V_INLINE v16 v_load(const float *p) { return v_two(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
V_INLINE void v_store(float *p, v16 v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
V_INLINE v16 v_load_n(const float *p, size_t n) {
  return v_two(_mm256_maskload_ps(p, v_below(v_count8(), n)),
               _mm256_maskload_ps(p + 8, v_below(v_count16(), n)));
}
V_INLINE void v_store_n(float *p, v16 v, size_t n) {
  _mm256_maskstore_ps(p, v_below(v_count8(), n), v.a);
  _mm256_maskstore_ps(p + 8, v_below(v_count16(), n), v.b);
}
V_INLINE v16 v_set(float f) { return v_two(_mm256_set1_ps(f), _mm256_set1_ps(f)); }
V_INLINE v16 v_zero(void) { return v_two(_mm256_setzero_ps(), _mm256_setzero_ps()); }
V_INLINE v16 v_add(v16 x, v16 y) { return v_two(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
V_INLINE v16 v_sub(v16 x, v16 y) { return v_two(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)); }
V_INLINE v16 v_mul(v16 x, v16 y) { return v_two(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
V_INLINE v16 v_div(v16 x, v16 y) { return v_two(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
V_INLINE v16 v_fma(v16 x, v16 y, v16 z) {
  return v_two(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
V_INLINE v16 v_max(v16 x, v16 y) { return v_two(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)); }
V_INLINE v16 v_min(v16 x, v16 y) { return v_two(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)); }
V_INLINE v16 v_less(v16 x, v16 y, v16 yes, v16 no) {
  return v_two(_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
               _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)));
}
V_INLINE __m256 v_between8(__m256 v, __m256 other, __m256i lane, size_t from, size_t to) {
  __m256i in = _mm256_andnot_si256(v_below(lane, from), v_below(lane, to));
  return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(in));
}
V_INLINE v16 v_between(v16 v, v16 other, size_t from, size_t to) {
  return v_two(v_between8(v.a, other.a, v_count8(), from, to),
               v_between8(v.b, other.b, v_count16(), from, to));
}
V_INLINE __m256 v_power8(__m256 t) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23),
                                              _mm256_set1_epi32(127 << 23)));
}
V_INLINE v16 v_power(v16 t) { return v_two(v_power8(t.a), v_power8(t.b)); }
V_INLINE __m256 v_fold8(v16 v) { return _mm256_add_ps(v.a, v.b); }
V_INLINE __m256 v_most8(v16 v) { return _mm256_max_ps(v.a, v.b); }
V_INLINE float s_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
V_INLINE void v_prefetch(const void *p) { _mm_prefetch(p, _MM_HINT_T0); }
V_INLINE void v_prefetch_far(const void *p) { _mm_prefetch(p, _MM_HINT_T1); }

#elif defined(DM_SIMD_NEON)
#include <arm_neon.h>

typedef struct {
  float32x4_t q[4];
} v16;
#define V_EACH(expression)                                                                         \
  v16 r;                                                                                           \
  _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) r.q[i] = (expression);                       \
  return r
V_INLINE v16 v_load(const float *p) { V_EACH(vld1q_f32(p + 4 * i)); }
V_INLINE void v_store(float *p, v16 v) {
  for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, v.q[i]);
}
V_INLINE v16 v_load_n(const float *p, size_t n) {
  float lanes[DM_LANES] = {0};
  memcpy(lanes, p, n * sizeof *p);
  return v_load(lanes);
}
V_INLINE void v_store_n(float *p, v16 v, size_t n) {
  float lanes[DM_LANES];
  v_store(lanes, v);
  memcpy(p, lanes, n * sizeof *p);
}
V_INLINE v16 v_set(float f) { V_EACH(vdupq_n_f32(f)); }
V_INLINE v16 v_zero(void) { V_EACH(vdupq_n_f32(0)); }
V_INLINE v16 v_add(v16 x, v16 y) { V_EACH(vaddq_f32(x.q[i], y.q[i])); }
V_INLINE v16 v_sub(v16 x, v16 y) { V_EACH(vsubq_f32(x.q[i], y.q[i])); }
V_INLINE v16 v_mul(v16 x, v16 y) { V_EACH(vmulq_f32(x.q[i], y.q[i])); }
V_INLINE v16 v_div(v16 x, v16 y) { V_EACH(vdivq_f32(x.q[i], y.q[i])); }
V_INLINE v16 v_fma(v16 x, v16 y, v16 z) { V_EACH(vfmaq_f32(z.q[i], x.q[i], y.q[i])); }
V_INLINE v16 v_max(v16 x, v16 y) { V_EACH(vbslq_f32(vcgtq_f32(x.q[i], y.q[i]), x.q[i], y.q[i])); }
V_INLINE v16 v_min(v16 x, v16 y) { V_EACH(vbslq_f32(vcltq_f32(x.q[i], y.q[i]), x.q[i], y.q[i])); }
V_INLINE v16 v_less(v16 x, v16 y, v16 yes, v16 no) {
  V_EACH(vbslq_f32(vcltq_f32(x.q[i], y.q[i]), yes.q[i], no.q[i]));
}
V_INLINE v16 v_between(v16 v, v16 other, size_t from, size_t to) {
  static const uint32_t count[4] = {0, 1, 2, 3};
  uint32x4_t first = vld1q_u32(count), low = vdupq_n_u32((uint32_t)from),
             high = vdupq_n_u32((uint32_t)to);
  v16 r;
  for (int i = 0; i < 4; i++) {
    uint32x4_t lane = vaddq_u32(first, vdupq_n_u32(4 * (uint32_t)i));
    r.q[i] = vbslq_f32(vandq_u32(vcgeq_u32(lane, low), vcltq_u32(lane, high)), v.q[i], other.q[i]);
  }
  return r;
}
V_INLINE v16 v_power(v16 t) {
  V_EACH(vreinterpretq_f32_s32(
      vaddq_s32(vshlq_n_s32(vreinterpretq_s32_f32(t.q[i]), 23), vdupq_n_s32(127 << 23))));
}
V_INLINE float s_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
V_INLINE void v_prefetch(const void *p) { __builtin_prefetch(p); }
V_INLINE void v_prefetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }

#elif defined(DM_SIMD_PORTABLE)

typedef struct {
  float l[DM_LANES];
} v16;
#define V_EACH(expression)                                                                         \
  v16 r;                                                                                           \
  for (int i = 0; i < DM_LANES; i++) r.l[i] = (expression);                                        \
  return r

// a * b + c rounded once, also where the processor does not fuse: the product is
// exact in float64, and rounding the sum to odd there makes the rounding to
// float32 right (Boldo and Melquiond, "Emulation of FMA and correctly rounded
// sums: proved algorithms using rounding to odd", 2008).
V_INLINE float s_fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  double product = (double)a * b, sum = product + c, part = sum - product;
  double error = (product - (sum - part)) + (c - part);
  if (error > 0 || error < 0) {
    int64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (!(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : -1;
    memcpy(&sum, &bits, sizeof bits);
  }
  return (float)sum;
#endif
}
V_INLINE v16 v_load(const float *p) { V_EACH(p[i]); }
V_INLINE void v_store(float *p, v16 v) {
  for (int i = 0; i < DM_LANES; i++) p[i] = v.l[i];
}
V_INLINE v16 v_load_n(const float *p, size_t n) { V_EACH((size_t)i < n ? p[i] : 0); }
V_INLINE void v_store_n(float *p, v16 v, size_t n) {
  for (size_t i = 0; i < n; i++) p[i] = v.l[i];
}
V_INLINE v16 v_set(float f) { V_EACH(f); }
V_INLINE v16 v_zero(void) { V_EACH(0); }
V_INLINE v16 v_add(v16 a, v16 b) { V_EACH(a.l[i] + b.l[i]); }
V_INLINE v16 v_sub(v16 a, v16 b) { V_EACH(a.l[i] - b.l[i]); }
V_INLINE v16 v_mul(v16 a, v16 b) { V_EACH(a.l[i] * b.l[i]); }
V_INLINE v16 v_div(v16 a, v16 b) { V_EACH(a.l[i] / b.l[i]); }
V_INLINE v16 v_fma(v16 a, v16 b, v16 c) { V_EACH(s_fma(a.l[i], b.l[i], c.l[i])); }
V_INLINE v16 v_max(v16 a, v16 b) { V_EACH(a.l[i] > b.l[i] ? a.l[i] : b.l[i]); }
V_INLINE v16 v_min(v16 a, v16 b) { V_EACH(a.l[i] < b.l[i] ? a.l[i] : b.l[i]); }
V_INLINE v16 v_less(v16 a, v16 b, v16 yes, v16 no) { V_EACH(a.l[i] < b.l[i] ? yes.l[i] : no.l[i]); }
V_INLINE v16 v_between(v16 v, v16 other, size_t from, size_t to) {
  V_EACH((size_t)i >= from && (size_t)i < to ? v.l[i] : other.l[i]);
}
V_INLINE float s_power(float t) {
  uint32_t bits;
  memcpy(&bits, &t, sizeof bits);
  bits = (bits << 23) + (127u << 23);
  memcpy(&t, &bits, sizeof bits);
  return t;
}
V_INLINE v16 v_power(v16 t) { V_EACH(s_power(t.l[i])); }
V_INLINE void v_prefetch(const void *p) { (void)p; }
V_INLINE void v_prefetch_far(const void *p) { (void)p; }
#endif

// The sum of all lanes: i + (i + 8), then i + (i + 4), i + (i + 2), i + (i + 1);
// and the greatest, folded in the same way.
#if defined(DM_SIMD_AVX512) || defined(DM_SIMD_AVX2)
V_INLINE __m128 v_sum4(v16 v) {
  __m256 h = v_fold8(v);
  return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}
V_INLINE float v_sum(v16 v) {
  __m128 q = v_sum4(v);
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
V_INLINE float v_most(v16 v) {
  __m256 h = v_most8(v);
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
// The sums of four vectors, to p.
V_INLINE void v_sums4(float *p, v16 a, v16 b, v16 c, v16 d) {
  __m128 x = v_sum4(a), y = v_sum4(b), z = v_sum4(c), w = v_sum4(d);
  x = _mm_add_ps(_mm_unpacklo_ps(x, y), _mm_unpackhi_ps(x, y));
  z = _mm_add_ps(_mm_unpacklo_ps(z, w), _mm_unpackhi_ps(z, w));
  _mm_storeu_ps(p, _mm_add_ps(_mm_movelh_ps(x, z), _mm_movehl_ps(z, x)));
}
#if defined(DM_SIMD_AVX512)
// The sums of 16 vectors, of four rows of four, to four rows of p.
V_INLINE void v_sums16(float *p, size_t row, v16 v[4][4]) {
  v16 half[2], quarter[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++) {
    v16 r0 = v[0][c], r1 = v[1][c], r2 = v[2][c], r3 = v[3][c];
    half[0] = v_add(_mm512_shuffle_f32x4(r0, r1, 0x44), _mm512_shuffle_f32x4(r0, r1, 0xee));
    half[1] = v_add(_mm512_shuffle_f32x4(r2, r3, 0x44), _mm512_shuffle_f32x4(r2, r3, 0xee));
    quarter[c] = v_add(_mm512_shuffle_f32x4(half[0], half[1], 0x88),
                       _mm512_shuffle_f32x4(half[0], half[1], 0xdd));
  }
  v16 a = v_add(_mm512_shuffle_ps(quarter[0], quarter[1], 0x44),
                _mm512_shuffle_ps(quarter[0], quarter[1], 0xee));
  v16 b = v_add(_mm512_shuffle_ps(quarter[2], quarter[3], 0x44),
                _mm512_shuffle_ps(quarter[2], quarter[3], 0xee));
  a = v_add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
  _mm_storeu_ps(p, _mm512_castps512_ps128(a));
  _mm_storeu_ps(p + row, _mm512_extractf32x4_ps(a, 1));
  _mm_storeu_ps(p + 2 * row, _mm512_extractf32x4_ps(a, 2));
  _mm_storeu_ps(p + 3 * row, _mm512_extractf32x4_ps(a, 3));
}
#endif
#else
V_INLINE float v_sum(v16 v) {
  float l[DM_LANES];
  v_store(l, v);
  for (int width = DM_LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) l[i] = l[i] + l[i + width];
  return l[0];
}
V_INLINE float v_most(v16 v) {
  float l[DM_LANES];
  v_store(l, v);
  for (int width = DM_LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) l[i] = l[i] > l[i + width] ? l[i] : l[i + width];
  return l[0];
}
#if defined(DM_SIMD_NEON)
V_INLINE float32x4_t v_sum4(v16 v) {
  return vaddq_f32(vaddq_f32(v.q[0], v.q[2]), vaddq_f32(v.q[1], v.q[3]));
}
V_INLINE void v_sums4(float *p, v16 a, v16 b, v16 c, v16 d) {
  float32x4_t x = v_sum4(a), y = v_sum4(b), z = v_sum4(c), w = v_sum4(d);
  x = vaddq_f32(vzip1q_f32(x, y), vzip2q_f32(x, y));
  z = vaddq_f32(vzip1q_f32(z, w), vzip2q_f32(z, w));
  vst1q_f32(p, vaddq_f32(vcombine_f32(vget_low_f32(x), vget_low_f32(z)),
                         vcombine_f32(vget_high_f32(x), vget_high_f32(z))));
}
#else
V_INLINE void v_sums4(float *p, v16 a, v16 b, v16 c, v16 d) {
  p[0] = v_sum(a), p[1] = v_sum(b), p[2] = v_sum(c), p[3] = v_sum(d);
}
#endif
#endif

// Adding this rounds to an integer, whose bits then end the mantissa; v_power
// makes 2 to that integer of it, between -126 and 127.
#define V_ROUND 0x1.8p23f

// e^r of the remainder |r| <= ln(2)/2 of x = n ln(2) + r, and n + V_ROUND in *n.
// A polynomial of degree 6 (Chebyshev fit, error below 3e-9).
V_INLINE v16 v_exp_part(v16 x, v16 *n) {
  *n = v_fma(x, v_set(0x1.715476p0f), v_set(V_ROUND));
  v16 whole = v_sub(*n, v_set(V_ROUND));
  v16 r = v_fma(whole, v_set(-0x1.62e43p-1f), x);
  r = v_fma(whole, v_set(0x1.05c61p-29f), r);
  v16 p = v_fma(v_set(0x1.6d437cp-10f), r, v_set(0x1.120bbap-7f));
  p = v_fma(p, r, v_set(0x1.5554e8p-5f));
  p = v_fma(p, r, v_set(0x1.5554dcp-3f));
  p = v_fma(p, r, v_set(0.5f));
  p = v_fma(p, r, v_set(1));
  return v_fma(p, r, v_set(1));
}

// e^x for x <= 0, within 1 ulp; 0 below -87, so that nothing is subnormal. NaN
// stays NaN.
V_INLINE v16 v_exp_negative(v16 x) {
  v16 n, p = v_exp_part(v_max(v_set(-87), x), &n);
  return v_less(x, v_set(-87), v_zero(), v_mul(p, v_power(n)));
}

// e^x for any x, within 1 ulp where the result is normal.
V_INLINE v16 v_exp(v16 x) {
  v16 n, p = v_exp_part(v_min(v_set(89), v_max(v_set(-104), x)), &n);
  // 2^n in two steps: n runs from -150 to 128.
  v16 whole = v_sub(n, v_set(V_ROUND)), half = v_fma(whole, v_set(0.5f), v_set(V_ROUND));
  v16 rest = v_add(v_sub(whole, v_sub(half, v_set(V_ROUND))), v_set(V_ROUND));
  return v_mul(v_mul(p, v_power(half)), v_power(rest));
}

V_INLINE v16 v_sigmoid(v16 x) {
  return v_div(v_set(1), v_add(v_set(1), v_exp(v_sub(v_zero(), x))));
}

V_INLINE v16 v_tanh(v16 x) {
  return v_sub(v_set(1), v_div(v_set(2), v_add(v_set(1), v_exp(v_add(x, x)))));
}

V_INLINE v16 v_silu(v16 x) {
  return v_div(x, v_add(v_set(1), v_exp(v_sub(v_zero(), x))));
}

// x times the normal distribution function. With z = |x|/sqrt(2) and
// t = 1/(1 + z/2), erfc(z) = t exp(-z^2 + P(t)); P is a Chebyshev fit of degree 9
// with an error below 6e-8, so that the far tails keep their relative accuracy.
V_INLINE v16 v_gelu(v16 x) {
  v16 positive = v_max(x, v_sub(v_zero(), x));
  v16 z = v_mul(positive, v_set(0x1.6a09e6p-1f));
  v16 t = v_div(v_set(1), v_fma(z, v_set(0.5f), v_set(1)));
  v16 p = v_fma(v_set(0.151551219f), t, v_set(-0.716805299f));
  p = v_fma(p, t, v_set(1.24116423f));
  p = v_fma(p, t, v_set(-0.808233824f));
  p = v_fma(p, t, v_set(0.0119332382f));
  p = v_fma(p, t, v_set(-0.0474550809f));
  p = v_fma(p, t, v_set(0.0510604062f));
  p = v_fma(p, t, v_set(0.383226099f));
  p = v_fma(p, t, v_set(0.999026187f));
  p = v_fma(p, t, v_set(-1.26546712f));
  v16 tail = v_mul(v_mul(v_set(0.5f), t), v_exp(v_fma(v_sub(v_zero(), z), z, p)));
  return v_mul(x, v_less(x, v_zero(), tail, v_sub(v_set(1), tail)));
}

// The approximation x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)), which is the same
// as x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.
V_INLINE v16 v_gelu_tanh(v16 x) {
  v16 cubic = v_fma(v_mul(v_mul(x, x), x), v_set(0.044715f), x);
  return v_mul(x, v_sigmoid(v_mul(cubic, v_set(1.595769122f))));
}

#endif
