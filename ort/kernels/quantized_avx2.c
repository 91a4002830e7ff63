// The path for AVX2 without VNNI.
#include "quantized_internal.h"

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx2,fma,f16c")))
#define VNNI 0
#include "quantized_avx2.inc"

const qpath qpath_avx2 = {quantize, multiply};
#endif
