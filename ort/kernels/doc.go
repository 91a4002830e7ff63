// Package kernels computes what ONNX Runtime's CPU kernels do not do fast, or
// not the same for every batch: matrices of quantized and of float32 weights
// (quantized.c, float.c) and attention over a paged KV cache (attention.c), in C.
// It knows nothing of ONNX Runtime: whoever calls brings the threads
// (dm_parallel in kernels.h), the memory and the tensors.
//
// # Invariants
//
//   - A row's result depends on its own inputs alone, to the bit: not on how many
//     rows there are, which others are beside it, how many threads compute, or
//     which of them. Sums run in one fixed order. With other instruction sets the
//     last bits may differ, so that bits are promised on one kind of processor.
//   - The instruction set is chosen at run time, once per process (cpu.c), never
//     when compiling: a binary runs on any x86-64 or arm64.
//   - Every fast path has a portable one beside it, which is its oracle in tests.
//   - Packed weights are read-only after they were made, and shared by all
//     threads and sessions.
package kernels
