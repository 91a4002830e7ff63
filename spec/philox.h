// Philox4x32-10, the generator behind coins.go (Salmon et al. 2011, "Parallel
// Random Numbers: As Easy as 1, 2, 3"), for many counters at a time. It is a part
// of kernel.c, whose level chooses the version.
#define PHILOX0 0xD2511F53u
#define PHILOX1 0xCD9E8D57u
#define WEYL0 0x9E3779B9u
#define WEYL1 0xBB67AE85u

// base is the key and the first two words of all counters. first_words writes the
// second words of the blocks of RACERS counters, (g, 0), (g + 1, 0) and so on: the
// upper halves of the uniforms behind the smallest numbers of the groups from g on.
#define RACERS 64

// listed_words writes the second and the third words of the blocks of LISTED
// counters (index[i], place).
#define LISTED 16

static void philox_plain(const uint32_t *base, uint32_t a2, uint32_t a3, uint32_t *second, uint32_t *third) {
  uint32_t a0 = base[2], a1 = base[3], k0 = base[0], k1 = base[1];
  for (int round = 0; round < 10; round++, k0 += WEYL0, k1 += WEYL1) {
    uint64_t x = (uint64_t)a0 * PHILOX0, y = (uint64_t)a2 * PHILOX1;
    a0 = (uint32_t)(y >> 32) ^ a1 ^ k0, a2 = (uint32_t)(x >> 32) ^ a3 ^ k1;
    a1 = (uint32_t)y, a3 = (uint32_t)x;
  }
  *second = a1, *third = a2;
}

static void first_words_plain(const uint32_t *base, uint32_t g, uint32_t *high) {
  uint32_t third;
  for (uint32_t i = 0; i < RACERS; i++) philox_plain(base, g + i, 0, &high[i], &third);
}

static void listed_words_plain(const uint32_t *base, const uint32_t *index, uint32_t place, uint32_t *second, uint32_t *third) {
  for (uint32_t i = 0; i < LISTED; i++) philox_plain(base, index[i], place, &second[i], &third[i]);
}

#if defined(__x86_64__) && defined(__GNUC__)
// Two vectors of counters, a and b, go side by side, which hides how long a
// multiplication takes. It multiplies the lower halves of 64-bit lanes; what is in
// the upper halves never matters.
typedef struct {
  __m512i a1, a2, b1, b2;
} words_v4;

V4 static inline words_v4 philox_v4(const uint32_t *base, __m512i a2, __m512i b2, __m512i place) {
  const __m512i m0 = _mm512_set1_epi64(PHILOX0), m1 = _mm512_set1_epi64(PHILOX1);
  __m512i a0 = _mm512_set1_epi64(base[2]), a1 = _mm512_set1_epi64(base[3]), a3 = place;
  __m512i b0 = a0, b1 = a1, b3 = a3;
  uint32_t k0 = base[0], k1 = base[1];
  for (int round = 0; round < 10; round++, k0 += WEYL0, k1 += WEYL1) {
    __m512i key0 = _mm512_set1_epi64(k0), key1 = _mm512_set1_epi64(k1);
    __m512i x = _mm512_mul_epu32(a0, m0), y = _mm512_mul_epu32(a2, m1);
    a0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(y, 32), a1, key0, 0x96);
    a2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(x, 32), a3, key1, 0x96);
    a1 = y, a3 = x;
    x = _mm512_mul_epu32(b0, m0), y = _mm512_mul_epu32(b2, m1);
    b0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(y, 32), b1, key0, 0x96);
    b2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(x, 32), b3, key1, 0x96);
    b1 = y, b3 = x;
  }
  return (words_v4){a1, a2, b1, b2};
}

V4 static inline void put_v4(uint32_t *to, __m512i a, __m512i b) {
  _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi64_epi32(a));
  _mm256_storeu_si256((__m256i *)(to + 8), _mm512_cvtepi64_epi32(b));
}

V4 static void first_words_v4(const uint32_t *base, uint32_t g, uint32_t *high) {
  for (uint32_t i = 0; i < RACERS; i += 16) {
    __m512i a2 = _mm512_add_epi64(_mm512_set1_epi64(g + i), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    words_v4 w = philox_v4(base, a2, _mm512_add_epi64(a2, _mm512_set1_epi64(8)), _mm512_setzero_si512());
    put_v4(high + i, w.a1, w.b1);
  }
}

V4 static void listed_words_v4(const uint32_t *base, const uint32_t *index, uint32_t place, uint32_t *second, uint32_t *third) {
  __m512i a2 = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)index));
  __m512i b2 = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)(index + 8)));
  words_v4 w = philox_v4(base, a2, b2, _mm512_set1_epi64(place));
  put_v4(second, w.a1, w.b1);
  put_v4(third, w.a2, w.b2);
}

typedef struct {
  __m256i a1, a2, b1, b2;
} words_v3;

V3 static inline words_v3 philox_v3(const uint32_t *base, __m256i a2, __m256i b2, __m256i place) {
  const __m256i m0 = _mm256_set1_epi64x(PHILOX0), m1 = _mm256_set1_epi64x(PHILOX1);
  __m256i a0 = _mm256_set1_epi64x(base[2]), a1 = _mm256_set1_epi64x(base[3]), a3 = place;
  __m256i b0 = a0, b1 = a1, b3 = a3;
  uint32_t k0 = base[0], k1 = base[1];
  for (int round = 0; round < 10; round++, k0 += WEYL0, k1 += WEYL1) {
    __m256i key0 = _mm256_set1_epi64x(k0), key1 = _mm256_set1_epi64x(k1);
    __m256i x = _mm256_mul_epu32(a0, m0), y = _mm256_mul_epu32(a2, m1);
    a0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(y, 32), a1), key0);
    a2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(x, 32), a3), key1);
    a1 = y, a3 = x;
    x = _mm256_mul_epu32(b0, m0), y = _mm256_mul_epu32(b2, m1);
    b0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(y, 32), b1), key0);
    b2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(x, 32), b3), key1);
    b1 = y, b3 = x;
  }
  return (words_v3){a1, a2, b1, b2};
}

V3 static inline void put_v3(uint32_t *to, __m256i a, __m256i b) {
  const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  a = _mm256_permutevar8x32_epi32(a, even), b = _mm256_permutevar8x32_epi32(b, even);
  _mm256_storeu_si256((__m256i *)to, _mm256_blend_epi32(a, b, 0xF0));
}

V3 static void first_words_v3(const uint32_t *base, uint32_t g, uint32_t *high) {
  for (uint32_t i = 0; i < RACERS; i += 8) {
    __m256i a2 = _mm256_add_epi64(_mm256_set1_epi64x(g + i), _mm256_setr_epi64x(0, 1, 2, 3));
    words_v3 w = philox_v3(base, a2, _mm256_add_epi64(a2, _mm256_set1_epi64x(4)), _mm256_setzero_si256());
    put_v3(high + i, w.a1, w.b1);
  }
}

V3 static void listed_words_v3(const uint32_t *base, const uint32_t *index, uint32_t place, uint32_t *second, uint32_t *third) {
  for (uint32_t i = 0; i < LISTED; i += 8) {
    __m256i a2 = _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(index + i)));
    __m256i b2 = _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(index + i + 4)));
    words_v3 w = philox_v3(base, a2, b2, _mm256_set1_epi64x(place));
    put_v3(second + i, w.a1, w.b1);
    put_v3(third + i, w.a2, w.b2);
  }
}

static void first_words(const uint32_t *base, uint32_t g, uint32_t *high) {
  if (level == 4)
    first_words_v4(base, g, high);
  else if (level == 3)
    first_words_v3(base, g, high);
  else
    first_words_plain(base, g, high);
}

static void listed_words(const uint32_t *base, const uint32_t *index, uint32_t place, uint32_t *second, uint32_t *third) {
  if (level == 4)
    listed_words_v4(base, index, place, second, third);
  else if (level == 3)
    listed_words_v3(base, index, place, second, third);
  else
    listed_words_plain(base, index, place, second, third);
}
#else
#define first_words first_words_plain
#define listed_words listed_words_plain
#endif
