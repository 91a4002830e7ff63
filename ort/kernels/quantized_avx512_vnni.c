// The path for AVX-512 with VNNI.
#include "quantized_internal.h"

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")))
#define VNNI 1
#include "quantized_avx512.inc"

const qpath qpath_avx512_vnni = {quantize, multiply};
#endif
