//go:build cuda

package sampling

// The library of CUDA runs the CPU too, and a process has one.
func init() { devices = []string{"cuda", "cpu"} }
