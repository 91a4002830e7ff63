#include "simd.h"

const dm_simd *dm_simd_now(void) {
  switch (dm_cpu_level()) {
#if defined(__x86_64__)
  case DM_AVX512:
  case DM_AVX512_VNNI: return &dm_simd_avx512;
  case DM_AVX2:
  case DM_AVX_VNNI: return &dm_simd_avx2;
#elif defined(__aarch64__)
  case DM_NEON:
  case DM_NEON_DOT: return &dm_simd_neon;
#endif
  default: return &dm_simd_portable;
  }
}
