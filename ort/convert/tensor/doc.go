// Package tensor is what the readers of model files have in common: a tensor is
// a name, a shape and bytes in one of the formats in which checkpoints store
// numbers, and every format can be decoded to float32 row by row.
//
// Floats are those of safetensors, blocks those of GGUF. A block holds 32 or 256
// consecutive numbers of a row together with their scales; its layout is that of
// the ggml library, and its decoding is exact: one rounding to float32 for each
// operation that ggml's own reference makes, in the same order. Tests hold it to
// golden values of the Python package gguf.
package tensor
