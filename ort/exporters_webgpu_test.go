//go:build webgpu

package ort

import (
	"testing"

	"github.com/draftmill/draftmill/ort/graph"
)

// TestWebGPUExporters: an export for this device, alone and in lanes. Its
// attention normalizes queries and keys itself, for which the CPU has no kernel.
func TestWebGPUExporters(t *testing.T) {
	e := exported{"qwen3-builder-webgpu", graph.GQA, exact, exact}
	t.Run("alone", func(t *testing.T) { e.divided(t, Options{Device: "webgpu"}) })
	t.Run("lanes", func(t *testing.T) { e.together(t, Options{Device: "webgpu"}) })
}
