// The path for arm64 with the dot product.
#include "quantized_internal.h"

#if defined(__aarch64__)
#define TARGET __attribute__((target("arch=armv8.2-a+dotprod")))
#define DOT 1
#include "quantized_neon.inc"

const qpath qpath_neon_dot = {quantize, multiply};
#endif
