// Plain loops that a compiler turns into vector code under -O3 -ffast-math,
// compiled once for every instruction set below. -ffast-math assumes that
// there are no NaN and no infinities, so what may be one is looked at as an
// integer, and everything after spec_peak may rely on finite numbers and -Inf.
#include "kernel.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__)
#define V4 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define V3 __attribute__((target("avx2,fma")))
static int level;
__attribute__((constructor)) static void choose(void) {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) level = 3;
  if (level == 3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    level = 4;
}
// VERSIONS makes NAME from NAME##_body: one version for each instruction set,
// and the choice between them.
#define VERSIONS(TYPE, NAME, PARAMETERS, ARGUMENTS)                          \
  V4 static TYPE NAME##_v4 PARAMETERS { return NAME##_body ARGUMENTS; }      \
  V3 static TYPE NAME##_v3 PARAMETERS { return NAME##_body ARGUMENTS; }      \
  static TYPE NAME##_v1 PARAMETERS { return NAME##_body ARGUMENTS; }         \
  TYPE NAME PARAMETERS {                                                     \
    return level == 4 ? NAME##_v4 ARGUMENTS : level == 3 ? NAME##_v3 ARGUMENTS : NAME##_v1 ARGUMENTS; \
  }
#else
#define VERSIONS(TYPE, NAME, PARAMETERS, ARGUMENTS) \
  TYPE NAME PARAMETERS { return NAME##_body ARGUMENTS; }
#endif

INLINE int32_t bits(float f) {
  int32_t b;
  memcpy(&b, &f, sizeof b);
  return b;
}

INLINE float from_bits(int32_t b) {
  float f;
  memcpy(&f, &b, sizeof f);
  return f;
}

#define INFINITE 0x7f800000 /* +Inf; minus it is the key of -Inf */
#define MINUS_INFINITY ((int32_t)0xff800000)

// key orders floats as integers: -0 and +0 are equal, NaN lies beyond the
// infinities, on the side of its sign.
INLINE int32_t key(float f) {
  int32_t b = bits(f), magnitude = b & 0x7fffffff, negative = b >> 31;
  return (magnitude ^ negative) - negative;
}

INLINE int64_t spec_peak_body(const float *l, int64_t n) {
  int32_t best = INT32_MIN, least = INT32_MAX;
  int64_t where = 0; // the first block that holds the best
  for (int64_t j = 0; j < n; j += SPEC_BLOCK) {
    int64_t m = n - j < SPEC_BLOCK ? n - j : SPEC_BLOCK;
    int32_t high = INT32_MIN, low = INT32_MAX;
    for (int64_t i = 0; i < m; i++) {
      int32_t k = key(l[j + i]);
      high = k > high ? k : high;
      low = k < low ? k : low;
    }
    least = low < least ? low : least;
    if (high > best) best = high, where = j;
  }
  if (n > 0 && (best >= INFINITE || least < -INFINITE)) return SPEC_NOT_A_NUMBER;
  if (n == 0 || best == -INFINITE) return SPEC_NO_MASS;
  while (key(l[where]) != best) where++;
  return where;
}
VERSIONS(int64_t, spec_peak, (const float *l, int64_t n), (l, n))

// exps writes 2^((l - top) * scale) for one block. The argument is taken in
// double, so that it is as exact as the logits are; its fraction, between -1/2
// and 1/2, goes through the Taylor polynomial of 2^r, whose error is below
// that of float32. What underflows becomes zero.
INLINE double exps(const float *restrict l, int64_t n, double top, double scale, float *restrict w) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    double x = fmax(((double)l[i] - top) * scale, -127.0);
    int32_t e = (int32_t)(x - 0.5);
    float r = (float)(x - (double)e), y = 1.5252734e-5f;
    y = y * r + 1.5403530e-4f;
    y = y * r + 1.3333558e-3f;
    y = y * r + 9.6181291e-3f;
    y = y * r + 5.5504109e-2f;
    y = y * r + 2.4022651e-1f;
    y = y * r + 6.9314718e-1f;
    y = y * r + 1.0f;
    int32_t possible = -(bits(l[i]) != MINUS_INFINITY);
    float v = y * from_bits(((e + 127) << 23) & possible);
    w[i] = v;
    sum += v;
  }
  return sum;
}

INLINE double spec_exps_body(const float *l, int64_t n, double top, double scale, float *w, double *blocks) {
  double sum = 0;
  int64_t j = 0;
  for (; j + SPEC_BLOCK <= n; j += SPEC_BLOCK) sum += *blocks++ = exps(l + j, SPEC_BLOCK, top, scale, w + j);
  if (j < n) sum += *blocks = exps(l + j, n - j, top, scale, w + j);
  return sum;
}
VERSIONS(double, spec_exps, (const float *l, int64_t n, double top, double scale, float *w, double *blocks),
         (l, n, top, scale, w, blocks))

// An edge is where a truncation falls: what is larger than value stays, and of
// what equals it the first so many.
struct edge {
  float value;
  double ties;
};

#define BINS 2048

// find_edge returns the edge above which the values hold at least need: of
// their sum, or of their number where they are counted. It is a radix
// selection: a histogram over the leading bits of the floats, which order
// positive floats, then one over the bits that follow within the bin in which
// the edge falls, until the bin is one value. floor is at most the least value.
INLINE struct edge find_edge(const float *v, int64_t n, float floor, double need, int counted) {
  double mass[BINS];
  int32_t low = bits(floor), high = 0;
  for (int64_t i = 0; i < n; i++) high = bits(v[i]) > high ? bits(v[i]) : high;
  for (;;) {
    int shift = 0;
    while ((high - low) >> shift >= BINS) shift++;
    memset(mass, 0, sizeof mass);
    for (int64_t i = 0; i < n; i++) {
      int32_t b = bits(v[i]);
      if (b >= low && b <= high) mass[(b - low) >> shift] += counted ? 1.0 : (double)v[i];
    }
    int32_t at = -1; // the lowest bin that is reached and not empty
    double above = 0, held = 0;
    for (int32_t b = (high - low) >> shift; b >= 0 && held < need; b--) {
      if (mass[b] <= 0) continue;
      above = held, held += mass[b], at = b;
    }
    if (at < 0) return (struct edge){floor, (double)n};
    low += at << shift;
    if (shift == 0) return (struct edge){from_bits(low), ceil((need - above) / (counted ? 1.0 : (double)from_bits(low)))};
    int32_t last = low + ((1 << shift) - 1);
    high = last < high ? last : high;
    need -= above;
  }
}

// keep drops what lies beyond the edge, in place, and returns what is left.
INLINE int64_t keep(int32_t *ids, float *values, int64_t n, struct edge e) {
  int64_t kept = 0;
  for (int64_t i = 0; i < n; i++) {
    if (values[i] < e.value || (values[i] == e.value && e.ties-- <= 0)) continue;
    ids[kept] = ids[i], values[kept++] = values[i];
  }
  return kept;
}

// A group is what gather skips at once where nothing in it can stay.
#define GROUP 64

INLINE float largest(const float *w, int64_t n) {
  float m = 0;
  for (int64_t i = 0; i < n; i++) m = w[i] > m ? w[i] : m;
  return m;
}

// gather lists the weights of at least floor, which is positive.
INLINE int64_t gather(const float *w, int64_t n, float floor, int32_t *ids, float *values) {
  int64_t found = 0;
  for (int64_t j = 0; j < n; j += GROUP) {
    int64_t m = n - j < GROUP ? n - j : GROUP;
    if (largest(w + j, m) < floor) continue;
    for (int64_t i = j; i < j + m; i++) {
      ids[found] = (int32_t)i, values[found] = w[i];
      found += w[i] >= floor;
    }
  }
  return found;
}

INLINE int64_t spec_cut_body(float *w, int64_t n, double sum, int64_t k, double p, float floor, int32_t *ids,
                             float *values, double *total) {
  // No candidate is lost to the floor. The k-th largest weight is at least the
  // k-th largest of the groups' maxima; and as many weights as there are, each
  // below (1 - p) / n of the sum, make up no more than the mass that top-p may
  // drop.
  float low = from_bits(1);
  if (k > 0) {
    int64_t groups = 0;
    for (int64_t j = 0; j < n; j += GROUP) values[groups++] = largest(w + j, n - j < GROUP ? n - j : GROUP);
    if (k <= groups) low = find_edge(values, groups, 0, (double)k, 1).value;
  } else {
    if (p < 1) low = (float)((1 - p) * sum / (double)n * 0.999999);
    if (low < floor) low = floor;
  }
  if (bits(low) < 1) low = from_bits(1);
  int64_t kept = gather(w, n, low, ids, values);
  if (k > 0) {
    if (k < kept) {
      struct edge e = find_edge(values, kept, low, (double)k, 1);
      kept = keep(ids, values, kept, (struct edge){e.value, (double)n});
    }
    sum = 0;
    for (int64_t i = 0; i < kept; i++) sum += values[i];
  }
  if (p < 1) kept = keep(ids, values, kept, find_edge(values, kept, low, p * sum, 0));
  if (floor > 0) kept = keep(ids, values, kept, (struct edge){floor, (double)n});
  memset(w, 0, (size_t)n * sizeof *w);
  *total = 0;
  for (int64_t i = 0; i < kept; i++) {
    w[ids[i]] = values[i];
    *total += values[i];
  }
  return kept;
}
VERSIONS(int64_t, spec_cut,
         (float *w, int64_t n, double sum, int64_t k, double p, float floor, int32_t *ids, float *values, double *total),
         (w, n, sum, k, p, floor, ids, values, total))

INLINE double spec_overlap_body(const float *p, double p_sum, const float *q, double q_sum, int64_t n) {
  double ip = 1 / p_sum, iq = 1 / q_sum, sum = 0;
  for (int64_t i = 0; i < n; i++) sum += fmin((double)p[i] * ip, (double)q[i] * iq);
  return sum;
}
VERSIONS(double, spec_overlap, (const float *p, double p_sum, const float *q, double q_sum, int64_t n),
         (p, p_sum, q, q_sum, n))

INLINE double surplus(const float *p, double ip, const float *q, double iq, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += fmax((double)q[i] * iq - (double)p[i] * ip, 0);
  return sum;
}

INLINE double spec_surplus_body(const float *p, double p_sum, const float *q, double q_sum, int64_t n, double *blocks) {
  double ip = 1 / p_sum, iq = 1 / q_sum, sum = 0;
  int64_t j = 0;
  for (; j + SPEC_BLOCK <= n; j += SPEC_BLOCK) sum += *blocks++ = surplus(p + j, ip, q + j, iq, SPEC_BLOCK);
  if (j < n) sum += *blocks = surplus(p + j, ip, q + j, iq, n - j);
  return sum;
}
VERSIONS(double, spec_surplus, (const float *p, double p_sum, const float *q, double q_sum, int64_t n, double *blocks),
         (p, p_sum, q, q_sum, n, blocks))
