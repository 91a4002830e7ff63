#include "attention.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "simd.h"

enum { PART = DM_ATTENTION_PART, ROWS = DM_ATTENTION_ROWS };

// Less than this many multiplications are not worth waking a thread for.
static const size_t little = 100000;
// Results of parts that wait to be merged: no more than this many floats at once.
static const size_t waiting = 8 << 20;

const char *dm_attention_refuses(const dm_attention *a) {
  if (a->heads <= 0 || a->kv_heads <= 0 || a->heads % a->kv_heads != 0)
    return "the number of KV heads does not divide the number of heads";
  if (a->head_size <= 0 || a->head_size > DM_ATTENTION_WIDEST)
    return "heads have no size, or more than 512 channels";
  if (a->window < 0) return "the window is negative";
  if (a->rotary_dim < 0 || a->rotary_dim % 2 != 0 || a->rotary_dim > a->head_size)
    return "the rotation covers an odd number of channels, or more than the head has";
  if (a->rotary_dim > 0 && (a->cos == NULL || a->sin == NULL))
    return "the rotation has no cosines or sines";
  if (a->blocks < 0 || a->block_size <= 0 || a->max_blocks < 0 || a->sequences < 0)
    return "the cache or the block table has no size";
  if (a->cross && (a->inputs == NULL || a->slots != NULL || a->copied > 0 || a->window > 0 || a->rotary_dim > 0 || a->sink != NULL || a->bias != NULL))
    return "attention to inputs has none, or something that belongs to a sequence's own positions";
  if ((a->k_scale == NULL) != (a->v_scale == NULL)) return "keys or values alone have scales";
  for (int i = 0; a->k_scale != NULL && i < a->kv_heads * a->head_size; i++)
    if (!(a->k_scale[i] > 0 && a->v_scale[i] > 0 && a->k_scale[i] < INFINITY && a->v_scale[i] < INFINITY))
      return "a scale of the cache is not a positive number";
  if (a->bias != NULL && a->distances <= 0) return "there is no distance to add something for";
  if (a->sequences > 0 && a->cumulative[0] != 0) return "the first sequence does not begin at row 0";
  for (int s = 0; s < a->sequences; s++) {
    int64_t fresh = (int64_t)a->cumulative[s + 1] - a->cumulative[s], past = a->cross ? 0 : a->past[s];
    if (fresh < 0 || past < 0) return "a sequence has a negative length";
    if (fresh == 0) continue;
    int64_t input = a->inputs != NULL ? a->inputs[s] : 0;
    int64_t end = a->cross ? input : past + fresh, begin = a->window > 0 ? past - a->window + 1 : 0;
    if (input < 0 || (a->cross ? input == 0 : input > past)) return "an input has no length, or is longer than its sequence";
    if (begin < input && !a->cross) begin = input;
    if (a->bias != NULL && end - begin > a->distances) return "a position is farther back than what is added to scores";
    if (end > (int64_t)a->max_blocks * a->block_size)
      return "a sequence is longer than its row of the block table";
    if (a->rotary_dim > 0 && end > a->positions)
      return "a position lies behind the last row of the cosines and sines";
    for (int64_t b = (begin > 0 ? begin : 0) / a->block_size; b <= (end - 1) / a->block_size; b++) {
      int32_t block = a->block_table[(size_t)s * (size_t)a->max_blocks + (size_t)b];
      if (block < 0 || block >= a->blocks) return "the block table names a block that does not exist";
    }
    if (a->slots == NULL) continue;
    for (int32_t t = a->cumulative[s]; t < a->cumulative[s + 1]; t++)
      if (a->slots[t] < -1 || a->slots[t] >= (int64_t)a->blocks * a->block_size)
        return "a token's slot lies outside of the cache";
  }
  for (int i = 0; i < 2 * a->copied; i++)
    if (a->copies[i] < 0 || a->copies[i] >= (int64_t)a->blocks * a->block_size)
      return "a slot to be copied lies outside of the cache";
  return NULL;
}

// Some query rows of one sequence and one KV head: row r belongs to token r / group
// of the sequence. Together they run over the parts that any of them sees.
typedef struct {
  int sequence, kv_head;
  size_t row, rows;
  int64_t first, parts; // part numbers
  size_t slot;          // of the waiting results, in floats; SIZE_MAX where none wait
} tile;

typedef struct {
  size_t tile;
  int64_t part; // or -1 for all of the tile's
} task;

// A pass as it is shared out.
typedef struct {
  const dm_attention *a;
  const dm_simd *simd;
  size_t tokens, group, width;
  size_t tiles, tasks, buffers, waits; // how many; floats that wait
  size_t work;                         // multiplications
  // In the scratch memory:
  float *q; // [kv_heads, tokens, group, width]
  tile *tile;
  task *task;
  float *wait;
  atomic_int *taken; // [buffers], 1 while a thread works in one
  float *buffer;
  size_t buffer_size, chunk; // floats of a buffer; tokens prepared by one call
} plan;

static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Floats of what comes out of a part: out, most and sum of each row.
static size_t part_size(const plan *p, size_t rows) { return rows * (p->width + 2); }

// The positions that row r of a sequence sees.
static void sees(const plan *p, int sequence, size_t r, int64_t *from, int64_t *to) {
  const dm_attention *a = p->a;
  int64_t input = a->inputs != NULL ? a->inputs[sequence] : 0;
  if (a->cross) {
    *from = 0, *to = input;
    return;
  }
  *to = a->past[sequence] + (int64_t)(r / p->group) + 1;
  *from = a->window > 0 && *to - a->window > input ? *to - a->window : input;
}

// Shares out the pass. With tile and task NULL it only counts them.
static void share(plan *p, const dm_attention *a, int threads) {
  tile *into = p->tile;
  task *tasks = p->task;
  p->tiles = p->tasks = p->waits = p->work = 0;
  for (int s = 0; s < a->sequences; s++) {
    size_t rows = (size_t)(a->cumulative[s + 1] - a->cumulative[s]) * p->group;
    if (rows == 0) continue;
    size_t cuts = (rows + ROWS - 1) / ROWS, each = ((rows + cuts - 1) / cuts + 3) / 4 * 4;
    p->tiles += (rows + each - 1) / each * (size_t)a->kv_heads;
  }
  // Few rows behind long pasts: the parts of a row go to several threads.
  bool split = p->tiles < 2 * (size_t)threads;
  size_t number = 0;
  // The longest come first where a prompt is cut: rows from its end.
  for (int s = 0; s < a->sequences; s++) {
    size_t rows = (size_t)(a->cumulative[s + 1] - a->cumulative[s]) * p->group;
    if (rows == 0) continue;
    size_t cuts = (rows + ROWS - 1) / ROWS, each = ((rows + cuts - 1) / cuts + 3) / 4 * 4;
    for (size_t end = rows; end > 0;) {
      size_t begin = (end - 1) / each * each;
      int64_t from, to, ignored;
      sees(p, s, begin, &from, &ignored);
      sees(p, s, end - 1, &ignored, &to);
      int64_t first = from / PART, parts = (to + PART - 1) / PART - first;
      for (int h = 0; h < a->kv_heads; h++) {
        tile t = {s, h, begin, end - begin, first, parts, SIZE_MAX};
        size_t wait = (size_t)parts * part_size(p, t.rows);
        if (split && parts > 1 && p->waits + wait <= waiting) {
          t.slot = p->waits;
          p->waits += wait;
        }
        for (int64_t i = 0; i < (t.slot == SIZE_MAX ? 1 : parts); i++) {
          if (tasks != NULL) tasks[p->tasks] = (task){number, t.slot == SIZE_MAX ? -1 : first + i};
          p->tasks++;
        }
        if (into != NULL) into[number] = t;
        number++;
        p->work += t.rows * (size_t)(to - from) * 2 * (size_t)a->head_size;
      }
      end = begin;
    }
  }
}

// Shares out the pass and lays out the scratch memory; returns its size. base may
// be NULL.
static size_t lay_out(plan *p, const dm_attention *a, int threads, char *base) {
  *p = (plan){.a = a, .simd = dm_simd_now(), .tokens = a->sequences ? (size_t)a->cumulative[a->sequences] : 0};
  p->group = (size_t)(a->heads / a->kv_heads);
  p->width = dm_attention_width(a);
  share(p, a, threads);
  p->buffers = (size_t)threads;
  p->buffer_size = ROWS * (PART + 2 * p->width + 4) + PART * sizeof(size_t) / sizeof(float) + 2 * ROWS;
  if (a->k_scale != NULL) p->buffer_size += 2 * PART * p->width;
  p->buffer_size = rounded(p->buffer_size * sizeof(float)) / sizeof(float);
  size_t at = (64 - (uintptr_t)base % 64) % 64;
#define PLACE(field, count)                                                                        \
  if (base != NULL) p->field = (void *)(base + at);                                                \
  at += rounded((count) * sizeof *p->field)
  PLACE(q, (size_t)a->heads * p->tokens * p->width);
  PLACE(wait, p->waits);
  PLACE(buffer, p->buffers * p->buffer_size);
  PLACE(tile, p->tiles);
  PLACE(task, p->tasks);
  PLACE(taken, p->buffers);
#undef PLACE
  if (base != NULL) share(p, a, threads);
  return at;
}

size_t dm_attention_scratch(const dm_attention *a, int threads) {
  plan p;
  return lay_out(&p, a, threads > 1 ? threads : 1, NULL) + 64;
}

// Writes new keys and values and turns queries.
static void prepare(void *arg, size_t part) {
  const plan *p = arg;
  const dm_attention *a = p->a;
  size_t begin = part * p->chunk, end = begin + p->chunk < p->tokens ? begin + p->chunk : p->tokens;
  int s = 0;
  for (size_t t = begin; t < end; t++) {
    while ((size_t)a->cumulative[s + 1] <= t) s++;
    int32_t position = a->cross ? 0 : a->past[s] + (int32_t)(t - (size_t)a->cumulative[s]);
    size_t slot;
    if (a->cross) {
      slot = SIZE_MAX;
    } else if (a->slots != NULL) {
      slot = a->slots[t] < 0 ? SIZE_MAX : (size_t)a->slots[t];
    } else {
      size_t block = (size_t)s * (size_t)a->max_blocks + (size_t)(position / a->block_size);
      slot = (size_t)a->block_table[block] * (size_t)a->block_size + (size_t)(position % a->block_size);
    }
    p->simd->prepare(a, t, position, slot, p->q, p->tokens);
  }
}

// Copies keys and values of tokens that several sequences begin with.
static void copy(const dm_attention *a) {
  size_t row = (size_t)a->kv_heads * (size_t)a->head_size * (a->k_scale != NULL ? sizeof(int8_t) : sizeof(float));
  for (int i = 0; i < a->copied; i++) {
    size_t from = (size_t)a->copies[2 * i] * row, to = (size_t)a->copies[2 * i + 1] * row;
    if (from == to) continue;
    memcpy((char *)a->key_cache + to, (char *)a->key_cache + from, row);
    memcpy((char *)a->value_cache + to, (char *)a->value_cache + from, row);
  }
}

// A buffer that no other thread works in. There is one for each thread, so that one
// is free, unless the caller has more threads than it said.
static size_t take(plan *p) {
  for (size_t i = 0;; i = (i + 1) % p->buffers) {
    int free = 0;
    if (atomic_compare_exchange_strong_explicit(&p->taken[i], &free, 1, memory_order_acquire, memory_order_relaxed))
      return i;
  }
}

// What each row of a tile sees of one part.
static void view(const plan *p, const tile *t, int64_t part, int *from, int *to) {
  for (size_t r = 0; r < t->rows; r++) {
    int64_t low, high;
    sees(p, t->sequence, t->row + r, &low, &high);
    low -= part * PART, high -= part * PART;
    from[r] = (int)(low < 0 ? 0 : low > PART ? PART : low);
    to[r] = (int)(high < 0 ? 0 : high > PART ? PART : high);
  }
}

// Where keys and values of one part lie.
static void locate(const plan *p, const tile *t, int64_t part, int from, int to, size_t *at) {
  const dm_attention *a = p->a;
  const int32_t *blocks = a->block_table + (size_t)t->sequence * (size_t)a->max_blocks;
  size_t step = (size_t)a->kv_heads * (size_t)a->head_size;
  int64_t position = part * PART + from, block = position / a->block_size;
  int inside = (int)(position % a->block_size);
  for (int j = from; j < to; block++, inside = 0)
    for (size_t row = ((size_t)blocks[block] * (size_t)a->block_size + (size_t)inside) * step;
         inside < a->block_size && j < to; inside++, j++, row += step)
      at[j] = row + (size_t)t->kv_head * (size_t)a->head_size;
}

// Makes floats of the keys and values of one part that lie in caches of 8 bits.
static void widen(const plan *p, const tile *t, int from, int to, size_t *at, float *keys, float *values) {
  const dm_attention *a = p->a;
  size_t size = (size_t)a->head_size, scale = (size_t)t->kv_head * size;
  p->simd->widen(a->key_cache, a->k_scale + scale, size, p->width, at, from, to, keys);
  p->simd->widen(a->value_cache, a->v_scale + scale, size, p->width, at, from, to, values);
  for (int j = from; j < to; j++) at[j] = (size_t)j * p->width;
}

// The first token's row of a tile, in the output, and its head.
static void finish(const plan *p, const tile *t, size_t r, const float *out, float most, float sum) {
  const dm_attention *a = p->a;
  size_t token = (size_t)a->cumulative[t->sequence] + (t->row + r) / p->group;
  size_t head = (size_t)t->kv_head * p->group + (t->row + r) % p->group;
  p->simd->finish(a, head, out, most, sum, a->output + token * a->output_stride + head * (size_t)a->head_size);
}

static void compute(void *arg, size_t number) {
  plan *p = arg;
  const task *k = &p->task[number];
  const tile *t = &p->tile[k->tile];
  const dm_attention *a = p->a;
  size_t taken = take(p);
  float *b = p->buffer + taken * p->buffer_size;
  size_t *at = (size_t *)b; // b is aligned to 64 bytes
  b += PART * sizeof *at / sizeof *b;
  float *scores = b, *out = scores + ROWS * PART, *next = out + ROWS * p->width;
  float *most = next + ROWS * p->width, *sum = most + ROWS, *next_most = sum + ROWS, *next_sum = next_most + ROWS;
  int *from = (int *)(next_sum + ROWS), *to = from + ROWS;
  float *keys = next_sum + 3 * ROWS, *values = keys + PART * p->width; // where the caches have 8 bits
  size_t token = (size_t)a->cumulative[t->sequence];
  dm_attention_rows rows = {
      .count = t->rows, .from = from, .to = to, .at = at, .scores = scores, .row = t->row, .kv_head = t->kv_head,
      .keys = a->k_scale != NULL ? keys : a->key_cache, .values = a->k_scale != NULL ? values : a->value_cache,
      .q = p->q + (((size_t)t->kv_head * p->tokens + token) * p->group + t->row) * p->width,
  };
  bool all = k->part < 0;
  for (int64_t i = all ? t->first : k->part; i < (all ? t->first + t->parts : k->part + 1); i++) {
    view(p, t, i, from, to);
    rows.own = a->cross ? 0 : a->past[t->sequence] - i * PART;
    locate(p, t, i, from[0], to[t->rows - 1], at);
    if (a->k_scale != NULL) widen(p, t, from[0], to[t->rows - 1], at, keys, values);
    bool begun = all && i > t->first;
    if (all) {
      rows.out = begun ? next : out, rows.most = begun ? next_most : most, rows.sum = begun ? next_sum : sum;
    } else {
      rows.out = p->wait + t->slot + (size_t)(i - t->first) * part_size(p, t->rows);
      rows.most = rows.out + t->rows * p->width, rows.sum = rows.most + t->rows;
    }
    p->simd->attend(a, &rows);
    for (size_t r = 0; begun && r < t->rows; r++) {
      if (from[r] >= to[r]) continue;
      int64_t low, high;
      sees(p, t->sequence, t->row + r, &low, &high);
      if (low / PART == i) { // the row's first part
        memcpy(out + r * p->width, next + r * p->width, p->width * sizeof *out);
        most[r] = next_most[r], sum[r] = next_sum[r];
      } else {
        p->simd->merge(a, out + r * p->width, most + r, sum + r, next + r * p->width, next_most[r], next_sum[r]);
      }
    }
  }
  for (size_t r = 0; all && r < t->rows; r++) finish(p, t, r, out + r * p->width, most[r], sum[r]);
  atomic_store_explicit(&p->taken[taken], 0, memory_order_release);
}

// Merges what waits of one tile.
static void gather(void *arg, size_t number) {
  const plan *p = arg;
  const tile *t = &p->tile[number];
  if (t->slot == SIZE_MAX) return;
  for (size_t r = 0; r < t->rows; r++) {
    int64_t low, high;
    sees(p, t->sequence, t->row + r, &low, &high);
    float *first = NULL, *most = NULL, *sum = NULL;
    for (int64_t i = low / PART; i * PART < high; i++) {
      float *out = p->wait + t->slot + (size_t)(i - t->first) * part_size(p, t->rows);
      float *m = out + t->rows * p->width + r, *l = m + t->rows;
      out += r * p->width;
      if (first == NULL) first = out, most = m, sum = l;
      else p->simd->merge(p->a, first, most, sum, out, *m, *l);
    }
    finish(p, t, r, first, *most, *sum);
  }
}

static void run(const dm_parallel *threads, dm_part part, void *arg, size_t parts, size_t work) {
  if (threads != NULL && threads->threads > 1 && parts > 1 && work >= little) {
    threads->run(threads->pool, part, arg, parts);
    return;
  }
  for (size_t i = 0; i < parts; i++) part(arg, i);
}

void dm_attention_run(const dm_attention *a, void *scratch, const dm_parallel *threads) {
  plan p;
  int count = threads != NULL && threads->threads > 1 ? threads->threads : 1;
  lay_out(&p, a, count, scratch);
  if (p.tokens == 0) return;
  for (size_t i = 0; i < p.buffers; i++) atomic_init(&p.taken[i], 0);
  p.chunk = (p.tokens + 4 * (size_t)count - 1) / (4 * (size_t)count);
  // A channel is prepared in the time of some ten multiplications.
  size_t channels = p.tokens * (size_t)(a->heads + 2 * a->kv_heads) * (size_t)a->head_size;
  run(threads, prepare, &p, (p.tokens + p.chunk - 1) / p.chunk, channels * 10);
  copy(a);
  run(threads, compute, &p, p.tasks, p.work);
  if (p.waits > 0) run(threads, gather, &p, p.tiles, p.waits * 10);
}
