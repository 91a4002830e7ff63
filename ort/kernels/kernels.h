// What the kernels share: how a caller lends them its threads, and what the
// processor can do.
#ifndef DRAFTMILL_KERNELS_H
#define DRAFTMILL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

// One part of a computation. Parts are independent of each other.
typedef void (*dm_part)(void *arg, size_t part);

// Threads of the caller's. run computes parts 0 to parts-1, in any order and on
// any of its threads, and returns when all are done. threads is how many there
// are, the caller's own included: how finely work is worth cutting.
typedef struct dm_parallel {
  void *pool;
  int threads;
  void (*run)(void *pool, dm_part part, void *arg, size_t parts);
} dm_parallel;

// Instruction sets, from poor to rich. A level includes those before it on the
// same architecture.
typedef enum {
  DM_PORTABLE = 0,
  DM_AVX2 = 1,        // x86-64: AVX2, FMA, F16C
  DM_AVX_VNNI = 2,    // and VNNI in 256 bits
  DM_AVX512 = 3,      // AVX-512 F, BW, DQ, VL
  DM_AVX512_VNNI = 4, // and VNNI in 512 bits
  DM_NEON = 16,       // arm64
  DM_NEON_DOT = 17,   // and the dot product (FEAT_DotProd)
} dm_level;

// What this processor and system can run at best.
dm_level dm_cpu_best(void);

// The level in use: the best one, or a poorer one that dm_cpu_use asked for.
// Only tests ask, before anything is packed or computed.
dm_level dm_cpu_level(void);
int dm_cpu_use(dm_level level); // 0 where the processor does not have it
const char *dm_cpu_name(dm_level level);

// Whether the processor has AMX tiles for int8 and the system lets this process
// use them; asks for the permission once.
int dm_cpu_amx(void);

#endif
