// The driver: activations are quantized, columns are cut into parts for the
// caller's threads, and results get bias, residual and activation.
#include "quantized_internal.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

static const qpath *path(void) {
  switch (dm_cpu_level()) {
#if defined(__x86_64__)
  case DM_AVX512_VNNI: return &qpath_avx512_vnni;
  case DM_AVX512: return &qpath_avx512;
  case DM_AVX_VNNI: return &qpath_avx_vnni;
  case DM_AVX2: return &qpath_avx2;
#elif defined(__aarch64__)
  case DM_NEON_DOT: return &qpath_neon_dot;
  case DM_NEON: return &qpath_neon;
#endif
  default: return &qpath_portable;
  }
}

// One call: what its parts need.
typedef struct {
  const qpath *path;
  void (*multiply)(const dm_qmatrix *, size_t, int, const qrows *, size_t, size_t, float *);
  const dm_qproduct *products;
  size_t count;
  int gated; // products are a gate and an up, for one y
  dm_activation activation;
  float *y;
  size_t ldy;
  const float *x;
  size_t ldx;
  size_t k;
  qrows rows;
  size_t groups; // of all products together; of one where gated
  size_t parts;
  atomic_size_t next, done; // rows to be quantized, rows that are
} call;

// The first parts to start quantize the rows together; none goes on before all are
// done. A thread never waits for one that has not started.
static void quantize(call *c) {
  for (size_t row; (row = atomic_fetch_add(&c->next, 1)) < c->rows.rows;) {
    c->path->quantize(c->x + row * c->ldx, c->k, &c->rows, row);
    atomic_fetch_add(&c->done, 1);
  }
  for (unsigned spins = 0; atomic_load(&c->done) < c->rows.rows;)
    if (++spins > 1000) sched_yield();
}

static void finish(const dm_qproduct *p, size_t group, size_t first, size_t rows, const float *out) {
  size_t column = group * QLANES, n = p->w->n - column < QLANES ? p->w->n - column : QLANES;
  for (size_t r = 0; r < rows; r++) {
    float *y = p->y + (first + r) * p->ldy + column;
    float v[QLANES];
    memcpy(v, out + r * QLANES, sizeof v);
    if (p->bias != NULL)
      for (size_t i = 0; i < n; i++) v[i] += p->bias[column + i];
    if (p->residual != NULL) {
      const float *residual = p->residual + (first + r) * p->ldr + column;
      for (size_t i = 0; i < n; i++) v[i] += residual[i];
    }
    memcpy(y, v, n * sizeof *y);
  }
}

static void add_bias(const dm_qproduct *p, size_t group, size_t rows, float *out) {
  if (p->bias == NULL) return;
  size_t column = group * QLANES, n = p->w->n - column < QLANES ? p->w->n - column : QLANES;
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < n; i++) out[r * QLANES + i] += p->bias[column + i];
}

static void finish_gated(const call *c, size_t group, size_t first, size_t rows, float *gate, float *up) {
  add_bias(&c->products[0], group, rows, gate);
  add_bias(&c->products[1], group, rows, up);
  dm_activate(c->activation, rows * QLANES, gate, up, gate);
  size_t column = group * QLANES, n = c->products[0].w->n - column;
  if (n > QLANES) n = QLANES;
  for (size_t r = 0; r < rows; r++)
    memcpy(c->y + (first + r) * c->ldy + column, gate + r * QLANES, n * sizeof *gate);
}

// Groups first to last-1 of all products, for rows in chunks: a chunk's activations
// stay in cache while the groups go by, and so do the part's groups for the chunks.
static void compute(void *arg, size_t part) {
  call *c = arg;
  quantize(c);
  size_t first = part * c->groups / c->parts, last = (part + 1) * c->groups / c->parts;
  _Alignas(64) float out[2][QCHUNK * QLANES];
  for (size_t row = 0; row < c->rows.rows; row += QCHUNK) {
    size_t rows = c->rows.rows - row < QCHUNK ? c->rows.rows - row : QCHUNK;
    if (c->gated) {
      for (size_t g = first; g < last; g++) {
        c->multiply(c->products[0].w, g, g + 1 < last, &c->rows, row, rows, out[0]);
        c->multiply(c->products[1].w, g, g + 1 < last, &c->rows, row, rows, out[1]);
        finish_gated(c, g, row, rows, out[0], out[1]);
      }
      continue;
    }
    size_t before = 0; // groups of the products before p
    for (size_t i = 0; i < c->count && before < last; i++) {
      const dm_qproduct *p = &c->products[i];
      size_t end = before + p->w->groups < last ? before + p->w->groups : last;
      for (size_t g = first > before ? first : before; g < end; g++) {
        c->multiply(p->w, g - before, g + 1 < end, &c->rows, row, rows, out[0]);
        finish(p, g - before, row, rows, out[0]);
      }
      before += p->w->groups;
    }
  }
}

static size_t round_block(size_t k, int block) {
  return (k + (size_t)block - 1) / (size_t)block * (size_t)block;
}

size_t dm_qscratch(size_t rows, size_t k, int block) {
  size_t padded = round_block(k, block);
  return 64 + rows * padded + (rows * (padded / (size_t)block) + QPANEL) * sizeof(qstart);
}

static void start(call *c, const float *x, size_t ldx, size_t rows, void *scratch, const dm_parallel *threads) {
  const dm_qmatrix *w = c->products[0].w;
  if (rows == 0) return;
  c->path = path();
  c->multiply = c->path->multiply;
#if defined(__x86_64__)
  if (rows >= QTILES && c->path == &qpath_avx512_vnni && dm_cpu_amx()) c->multiply = qmultiply_amx;
#endif
  c->x = x, c->ldx = ldx, c->k = w->k;
  int8_t *values = (int8_t *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
  c->rows = (qrows){.rows = rows, .blocks = w->blocks, .block = w->block, .values = values,
                    .starts = (qstart *)(values + rows * w->blocks * (size_t)w->block)};
  atomic_init(&c->next, 0);
  atomic_init(&c->done, 0);
  c->parts = 1;
  if (threads == NULL || threads->threads <= 1) {
    compute(c, 0);
    return;
  }
  // Several parts a thread, so that a thread that was held up leaves work to the
  // others, and none smaller than what makes up for handing it out.
  size_t bytes = 0;
  for (size_t i = 0; i < c->count; i++) bytes += c->products[i].w->bytes;
  c->parts = (size_t)threads->threads * 8;
  size_t worth = bytes * (rows < 8 ? 1 : rows / 8) / (32 << 10) + 1;
  if (c->parts > worth) c->parts = worth;
  if (c->parts > c->groups) c->parts = c->groups;
  threads->run(threads->pool, compute, c, c->parts);
}

void dm_qmatmul(const dm_qproduct *products, size_t count, const float *x, size_t ldx, size_t rows,
                void *scratch, const dm_parallel *threads) {
  if (count == 0) return;
  call c = {.products = products, .count = count};
  for (size_t i = 0; i < count; i++) c.groups += products[i].w->groups;
  start(&c, x, ldx, rows, scratch, threads);
}

void dm_qgated(const dm_qproduct *gate, const dm_qproduct *up, dm_activation activation, float *y,
               size_t ldy, const float *x, size_t ldx, size_t rows, void *scratch,
               const dm_parallel *threads) {
  dm_qproduct products[2] = {*gate, *up};
  call c = {.products = products, .count = 2, .gated = 1, .activation = activation, .y = y, .ldy = ldy,
            .groups = gate->w->groups};
  start(&c, x, ldx, rows, scratch, threads);
}
