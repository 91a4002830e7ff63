// Plain loops that a compiler turns into vector code under -O3 -ffast-math,
// compiled once for every instruction set below. -ffast-math assumes that
// there are no NaN and no infinities, so what may be one is looked at as an
// integer, and everything after spec_peak may rely on finite numbers and -Inf.
#include "kernel.h"

#include <float.h>
#include <math.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__)
#define V4 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define V3 __attribute__((target("avx2,fma")))
static int level;
int spec_level(int at_most) {
  __builtin_cpu_init();
  level = 1;
  if (at_most >= 3 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) level = 3;
  if (at_most >= 4 && level == 3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    level = 4;
  return level;
}
__attribute__((constructor)) static void choose(void) { spec_level(4); }
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
int spec_level(int at_most) {
  (void)at_most;
  return 1;
}
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

// An edge is where a truncation falls: keys above at stay, and of those equal
// to it the first so many.
struct edge {
  int32_t at;
  int64_t ties;
};

#define BINS 1024
#define FEW_BINS 64

// find_edge returns the edge above which there is at least need: of keys, or of
// the sum of the floats that they are the keys of. It is a radix selection: a
// histogram over the leading bits, then one over the bits that follow within
// the bin in which the edge falls, until the bin is one key.
INLINE struct edge find_edge(const int32_t *keys, int64_t n, double need, int counted) {
  double mass[BINS];
  const uint32_t bins = n < 200 ? FEW_BINS : BINS;
  int32_t low = INT32_MAX, high = INT32_MIN;
  for (int64_t i = 0; i < n; i++) {
    low = keys[i] < low ? keys[i] : low;
    high = keys[i] > high ? keys[i] : high;
  }
  for (;;) {
    uint32_t range = (uint32_t)high - (uint32_t)low, shift = 0;
    while (range >> shift >= bins) shift++;
    memset(mass, 0, ((range >> shift) + 1) * sizeof *mass);
    for (int64_t i = 0; i < n; i++) {
      uint32_t b = (uint32_t)keys[i] - (uint32_t)low;
      if (b <= range) mass[b >> shift] += counted ? 1.0 : (double)from_bits(keys[i]);
    }
    uint32_t at = range >> shift;
    double above = 0, held = mass[at];
    while (held < need && at > 0) above = held, held += mass[--at];
    while (mass[at] <= 0) at++; // need is above everything, by a rounding
    low += (int32_t)(at << shift);
    if (shift == 0) return (struct edge){low, (int64_t)ceil((need - above) / (counted ? 1.0 : (double)from_bits(low)))};
    need -= above;
    uint32_t last = range - (at << shift), width = (1u << shift) - 1;
    high = low + (int32_t)(last < width ? last : width);
  }
}

// keep drops what lies beyond the edge, in place, and returns what is left.
// What stays is anyone's guess: there is no branch on it.
INLINE int64_t keep(int32_t *ids, int32_t *keys, int64_t n, struct edge e) {
  int64_t kept = 0;
  for (int64_t i = 0; i < n; i++) {
    int32_t id = ids[i], k = keys[i];
    int64_t tie = k == e.at;
    ids[kept] = id, keys[kept] = k;
    kept += (k > e.at) | (tie & (e.ties > 0));
    e.ties -= tie;
  }
  return kept;
}

// For every byte: the places of its bits that are set, and how many there are.
static uint8_t places[256][8], ones[256];
__attribute__((constructor)) static void fill_places(void) {
  for (int byte = 0; byte < 256; byte++)
    for (int bit = 0; bit < 8; bit++)
      if (byte >> bit & 1) places[byte][ones[byte]++] = (uint8_t)bit;
}

// gather lists the values whose keys are at least floor, without a branch that
// would have to guess where they are: of every eight, all places are written,
// and those that do not count are written over. So up to SPEC_SLACK ids more
// are written than there are values.
INLINE int64_t gather(const float *v, int64_t n, int32_t floor, int32_t *ids, int32_t *keys) {
  int64_t found = 0;
  for (int64_t j = 0; j < n; j += 32) {
    uint32_t mask = 0;
    if (j + 32 <= n)
      for (int i = 0; i < 32; i++) mask |= (uint32_t)(key(v[j + i]) >= floor) << i;
    else
      for (int i = 0; i < n - j; i++) mask |= (uint32_t)(key(v[j + i]) >= floor) << i;
    if (!mask) continue;
    for (int32_t at = (int32_t)j; at < (int32_t)j + 32; at += 8, mask >>= 8) {
      int32_t in[8]; // beside memory that ids might share
      for (int i = 0; i < 8; i++) in[i] = at + places[mask & 255][i];
      memcpy(ids + found, in, sizeof in);
      found += ones[mask & 255];
    }
  }
  for (int64_t i = 0; i < found; i++) keys[i] = key(v[ids[i]]);
  return found;
}

#define GROUP 64

INLINE int32_t largest(const float *v, int64_t n) {
  int32_t most = INT32_MIN;
  for (int64_t i = 0; i < n; i++) most = key(v[i]) > most ? key(v[i]) : most;
  return most;
}

// top_k lists the k largest logits and all that tie with the k-th. The k-th
// largest is no less than the k-th largest of the maxima of groups, so that
// nothing below that has to be looked at.
INLINE int64_t top_k(const float *l, int64_t n, int64_t k, int32_t *ids, int32_t *keys) {
  int64_t groups = 0;
  int32_t floor = 1 - INFINITE;
  for (int64_t j = 0; j < n; j += GROUP) keys[groups++] = largest(l + j, n - j < GROUP ? n - j : GROUP);
  if (k <= groups) {
    int32_t kth = find_edge(keys, groups, (double)k, 1).at;
    floor = kth > floor ? kth : floor;
  }
  int64_t kept = gather(l, n, floor, ids, keys);
  if (k >= kept) return kept;
  struct edge e = find_edge(keys, kept, (double)k, 1);
  return keep(ids, keys, kept, (struct edge){e.at, n});
}

// total is about the sum that exps returns, of weights that nobody keeps. The
// argument is taken in float, which is twice as fast: a weight of 2^x is wrong by
// a share of |x| / 2^24 at most, in either direction, and those with a large |x|
// weigh next to nothing. The sum is right to 1e-6.
INLINE double total(const float *restrict l, int64_t n, double top, double scale) {
  const float t = (float)top, s = (float)scale;
  double sum = 0;
  for (int64_t j = 0; j < n; j += SPEC_BLOCK) {
    int64_t m = n - j < SPEC_BLOCK ? n - j : SPEC_BLOCK;
    float part = 0;
    for (int64_t i = 0; i < m; i++) {
      float d = l[j + i] - t, x = d * s;
      x = x < -126.0f ? -126.0f : x;
      int32_t e = (int32_t)(x - 0.5f);
      float r = x - (float)e, y = 1.5403530e-4f;
      y = y * r + 1.3333558e-3f;
      y = y * r + 9.6181291e-3f;
      y = y * r + 5.5504109e-2f;
      y = y * r + 2.4022651e-1f;
      y = y * r + 6.9314718e-1f;
      y = y * r + 1.0f;
      int32_t possible = -(bits(l[j + i]) != MINUS_INFINITY);
      part += y * from_bits(((e + 127) << 23) & possible);
    }
    sum += part;
  }
  return sum;
}

// weigh writes the keys of the weights of the listed tokens and returns their
// sum.
INLINE double weigh(const float *l, const int32_t *ids, int64_t n, double top, double scale, int32_t *keys) {
  float in[SPEC_BLOCK], out[SPEC_BLOCK];
  double sum = 0;
  for (int64_t j = 0; j < n; j += SPEC_BLOCK) {
    int64_t m = n - j < SPEC_BLOCK ? n - j : SPEC_BLOCK;
    for (int64_t i = 0; i < m; i++) in[i] = l[ids[j + i]];
    sum += exps(in, m, top, scale, out);
    for (int64_t i = 0; i < m; i++) keys[j + i] = bits(out[i]);
  }
  return sum;
}

// common lists the tokens that weigh at least least, and perhaps some that
// weigh a little less.
INLINE int64_t common(const float *l, int64_t n, double top, double scale, double least, int32_t *ids, int32_t *keys) {
  int32_t floor = key((float)fmax(top + log2(least) / scale, -FLT_MAX)) - 1;
  return gather(l, n, floor < 1 - INFINITE ? 1 - INFINITE : floor, ids, keys);
}

INLINE int64_t spec_truncate_body(const float *l, int64_t n, double top, double scale, int64_t k, double p, float least,
                                  int32_t *ids, int32_t *keys, float *w, double *sum) {
  int64_t kept = 0;
  double mass = 0;
  if (k > 0) {
    kept = top_k(l, n, k, ids, keys);
    mass = weigh(l, ids, kept, top, scale, keys);
  } else {
    // n weights, each below (1 - p) / n of the mass, make up no more than what
    // top-p drops: none of them can be in the nucleus. Mostly it lies far above
    // that, which its own mass then shows.
    if (p < 1) mass = total(l, n, top, scale);
    double rare = (1 - p) * mass / (double)n * 0.999999;
    for (double above = 16; above >= 1; above /= 16) {
      double floor = fmax(fmax(rare * above, least), FLT_MIN);
      kept = common(l, n, top, scale, floor, ids, keys);
      double held = weigh(l, ids, kept, top, scale, keys);
      if (held >= p * mass || floor > rare * above) break;
    }
  }
  if (p < 1) kept = keep(ids, keys, kept, find_edge(keys, kept, p * mass, 0));
  int32_t floor = bits(least) > 1 ? bits(least) : 1;
  kept = keep(ids, keys, kept, (struct edge){floor, n});
  *sum = 0;
  for (int64_t i = 0; i < kept; i++) {
    w[ids[i]] = from_bits(keys[i]);
    *sum += from_bits(keys[i]);
  }
  return kept;
}
VERSIONS(int64_t, spec_truncate,
         (const float *l, int64_t n, double top, double scale, int64_t k, double p, float least, int32_t *ids,
          int32_t *keys, float *w, double *sum),
         (l, n, top, scale, k, p, least, ids, keys, w, sum))

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

INLINE double spec_overlaps_body(const float *p, double p_sum, const float *q, double q_sum, double c, int64_t n,
                                 double *scaled) {
  double ip = 1 / p_sum, iq = 1 / q_sum, one = 0, other = 0;
  for (int64_t i = 0; i < n; i++) {
    double at = (double)p[i] * ip, to = (double)q[i] * iq;
    one += fmin(at, to);
    other += fmin(at, c * to);
  }
  *scaled = other;
  return one;
}
VERSIONS(double, spec_overlaps,
         (const float *p, double p_sum, const float *q, double q_sum, double c, int64_t n, double *scaled),
         (p, p_sum, q, q_sum, c, n, scaled))

#include "philox.h"

// still_candidates writes those of n <= LISTED tokens to ids that may win with
// both of their numbers known to 32 bits: their group's smallest, and their own
// distance from it. It returns how many there are.
INLINE int64_t still_candidates(const uint32_t *base, const float *w, double limit, const uint32_t *x, int64_t n, int32_t *ids) {
  uint32_t group[LISTED] = {0}, token[LISTED] = {0}, e[LISTED], first[LISTED], own[LISTED], other[LISTED];
  for (int64_t i = 0; i < n; i++) token[i] = x[i], group[i] = x[i] / SPEC_GROUP;
  listed_words(base, group, 0, e, first);
  listed_words(base, token, 1, own, other);
  int64_t found = 0;
  for (int64_t i = 0; i < n; i++) {
    double least = (double)e[i] * (0x1p-32 / SPEC_GROUP);
    if (x[i] % SPEC_GROUP != first[i] % SPEC_GROUP) least += (double)own[i] * 0x1p-32;
    if (least <= limit * (double)w[x[i]] * (1 + 1e-6)) ids[found++] = (int32_t)x[i];
  }
  return found;
}

INLINE int64_t spec_candidates_body(const uint32_t *base, const float *w, int64_t n, const double *bound, int64_t from,
                                    int64_t to, double limit, int32_t *ids) {
  const int64_t groups = SPEC_BLOCK / SPEC_GROUP, last = (n + SPEC_GROUP - 1) / SPEC_GROUP;
  const double slack = 1 + 1e-6;
  int64_t found = 0, end = to * groups < last ? to * groups : last, n_listed = 0;
  uint32_t listed[LISTED];
  for (int64_t g = from * groups; g < end; g += RACERS) {
    int64_t m = end - g < RACERS ? end - g : RACERS;
    double all = 0;
    for (int64_t b = g / groups; b <= (g + m - 1) / groups; b++) all += bound[b];
    if (all <= 0) continue;
    uint32_t high[RACERS];
    first_words(base, (uint32_t)g, high);
    for (int64_t i = 0; i < m; i++) {
      // Without its lower bits the uniform is a little smaller: a bound as well.
      double e = (double)high[i] * (0x1p-32 / SPEC_GROUP), of = bound[(g + i) / groups];
      if (of <= 0 || e > limit * of * slack) continue;
      double least = e / limit / slack;
      int32_t floor = least < FLT_MIN ? 1 : bits((float)least);
      int64_t at = (g + i) * SPEC_GROUP, len = n - at < SPEC_GROUP ? n - at : SPEC_GROUP;
      uint32_t mask = 0;
      if (len == SPEC_GROUP)
        for (int j = 0; j < SPEC_GROUP; j++) mask |= (uint32_t)(bits(w[at + j]) >= floor) << j;
      else
        for (int j = 0; j < len; j++) mask |= (uint32_t)(bits(w[at + j]) >= floor) << j;
      for (; mask; mask &= mask - 1) {
        listed[n_listed++] = (uint32_t)at + (uint32_t)__builtin_ctz(mask);
        if (n_listed == LISTED) found += still_candidates(base, w, limit, listed, n_listed, ids + found), n_listed = 0;
      }
    }
  }
  if (n_listed) found += still_candidates(base, w, limit, listed, n_listed, ids + found);
  return found;
}
VERSIONS(int64_t, spec_candidates,
         (const uint32_t *base, const float *w, int64_t n, const double *bound, int64_t from, int64_t to, double limit,
          int32_t *ids),
         (base, w, n, bound, from, to, limit, ids))
