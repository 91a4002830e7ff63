// The path for AVX2 with VNNI in 256 bits.
#include "quantized_internal.h"

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx2,fma,f16c,avxvnni")))
#define VNNI 1
#include "quantized_avx2.inc"

const qpath qpath_avx_vnni = {quantize, multiply};
#endif
