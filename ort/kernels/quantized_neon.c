// The path for arm64 without the dot product.
#include "quantized_internal.h"

#if defined(__aarch64__)
#define TARGET 
#define DOT 0
#include "quantized_neon.inc"

const qpath qpath_neon = {quantize, multiply};
#endif
