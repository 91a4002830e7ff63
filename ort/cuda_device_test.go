//go:build cuda

package ort

func init() { testDevices = append(testDevices, "cuda") }
