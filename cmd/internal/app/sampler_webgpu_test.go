//go:build webgpu

package app

func init() { samplerDevices = []string{"webgpu"} }
