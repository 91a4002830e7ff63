#if defined(__aarch64__)
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#define DM_SIMD_NEON
#define DM_SIMD_TABLE dm_simd_neon
#include "simd_level.h"
#endif
