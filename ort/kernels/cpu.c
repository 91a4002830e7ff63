#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

dm_level dm_cpu_best(void) {
#if defined(__x86_64__)
  // These look at what the system saves for a process, too, not only at CPUID.
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("fma"))
    return __builtin_cpu_supports("avx512vnni") ? DM_AVX512_VNNI : DM_AVX512;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return DM_PORTABLE;
  unsigned a, b, c, d;
  if (!__get_cpuid_count(1, 0, &a, &b, &c, &d) || !(c & (1u << 29))) return DM_PORTABLE; // F16C
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4))) return DM_AVX_VNNI;
  return DM_AVX2;
#elif defined(__aarch64__) && defined(__linux__)
  return getauxval(AT_HWCAP) & (1ul << 20) ? DM_NEON_DOT : DM_NEON; // HWCAP_ASIMDDP
#elif defined(__aarch64__) && defined(__APPLE__)
  int has = 0;
  size_t size = sizeof has;
  sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, NULL, 0);
  return has ? DM_NEON_DOT : DM_NEON;
#else
  return DM_PORTABLE;
#endif
}

static int chosen = -1;

dm_level dm_cpu_level(void) {
  int level = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
  if (level < 0) __atomic_store_n(&chosen, level = dm_cpu_best(), __ATOMIC_RELAXED);
  return level;
}

int dm_cpu_use(dm_level level) {
  // Levels are ordered within an architecture; arm64's begin at DM_NEON.
  dm_level best = dm_cpu_best();
  if (level != DM_PORTABLE && (level > best || (best >= DM_NEON) != (level >= DM_NEON))) return 0;
  // AVX-512 processors of the first generations lack VNNI in 256 bits.
#if defined(__x86_64__)
  if (level == DM_AVX_VNNI) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & (1u << 4))) return 0;
  }
#endif
  __atomic_store_n(&chosen, (int)level, __ATOMIC_RELAXED);
  return 1;
}

const char *dm_cpu_name(dm_level level) {
  switch (level) {
  case DM_PORTABLE: return "portable";
  case DM_AVX2: return "AVX2";
  case DM_AVX_VNNI: return "AVX-VNNI";
  case DM_AVX512: return "AVX-512";
  case DM_AVX512_VNNI: return "AVX-512 VNNI";
  case DM_NEON: return "NEON";
  case DM_NEON_DOT: return "NEON dot product";
  }
  return "unknown";
}

int dm_cpu_amx(void) {
#if defined(__x86_64__) && defined(__linux__)
  static int has = -1;
  int known = __atomic_load_n(&has, __ATOMIC_RELAXED);
  if (known >= 0) return known;
  known = 0;
  unsigned a, b, c, d;
  const unsigned tile = 1u << 24, int8 = 1u << 25;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tile) && (d & int8)) {
    const long request = 0x1023, tiledata = 18; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    known = syscall(SYS_arch_prctl, request, tiledata) == 0;
  }
  __atomic_store_n(&has, known, __ATOMIC_RELAXED);
  return known;
#else
  return 0;
#endif
}
