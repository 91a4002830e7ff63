#if defined(__x86_64__)
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif

#define DM_SIMD_AVX512
#define DM_SIMD_TABLE dm_simd_avx512
#include "simd_level.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
