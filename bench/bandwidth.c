// How fast the machine reads memory: THREADS threads sum a buffer of a gigabyte,
// each its part, several times. Answers each line of its standard input with the
// best and the median of ROUNDS passes, in bytes per second.
//
//     cc -O3 -march=native -pthread bandwidth.c -o bandwidth; echo | ./bandwidth 2
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 9 };
static const size_t BYTES = (size_t)1 << 30;

typedef struct {
  const uint64_t *data;
  size_t n;
  uint64_t sum;
} part;

static void *sum(void *arg) {
  part *p = arg;
  uint64_t s[8] = {0};
  for (size_t i = 0; i < p->n; i += 8)
    for (int j = 0; j < 8; j++) s[j] += p->data[i + j];
  for (int j = 0; j < 8; j++) p->sum += s[j];
  return NULL;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 2;
  uint64_t *data = aligned_alloc(1 << 21, BYTES);
  if (threads < 1 || threads > 64 || !data) return 1;
  memset(data, 1, BYTES);
  part parts[64];
  pthread_t ids[64];
  char line[256];
  uint64_t all = 0;
  while (fgets(line, sizeof line, stdin)) {
    double rates[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
      double began = now();
      for (int t = 0; t < threads; t++) {
        size_t n = BYTES / 8 / threads / 8 * 8;
        parts[t] = (part){data + t * n, n, 0};
        if (pthread_create(&ids[t], NULL, sum, &parts[t])) return 1;
      }
      for (int t = 0; t < threads; t++) {
        pthread_join(ids[t], NULL);
        all += parts[t].sum;
      }
      rates[r] = (double)BYTES / (now() - began);
    }
    qsort(rates, ROUNDS, sizeof *rates, ascending);
    printf("{\"best\": %.4g, \"median\": %.4g, \"check\": %llu}\n", rates[ROUNDS - 1], rates[ROUNDS / 2], (unsigned long long)(all & 1));
    fflush(stdout);
  }
  return 0;
}
