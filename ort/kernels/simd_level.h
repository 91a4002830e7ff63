// What simd_*.c have in common: the kernels, compiled for one level, and their
// table.
#include "vector.h"

#include "activations_simd.h"
#include "attention_simd.h"
#include "float_simd.h"

#include "simd.h"

const dm_simd DM_SIMD_TABLE = {
    .activate = activate,
    .prepare = prepare,
    .widen = widen,
    .attend = attend,
    .merge = merge,
    .finish = finish,
    .multiply = multiply,
    .tile = TILE_ROWS,
};
