//go:build webgpu

package ort_test

import (
	"strings"
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/orttest"
)

// webgpu loads a model that stays while its test runs: with the last session the
// device would forget its compiled kernels, which take most of the time.
func webgpu(t *testing.T, dir string) *ort.Model {
	t.Helper()
	initDevice(t, "webgpu")
	b, err := ort.OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ort.Load(b, ort.Options{Device: "webgpu"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestConformanceWebGPU plays the suite on a GPU by way of Vulkan, or on
// SwiftShader, which is one in software (make test-webgpu).
func TestConformanceWebGPU(t *testing.T) {
	webgpu(t, "testdata/gqa")
	for _, c := range []struct {
		dir       string
		tolerance float64
	}{
		{"testdata/gqa", 1e-4},
		{"testdata/growing", 1e-4},
		// Real exporters' graphs. Optimum's attention rounds a mask of the least
		// number there is, and a device does it otherwise.
		{"../testdata/models/qwen2-builder", 1e-4},
		{"../testdata/models/llama-optimum", 1e-3},
		{"../testdata/models/llama-builder-int4", 5e-2},
	} {
		t.Run(c.dir, func(t *testing.T) {
			orttest.Conform(t, orttest.Subject{Dir: c.dir, Device: ort.Options{Device: "webgpu"}, Tolerance: c.tolerance, Exact: true})
		})
	}
}

// TestWebGPUHalfPrecision conforms where the GPU has it. Where it has not, as
// SwiftShader, the error says so.
func TestWebGPUHalfPrecision(t *testing.T) {
	m := webgpu(t, "testdata/gqa-float16")
	err := m.SelfTest(5)
	if err == nil {
		orttest.Conform(t, orttest.Subject{Dir: m.Bundle().Dir, Device: ort.Options{Device: "webgpu"}, Tolerance: 3e-2})
		return
	}
	if !strings.Contains(err.Error(), "device webgpu: this GPU or its driver has no half precision: take a model in float32") {
		t.Error(err)
	}
}
