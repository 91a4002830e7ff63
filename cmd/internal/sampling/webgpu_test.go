//go:build webgpu

package sampling

func init() { devices = append(devices, "webgpu") }
