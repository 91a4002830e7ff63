package ort_test

import (
	"path/filepath"
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
	t.Run("cache of 8 bits", func(t *testing.T) {
		orttest.Conform(t, orttest.Subject{Dir: narrow(t, "testdata/gqa-float16"), Tolerance: 5e-3, Exact: true})
	})
}

// narrow is a model folder like dir with a cache of 8 bits, measured on some tokens.
func narrow(t *testing.T, dir string) string {
	t.Helper()
	b, err := ort.OpenBundle(dir)
	check(t, err)
	m, err := ort.Load(b, ort.Options{})
	check(t, err)
	d, err := m.NewDecoder(0)
	check(t, err)
	tokens := make([]int32, 40)
	for i := range tokens {
		tokens[i] = int32(i * 7 % m.Vocab())
	}
	r := b.NewCacheRange()
	check(t, d.MeasureCache(t.Context(), tokens, r))
	check(t, d.Close())
	check(t, m.Close())
	dst := filepath.Join(t.TempDir(), "narrow")
	check(t, b.WriteNarrow(dst, r))
	return dst
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
