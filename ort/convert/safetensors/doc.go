// Package safetensors reads model weights from safetensors files, one or a
// folder of shards with their index, without copying them: files are mapped.
//
// The format is a length of 8 bytes, a JSON header of at most 100 MB and the
// tensors' bytes, which the header's offsets cover without a hole and without
// an overlap (https://huggingface.co/docs/safetensors). All of it is checked
// before a tensor is given out, so that a damaged or hostile file is an error
// and never a crash, whatever it says of its sizes.
package safetensors
