#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct {
  dm_parallel parallel; // first: dm_threads_free casts back
  pthread_t *threads;
  int started;
  dm_part part;
  void *arg;
  size_t parts;
  atomic_size_t next;   // part to be computed
  atomic_uint round;    // counts runs
  atomic_int working;   // threads that have not finished the round
  atomic_int end;
} pool;

static void compute(pool *p) {
  for (size_t i; (i = atomic_fetch_add(&p->next, 1)) < p->parts;) p->part(p->arg, i);
}

static void *work(void *arg) {
  pool *p = arg;
  for (unsigned seen = 0;;) {
    unsigned spins = 0;
    while (atomic_load(&p->round) == seen) {
      if (atomic_load(&p->end)) return NULL;
      if (++spins > 4096) sched_yield();
    }
    seen = atomic_load(&p->round);
    compute(p);
    atomic_fetch_sub(&p->working, 1);
  }
}

static void run(void *arg, dm_part part, void *partArg, size_t parts) {
  pool *p = arg;
  p->part = part, p->arg = partArg, p->parts = parts;
  atomic_store(&p->next, 0);
  atomic_store(&p->working, p->started);
  atomic_fetch_add(&p->round, 1);
  compute(p);
  for (unsigned spins = 0; atomic_load(&p->working) > 0;)
    if (++spins > 4096) sched_yield(); // another process may hold the thread's core
}

dm_parallel *dm_threads_new(int threads) {
  pool *p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  p->parallel = (dm_parallel){.pool = p, .threads = 1, .run = run};
  p->threads = calloc((size_t)threads, sizeof *p->threads);
  for (; p->threads != NULL && p->started < threads - 1; p->started++)
    if (pthread_create(&p->threads[p->started], NULL, work, p) != 0) break;
  p->parallel.threads = p->started + 1;
  return &p->parallel;
}

void dm_threads_free(dm_parallel *parallel) {
  if (parallel == NULL) return;
  pool *p = (pool *)parallel;
  atomic_store(&p->end, 1);
  for (int i = 0; i < p->started; i++) pthread_join(p->threads[i], NULL);
  free(p->threads);
  free(p);
}

typedef struct {
  const uint64_t *data;
  size_t count;
  atomic_ullong sum;
} reading;

static void read_part(void *arg, size_t part) {
  reading *r = arg;
  size_t first = part << 17, last = first + (1 << 17) < r->count ? first + (1 << 17) : r->count;
  uint64_t sum[8] = {0};
  for (size_t i = first; i + 8 <= last; i += 8) {
    __builtin_prefetch(&r->data[i + 256]);
    for (int j = 0; j < 8; j++) sum[j] ^= r->data[i + (size_t)j];
  }
  for (int j = 1; j < 8; j++) sum[0] ^= sum[j];
  atomic_fetch_add(&r->sum, sum[0]);
}

uint64_t dm_threads_read(const dm_parallel *p, const uint64_t *data, size_t count) {
  reading r = {.data = data, .count = count};
  p->run(p->pool, read_part, &r, (count + (1 << 17) - 1) >> 17);
  return r.sum;
}
