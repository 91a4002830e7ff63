#include "float.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "simd.h"

enum { PANEL = DM_FLOAT_PANEL };

// Steps of k that one tile runs over before the next rows come: 64 KiB of a panel,
// which stay in the second cache.
static const size_t depth = 512;
// Rows whose sums of one panel are kept at once.
enum { BATCH = 96 };
// Less than this many multiplications are not worth waking a thread for.
static const size_t little = 50000;

struct dm_fmatrix {
  size_t k, n, panels;
  float *weights; // [panels, k, PANEL], zeros behind n
};

static float widen(const void *w, dm_ftype type, size_t at) {
  if (type == DM_FLOAT32) return ((const float *)w)[at];
  uint32_t half = ((const uint16_t *)w)[at], bits;
  if (type == DM_BFLOAT16) {
    bits = half << 16;
  } else {
    uint32_t sign = (half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    if (exponent == 31) { // infinite, or not a number
      bits = 0x7f800000 | mantissa << 13;
    } else if (exponent > 0) {
      bits = (exponent + 112) << 23 | mantissa << 13;
    } else { // mantissa * 2^-24
      float f = (float)mantissa * 0x1p-24f;
      memcpy(&bits, &f, sizeof bits);
    }
    bits |= sign;
  }
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

typedef struct {
  dm_fmatrix *m;
  const void *w;
  dm_ftype type;
  size_t ld;
  int transposed;
} packing;

static void pack(void *arg, size_t panel) {
  const packing *p = arg;
  const dm_fmatrix *m = p->m;
  float *to = m->weights + panel * m->k * PANEL;
  size_t first = panel * PANEL, count = m->n - first < PANEL ? m->n - first : PANEL;
  if (p->transposed) {
    for (size_t n = 0; n < count; n++)
      for (size_t k = 0; k < m->k; k++) to[k * PANEL + n] = widen(p->w, p->type, (first + n) * p->ld + k);
  } else {
    for (size_t k = 0; k < m->k; k++)
      for (size_t n = 0; n < count; n++) to[k * PANEL + n] = widen(p->w, p->type, k * p->ld + first + n);
  }
  for (size_t k = 0; k < m->k; k++)
    for (size_t n = count; n < PANEL; n++) to[k * PANEL + n] = 0;
}

static void run(const dm_parallel *threads, dm_part part, void *arg, size_t parts, size_t work) {
  if (threads != NULL && threads->threads > 1 && parts > 1 && work >= little) {
    threads->run(threads->pool, part, arg, parts);
    return;
  }
  for (size_t i = 0; i < parts; i++) part(arg, i);
}

dm_fmatrix *dm_fpack(const void *w, dm_ftype type, size_t k, size_t n, size_t ld, int transposed,
                     const dm_parallel *threads) {
  if (k == 0 || n == 0) return NULL;
  dm_fmatrix *m = malloc(sizeof *m);
  if (m == NULL) return NULL;
  *m = (dm_fmatrix){.k = k, .n = n, .panels = (n + PANEL - 1) / PANEL};
  // Large matrices lie in large pages where the system has them: fewer of its
  // tables are read on the way through.
  const size_t large = 2u << 20;
  size_t bytes = dm_fbytes(m), align = bytes >= 2 * large ? large : 64;
  void *memory = NULL;
  if (posix_memalign(&memory, align, bytes) != 0) {
    free(m);
    return NULL;
  }
#if defined(__linux__)
  if (align == large) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  m->weights = memory;
  packing p = {m, w, type, ld, transposed};
  run(threads, pack, &p, m->panels, k * n);
  return m;
}

void dm_ffree(dm_fmatrix *w) {
  if (w == NULL) return;
  free(w->weights);
  free(w);
}

size_t dm_fbytes(const dm_fmatrix *w) { return w->panels * w->k * PANEL * sizeof(float); }
size_t dm_fcolumns(const dm_fmatrix *w) { return w->n; }
size_t dm_fdepth(const dm_fmatrix *w) { return w->k; }

// A product as it is shared out: runs of panels of all matrices, one behind the
// other.
typedef struct {
  const dm_simd *simd;
  const dm_fproduct *products;
  size_t count;
  int gated;
  dm_activation act;
  size_t k, rows, panels, each; // panels of one part
  const float *x;
  size_t ldx;
  float *packed;            // x in tiles of rows, [k, rows of the tile] each; or NULL
  size_t tiles, tile_rows;  // all have tile_rows rows or one less
  size_t uneven;            // the first so many have tile_rows
} product;

// The first row of a tile.
static size_t tile_at(const product *p, size_t tile) {
  return tile * p->tile_rows - (tile > p->uneven ? tile - p->uneven : 0);
}

static void cut(product *p) {
  size_t most = p->simd->tile;
  p->tiles = (p->rows + most - 1) / most;
  p->tile_rows = (p->rows + p->tiles - 1) / p->tiles;
  p->uneven = p->tiles - (p->tiles * p->tile_rows - p->rows);
}

// Rows from which x is copied so that the rows of a tile lie side by side: rows that
// lie far apart fall on the same lines of the first cache.
static int packs(size_t rows) { return rows > 12; }

size_t dm_fscratch(size_t rows, size_t k, int threads) {
  (void)threads;
  return packs(rows) ? rows * k * sizeof(float) + 64 : 64;
}

static void arrange(void *arg, size_t tile) {
  const product *p = arg;
  size_t first = tile_at(p, tile), rows = tile_at(p, tile + 1) - first;
  float *to = p->packed + first * p->k;
  const float *x = p->x + first * p->ldx;
  // A line of each row at a time.
  for (size_t k = 0; k < p->k; k += 16) {
    size_t end = k + 16 < p->k ? k + 16 : p->k;
    for (size_t r = 0; r < rows; r++)
      for (size_t i = k; i < end; i++) to[i * rows + r] = x[r * p->ldx + i];
  }
}

// Sums of some tiles, rows first to end, with one panel.
static void sum(const product *p, const float *panel, size_t first, size_t end, float *sums) {
  size_t begin = tile_at(p, first);
  for (size_t k = 0; k < p->k; k += depth)
    for (size_t i = first; i < end; i++) {
      size_t row = tile_at(p, i), rows = tile_at(p, i + 1) - row;
      dm_float_tile t = {
          .rows = rows, .depth = p->k - k < depth ? p->k - k : depth, .w = panel + k * PANEL,
          .sums = sums + (row - begin) * PANEL, .begin = k == 0,
      };
      if (p->packed != NULL)
        t.x = p->packed + row * p->k + k * rows, t.x_step = rows, t.x_row = 1;
      else
        t.x = p->x + row * p->ldx + k, t.x_step = 1, t.x_row = p->ldx;
      p->simd->multiply(&t);
    }
}

static void add(float *to, const float *what, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] += what[i];
}

static void panel(const product *p, const dm_fproduct *d, size_t number) {
  float sums[BATCH * PANEL] __attribute__((aligned(64))), up[BATCH * PANEL] __attribute__((aligned(64)));
  const dm_fmatrix *w = d->w;
  size_t column = number * PANEL, count = w->n - column < PANEL ? w->n - column : PANEL;
  for (size_t first = 0, end; first < p->tiles; first = end) {
    size_t begin = tile_at(p, first);
    for (end = first + 1; end < p->tiles && tile_at(p, end + 1) - begin <= BATCH;) end++;
    sum(p, w->weights + number * w->k * PANEL, first, end, sums);
    if (p->gated) sum(p, d[1].w->weights + number * w->k * PANEL, first, end, up);
    for (size_t row = begin; row < tile_at(p, end); row++) {
      float *s = sums + (row - begin) * PANEL, *u = up + (row - begin) * PANEL;
      float *y = d->y + row * d->ldy + column;
      if (d->bias != NULL) add(s, d->bias + column, count);
      if (p->gated) {
        if (d[1].bias != NULL) add(u, d[1].bias + column, count);
        p->simd->activate(p->act, count, s, u, y);
        continue;
      }
      if (d->residual != NULL) add(s, d->residual + row * d->ldr + column, count);
      memcpy(y, s, count * sizeof *y);
    }
  }
}

static void compute(void *arg, size_t part) {
  const product *p = arg;
  size_t at = part * p->each, end = at + p->each < p->panels ? at + p->each : p->panels;
  const dm_fproduct *d = p->products;
  size_t before = 0;
  for (; at < end; at++) {
    while (at - before >= d->w->panels) before += d->w->panels, d++;
    panel(p, d, at - before);
  }
}

static void start(product *p, void *scratch, const dm_parallel *threads) {
  if (p->rows == 0 || p->panels == 0) return;
  p->simd = dm_simd_now();
  cut(p);
  size_t count = threads != NULL && threads->threads > 1 ? (size_t)threads->threads : 1;
  if (packs(p->rows)) {
    p->packed = (float *)(((uintptr_t)scratch + 63) / 64 * 64);
    run(threads, arrange, p, p->tiles, p->rows * p->k);
  }
  size_t parts = 8 * count < p->panels ? 8 * count : p->panels;
  p->each = (p->panels + parts - 1) / parts;
  size_t work = p->panels * PANEL * p->k * p->rows * (p->gated ? 2 : 1);
  run(threads, compute, p, (p->panels + p->each - 1) / p->each, work);
}

void dm_fmatmul(const dm_fproduct *products, size_t count, const float *x, size_t ldx, size_t rows,
                void *scratch, const dm_parallel *threads) {
  if (count == 0) return;
  product p = {.products = products, .count = count, .k = products->w->k, .rows = rows, .x = x, .ldx = ldx};
  for (size_t i = 0; i < count; i++) p.panels += products[i].w->panels;
  start(&p, scratch, threads);
}

void dm_fgated(const dm_fproduct *gate, const dm_fproduct *up, dm_activation act, float *y,
               size_t ldy, const float *x, size_t ldx, size_t rows, void *scratch,
               const dm_parallel *threads) {
  dm_fproduct both[2] = {*gate, *up};
  both[0].y = y, both[0].ldy = ldy;
  product p = {.products = both, .count = 2, .gated = 1, .act = act, .k = gate->w->k, .rows = rows,
               .panels = gate->w->panels, .x = x, .ldx = ldx};
  start(&p, scratch, threads);
}
