// Package orttest is one suite of tests for every device that package ort runs
// models on. Conform plays the same calls, a mirror of each other, on the device
// and on the CPU, and compares all logits:
//
//	go test ./ort       the CPU against itself, always
//	make test-webgpu    WebGPU, on a GPU or on SwiftShader, which is a GPU in software
//	make test-cuda      CUDA, where there is an NVIDIA GPU
//
// The CPU's own results are tested against numpy's and the exporters' elsewhere
// in package ort; here they are the truth.
//
// Invariants: a test says what it expects by a tolerance of the device, never by
// leaving something out; whatever a device refuses, it refuses by an error that
// a test names.
//
// The idea of one suite for all backends is that of river's riverdrivertest and
// hugot's backends (one test body, many drivers).
package orttest
