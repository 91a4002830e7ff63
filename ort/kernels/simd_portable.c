#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#define DM_SIMD_PORTABLE
#define DM_SIMD_TABLE dm_simd_portable
#include "simd_level.h"
