// Attention on one level; attention.c says what is computed when.
#include "attention_internal.h"

#include <math.h>

// One head of a query or key: the norm, the rotation, then times scale; width
// floats, zeros behind the head size.
static void prepare_head(const dm_attention *a, const float *x, const float *norm, int32_t position,
                         float scale, float *y) {
  size_t size = (size_t)a->head_size, whole = size / DM_LANES * DM_LANES, rest = size - whole;
  float factor = 1;
  if (norm != NULL) {
    v16 squares = v_zero();
    for (size_t i = 0; i < whole; i += DM_LANES) {
      v16 v = v_load(x + i);
      squares = v_fma(v, v, squares);
    }
    if (rest) {
      v16 v = v_load_n(x + whole, rest);
      squares = v_fma(v, v, squares);
    }
    factor = 1 / sqrtf(v_sum(squares) / (float)size + a->norm_epsilon);
  }
  for (size_t i = 0; i < size; i += DM_LANES) {
    size_t n = size - i < DM_LANES ? size - i : DM_LANES;
    v16 v = n < DM_LANES ? v_load_n(x + i, n) : v_load(x + i);
    if (norm != NULL) {
      v16 w = n < DM_LANES ? v_load_n(norm + i, n) : v_load(norm + i);
      v = v_mul(v_mul(v, v_set(factor)), w);
    }
    v_store(y + i, v);
  }
  size_t half = (size_t)a->rotary_dim / 2;
  if (half) {
    const float *cos = a->cos + (size_t)position * half, *sin = a->sin + (size_t)position * half;
    size_t step = a->rotary_interleaved ? 2 : 1, other = a->rotary_interleaved ? 1 : half;
    for (size_t i = 0; i < half; i++) {
      float *p = y + i * step, even = p[0], odd = p[other];
      p[0] = s_fma(even, cos[i], -(odd * sin[i]));
      p[other] = s_fma(odd, cos[i], even * sin[i]);
    }
  }
  if (scale != 1)
    for (size_t i = 0; i < size; i += DM_LANES) v_store(y + i, v_mul(v_load(y + i), v_set(scale)));
}

// A head of a key or value as integers of 8 bits, to the nearest, ties to the even one.
static void narrow_head(const float *x, const float *scale, size_t size, int8_t *y) {
  for (size_t i = 0; i < size; i++) {
    float n = rintf(x[i] / scale[i]);
    n = n > -128 ? n : -128; // also what is no number
    y[i] = (int8_t)(n < 127 ? n : 127);
  }
}

// The keys or values of one KV head at some positions of a cache of 8 bits, width floats
// from one to the next.
static void widen(const int8_t *cache, const float *scale, size_t size, size_t width,
                  const size_t *at, int from, int to, float *y) {
  for (int j = from; j < to; j++) {
    const int8_t *x = cache + at[j];
    float *row = y + (size_t)j * width;
    for (size_t i = 0; i < size; i++) row[i] = (float)x[i] * scale[i];
  }
}

// Writes a token's keys and values into the cache and its queries to q, where KV
// heads are `tokens` groups apart.
static void prepare(const dm_attention *a, size_t token, int32_t position, size_t slot, float *q,
                    size_t tokens) {
  size_t size = (size_t)a->head_size, width = dm_attention_width(a);
  size_t kv_heads = (size_t)a->kv_heads, group = (size_t)a->heads / kv_heads;
  float scale = a->scale != 0 ? a->scale : 1 / sqrtf((float)a->head_size);
  for (size_t h = 0; h < kv_heads; h++) {
    if (slot != SIZE_MAX) {
      float head[DM_ATTENTION_WIDEST];
      prepare_head(a, a->key + token * a->key_stride + h * size, a->k_norm, position, 1, head);
      size_t to = (slot * kv_heads + h) * size;
      const float *value = a->value + token * a->value_stride + h * size;
      if (a->k_scale != NULL) {
        narrow_head(head, a->k_scale + h * size, size, (int8_t *)a->key_cache + to);
        narrow_head(value, a->v_scale + h * size, size, (int8_t *)a->value_cache + to);
      } else {
        memcpy((float *)a->key_cache + to, head, size * sizeof *head);
        memcpy((float *)a->value_cache + to, value, size * sizeof *value);
      }
    }
    for (size_t g = 0; g < group; g++)
      prepare_head(a, a->query + token * a->query_stride + (h * group + g) * size, a->q_norm,
                   position, scale, q + ((h * tokens + token) * group + g) * width);
  }
}

// Scores of R rows with four keys. A score is summed in 16 lanes over the channels,
// then over the lanes in v_sum's order.
V_INLINE void score(const int R, const float *q, size_t width, const float *k0, const float *k1,
                    const float *k2, const float *k3, size_t size, float *s) {
  v16 sum[4][4];
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = sum[r][2] = sum[r][3] = v_zero();
  size_t i = 0;
  for (; i + DM_LANES <= size; i += DM_LANES) {
    v16 a = v_load(k0 + i), b = v_load(k1 + i), c = v_load(k2 + i), d = v_load(k3 + i);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      v16 v = v_load(q + (size_t)r * width + i);
      sum[r][0] = v_fma(v, a, sum[r][0]);
      sum[r][1] = v_fma(v, b, sum[r][1]);
      sum[r][2] = v_fma(v, c, sum[r][2]);
      sum[r][3] = v_fma(v, d, sum[r][3]);
    }
  }
  if (i < size) {
    size_t n = size - i;
    v16 a = v_load_n(k0 + i, n), b = v_load_n(k1 + i, n), c = v_load_n(k2 + i, n),
        d = v_load_n(k3 + i, n);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      v16 v = v_load(q + (size_t)r * width + i);
      sum[r][0] = v_fma(v, a, sum[r][0]);
      sum[r][1] = v_fma(v, b, sum[r][1]);
      sum[r][2] = v_fma(v, c, sum[r][2]);
      sum[r][3] = v_fma(v, d, sum[r][3]);
    }
  }
#if defined(DM_SIMD_AVX512)
  if (R == 4) {
    v_sums16(s, DM_ATTENTION_PART, sum);
    return;
  }
#endif
#pragma GCC unroll 4
  for (int r = 0; r < R; r++)
    v_sums4(s + (size_t)r * DM_ATTENTION_PART, sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}

// Rows that one call of score takes, by the registers of the level.
#if defined(DM_SIMD_AVX512)
#define SCORE_ROWS 4
#else
#define SCORE_ROWS 1
#endif

static void scores(const dm_attention *a, const dm_attention_rows *rows, int from, int to) {
  size_t size = (size_t)a->head_size, width = dm_attention_width(a);
  for (int j = from & ~3; j < to; j += 4) {
    // Keys of a group that lie outside are read as their neighbours: nobody takes
    // these scores.
    const float *k[4];
    for (int i = 0; i < 4; i++) {
      int p = j + i < from ? from : j + i < to ? j + i : to - 1;
      k[i] = rows->keys + rows->at[p];
    }
    // Rows of a cache lie apart, which hides them from the processor's own
    // prefetching: ask for the keys of two groups on, and for values of this one.
    for (int i = j + 8; i < j + 12 && i < to; i++)
      for (size_t c = 0; c < size; c += DM_LANES) v_prefetch(rows->keys + rows->at[i] + c);
    for (int i = j < from ? from : j; i < j + 4 && i < to; i++)
      for (size_t c = 0; c < size; c += DM_LANES) v_prefetch_far(rows->values + rows->at[i] + c);
    for (size_t r = 0; r < rows->count;) {
      size_t n = rows->count - r < SCORE_ROWS ? rows->count - r : SCORE_ROWS;
      if (rows->to[r + n - 1] > j && rows->from[r] < j + 4) {
        const float *q = rows->q + r * width;
        float *s = rows->scores + r * DM_ATTENTION_PART + (size_t)j;
        switch (n) {
        case 1: score(1, q, width, k[0], k[1], k[2], k[3], size, s); break;
#if SCORE_ROWS == 4
        case 2: score(2, q, width, k[0], k[1], k[2], k[3], size, s); break;
        case 3: score(3, q, width, k[0], k[1], k[2], k[3], size, s); break;
        case 4: score(4, q, width, k[0], k[1], k[2], k[3], size, s); break;
#endif
        }
      }
      r += n;
    }
  }
}

// Scores of one row to e^(score - greatest); their sum runs in 16 lanes by position.
static void soften(const dm_attention *a, float *s, int from, int to, float *most, float *sum) {
  v16 greatest = v_set(-INFINITY);
  for (int j = from & ~15; j < to; j += DM_LANES) {
    v16 v = v_load(s + j);
    if (a->softcap != 0)
      v = v_mul(v_set(a->softcap), v_tanh(v_div(v, v_set(a->softcap))));
    v = v_between(v, v_set(-INFINITY), from > j ? (size_t)(from - j) : 0,
                  to - j < DM_LANES ? (size_t)(to - j) : DM_LANES);
    greatest = v_max(greatest, v);
    v_store(s + j, v);
  }
  *most = v_most(greatest);
  v16 total = v_zero(), m = v_set(*most);
  for (int j = from & ~15; j < to; j += DM_LANES) {
    v16 p = v_exp_negative(v_sub(v_load(s + j), m));
    total = v_add(total, p);
    v_store(s + j, p);
  }
  *sum = v_sum(total);
}

// Adds weights times values of positions from to to - 1 to R rows and N vectors of
// the output, beginning at channel `column`; of the last one only the first `last`
// lanes where that is not 0.
V_INLINE void add_values(const int R, const int N, size_t last, const float *values,
                         const size_t *at, const float *weights, int from, int to, float *out,
                         size_t width) {
  v16 sum[6][4];
#pragma GCC unroll 6
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) sum[r][n] = v_load(out + (size_t)r * width + DM_LANES * n);
  for (int j = from; j < to; j++) {
    const float *v = values + at[j];
    v16 p[6];
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) p[r] = v_set(weights[r * DM_ATTENTION_PART + j]);
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
      v16 x = last && n == N - 1 ? v_load_n(v + DM_LANES * n, last) : v_load(v + DM_LANES * n);
#pragma GCC unroll 6
      for (int r = 0; r < R; r++) sum[r][n] = v_fma(p[r], x, sum[r][n]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) v_store(out + (size_t)r * width + DM_LANES * n, sum[r][n]);
}

// Rows and vectors that one call of add_values takes, by the registers.
#if defined(DM_SIMD_AVX512)
#define VALUE_ROWS 6
#define VALUE_VECTORS 4
#elif defined(DM_SIMD_PORTABLE)
#define VALUE_ROWS 1
#define VALUE_VECTORS 1
#else
#define VALUE_ROWS 3
#define VALUE_VECTORS 2
#endif

#define ADD_VALUES(R, N, last)                                                                     \
  add_values(R, N, last, values, rows->at, weights, from, to, out, width)

// The same for `count` rows from row r, which all see these positions.
static void add_rows(const dm_attention *a, const dm_attention_rows *rows, size_t r, size_t count,
                     size_t column, int vectors, size_t last, int from, int to) {
  if (from >= to) return;
  size_t width = dm_attention_width(a);
  const float *values = rows->values + column, *weights = rows->scores + r * DM_ATTENTION_PART;
  float *out = rows->out + r * width + column;
  if (last) {
    if (count == VALUE_ROWS) ADD_VALUES(VALUE_ROWS, 1, last);
    else
      for (; count > 0; count--, weights += DM_ATTENTION_PART, out += width) ADD_VALUES(1, 1, last);
    return;
  }
#define EACH_COUNT(N)                                                                              \
  switch (count) {                                                                                 \
  case 1: ADD_VALUES(1, N, 0); break;                                                              \
  EACH_MORE(N)                                                                                     \
  }
#if VALUE_ROWS == 3
#define EACH_MORE(N)                                                                               \
  case 2: ADD_VALUES(2, N, 0); break;                                                              \
  case 3: ADD_VALUES(3, N, 0); break;
#elif VALUE_ROWS == 6
#define EACH_MORE(N)                                                                               \
  case 2: ADD_VALUES(2, N, 0); break;                                                              \
  case 3: ADD_VALUES(3, N, 0); break;                                                              \
  case 4: ADD_VALUES(4, N, 0); break;                                                              \
  case 5: ADD_VALUES(5, N, 0); break;                                                              \
  case 6: ADD_VALUES(6, N, 0); break;
#else
#define EACH_MORE(N)
#endif
  if (vectors == VALUE_VECTORS) {
    EACH_COUNT(VALUE_VECTORS)
  } else {
    EACH_COUNT(1)
  }
}

static void values(const dm_attention *a, const dm_attention_rows *rows, int first, int end) {
  size_t size = (size_t)a->head_size;
  const int step = 32; // positions whose values stay in the first cache
  for (int j = first; j < end; j = (j & ~(step - 1)) + step) {
    int stop = (j & ~(step - 1)) + step < end ? (j & ~(step - 1)) + step : end;
    for (size_t column = 0; column < size;) {
      size_t left = size - column, last = left < DM_LANES ? left : 0;
      int vectors = left >= VALUE_VECTORS * DM_LANES ? VALUE_VECTORS : 1;
      for (size_t r = 0; r < rows->count;) {
        size_t n = rows->count - r < VALUE_ROWS ? rows->count - r : VALUE_ROWS;
        int from[VALUE_ROWS] = {0}, to[VALUE_ROWS] = {0};
        for (size_t i = 0; i < n; i++) {
          from[i] = rows->from[r + i] > j ? rows->from[r + i] : j;
          to[i] = rows->to[r + i] < stop ? rows->to[r + i] : stop;
        }
        // Positions that all these rows see go together, others row by row; each
        // row's in their order.
        int begin = from[n - 1], over = to[0];
        if (begin >= over) begin = over = stop;
        for (size_t i = 0; from[0] < begin && i < n; i++)
          add_rows(a, rows, r + i, 1, column, vectors, last, from[i],
                   to[i] < begin ? to[i] : begin);
        add_rows(a, rows, r, n, column, vectors, last, begin, over);
        for (size_t i = 0; to[n - 1] > over && i < n; i++)
          add_rows(a, rows, r + i, 1, column, vectors, last, over, to[i]);
        r += n;
      }
      column += (size_t)vectors * DM_LANES;
    }
  }
}

// Adds what scores get by head and distance.
static void add_bias(const dm_attention *a, const dm_attention_rows *rows) {
  size_t group = (size_t)(a->heads / a->kv_heads);
  for (size_t r = 0; r < rows->count; r++) {
    size_t head = (size_t)rows->kv_head * group + (rows->row + r) % group;
    int64_t own = rows->own + (int64_t)((rows->row + r) / group);
    const float *bias = a->bias + head * (size_t)a->distances;
    float *s = rows->scores + r * DM_ATTENTION_PART;
    for (int j = rows->from[r]; j < rows->to[r]; j++) s[j] += bias[own - j];
  }
}

// One part of the positions for some rows.
static void attend(const dm_attention *a, const dm_attention_rows *rows) {
  int first = rows->from[0], end = rows->to[rows->count - 1];
  scores(a, rows, first, end);
  if (a->bias != NULL) add_bias(a, rows);
  for (size_t r = 0; r < rows->count; r++)
    if (rows->from[r] < rows->to[r])
      soften(a, rows->scores + r * DM_ATTENTION_PART, rows->from[r], rows->to[r], rows->most + r,
             rows->sum + r);
  memset(rows->out, 0, rows->count * dm_attention_width(a) * sizeof *rows->out);
  values(a, rows, first, end);
}

V_INLINE float s_exp_negative(float x) {
  float lanes[DM_LANES];
  v_store(lanes, v_exp_negative(v_set(x)));
  return lanes[0];
}

// Adds what came of a row's next part to what came of those before it.
static void merge(const dm_attention *a, float *out, float *most, float *sum, const float *next,
                  float next_most, float next_sum) {
  float greatest = *most > next_most ? *most : next_most;
  float keep = s_exp_negative(*most - greatest), take = s_exp_negative(next_most - greatest);
  *most = greatest;
  *sum = s_fma(*sum, keep, next_sum * take);
  v16 k = v_set(keep), t = v_set(take);
  for (size_t i = 0; i < dm_attention_width(a); i += DM_LANES)
    v_store(out + i, v_fma(v_load(out + i), k, v_mul(v_load(next + i), t)));
}

// The output of a row: the sum over values by the sum of weights.
static void finish(const dm_attention *a, size_t head, const float *out, float most, float sum,
                   float *y) {
  float keep = 1;
  if (a->sink != NULL) {
    float greatest = most > a->sink[head] ? most : a->sink[head];
    keep = s_exp_negative(most - greatest);
    sum = s_fma(sum, keep, s_exp_negative(a->sink[head] - greatest));
  }
  v16 by = v_set(keep / sum);
  size_t size = (size_t)a->head_size, i = 0;
  for (; i + DM_LANES <= size; i += DM_LANES) v_store(y + i, v_mul(v_load(out + i), by));
  if (i < size) v_store_n(y + i, v_mul(v_load(out + i), by), size - i);
}
