//go:build cuda

package app

func init() { samplerDevices = []string{"cuda"} }
