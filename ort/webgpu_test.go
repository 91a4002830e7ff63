//go:build webgpu

package ort_test

import (
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/orttest"
)

// TestConformanceWebGPU plays the suite on a GPU by way of Vulkan, or on
// SwiftShader, which is one in software (make test-webgpu).
func TestConformanceWebGPU(t *testing.T) {
	initDevice(t, "webgpu")
	for _, name := range []string{"gqa", "growing"} {
		t.Run(name, func(t *testing.T) {
			orttest.Conform(t, orttest.Subject{Dir: "testdata/" + name, Device: ort.Options{Device: "webgpu"}, Tolerance: 1e-4, Exact: true})
		})
	}
}
