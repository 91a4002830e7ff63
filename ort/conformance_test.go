package ort_test

import (
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/library"
	"github.com/draftmill/draftmill/ort/orttest"
)

// initDevice loads the library that runs the device.
func initDevice(t *testing.T, device string) {
	t.Helper()
	path, err := library.FindFor(device, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := ort.Init(path); err != nil {
		t.Fatal(err)
	}
}

// TestConformanceCPU plays the suite on the CPU, against itself.
func TestConformanceCPU(t *testing.T) {
	initDevice(t, "cpu")
	for _, c := range []struct {
		name      string
		tolerance float64
	}{{"gqa", 1e-5}, {"growing", 1e-5}, {"gqa-float16", 5e-3}, {"float16", 5e-3}, {"bfloat16", 5e-3}} {
		t.Run(c.name, func(t *testing.T) {
			orttest.Conform(t, orttest.Subject{Dir: "testdata/" + c.name, Tolerance: c.tolerance, Exact: true})
		})
	}
}
