// Package gguf reads model files of llama.cpp and its relatives, versions 2 and 3
// of the format: metadata and tensors, without copying the tensors, for files
// are mapped. The format is described at
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
//
// Every count, length and offset is held against the bytes that are there before
// anything is allocated for it, so that a damaged or hostile file is an error and
// never a crash, and takes no more memory than a multiple of its own size.
package gguf
