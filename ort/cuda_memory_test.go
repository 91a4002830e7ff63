package ort

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// driverT is a CUDA driver of the test's own.
func driverT(t *testing.T, flags ...string) (library string) {
	t.Helper()
	library = filepath.Join(t.TempDir(), "libcuda.so.1")
	flags = append(flags, "-shared", "-fPIC", "-o", library, "testdata/cuda/driver.c")
	if out, err := exec.Command("cc", flags...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return library
}

// TestCUDAMemory asks a driver of the test's own, and one that is not there.
func TestCUDAMemory(t *testing.T) {
	library := driverT(t)
	for range 2 {
		free, total, err := cudaMemory(library, 0)
		if err != nil || free != 60e9 || total != 80e9 {
			t.Errorf("%d of %d bytes are free, %v", free, total, err)
		}
	}
	if _, _, err := cudaMemory(library, 1); err == nil || err.Error() != "cuDeviceGet: CUDA driver error 101" {
		t.Errorf("a GPU that is not there: got %v", err)
	}
	if _, _, err := cudaMemory(filepath.Join(t.TempDir(), "libcuda.so.1"), 0); err == nil || !strings.Contains(err.Error(), "libcuda.so.1") {
		t.Errorf("without a driver: got %v", err)
	}
	m := loadT(t, modelDir("gqa"), Options{})
	if _, _, err := m.DeviceMemory(); err == nil || !strings.Contains(err.Error(), "device cpu does not say") {
		t.Errorf("on the CPU: got %v", err)
	}
}
