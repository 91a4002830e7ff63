//go:build webgpu

package ort

import "testing"

func init() { testDevices = append(testDevices, "webgpu") }

// TestWebGPUKeepsOneCopyOfWeights: seven more sessions would hold the target's 29
// MB again each, which shows where the device's memory is the process's, as
// SwiftShader's is.
func TestWebGPUKeepsOneCopyOfWeights(t *testing.T) {
	m := loadT(t, modelDir("target"), Options{Device: "webgpu", Lanes: 8})
	before := residentBytes(t)
	for n := 2; n <= 8; n++ {
		if _, err := m.sessions.of(n); err != nil {
			t.Fatal(err)
		}
	}
	if grown := residentBytes(t) - before; grown > 40<<20 {
		t.Errorf("seven more sessions take %d MiB", grown>>20)
	}
}
