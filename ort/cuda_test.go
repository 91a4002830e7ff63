//go:build cuda

package ort_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/orttest"
)

// gpus is the number of GPUs that make test-cuda has found.
func gpus(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("DRAFTMILL_TEST_GPUS"))
	if err != nil || n < 1 {
		t.Fatal("DRAFTMILL_TEST_GPUS is not set: run `make test-cuda`")
	}
	return n
}

// cudaSubjects are the models that run there. Half precision is compared with
// half precision of the CPU, which rounds elsewhere.
func cudaSubjects(device string) (subjects []orttest.Subject) {
	for _, c := range []struct {
		name      string
		tolerance float64
	}{{"gqa-float16", 3e-2}, {"growing", 3e-2}, {"float16", 3e-2}, {"bfloat16", 1e-1}} {
		subjects = append(subjects, orttest.Subject{Dir: "testdata/" + c.name, Device: ort.Options{Device: device}, Tolerance: c.tolerance})
	}
	// With passes of uniform shape recorded as CUDA graphs.
	recorded := ort.Options{Device: device, ProviderOptions: map[string]string{"enable_cuda_graph": "1"}}
	subjects = append(subjects, orttest.Subject{Dir: "testdata/gqa-float16", Device: recorded, Tolerance: 3e-2})
	// The fallback: GroupQueryAttention, one sequence after another.
	asExported := ort.Options{Device: device, AsExported: true}
	subjects = append(subjects, orttest.Subject{Dir: "testdata/gqa-float16", Device: asExported, Tolerance: 3e-2})
	return subjects
}

// TestConformanceCUDA plays the suite on the first GPU.
func TestConformanceCUDA(t *testing.T) {
	initDevice(t, "cuda")
	gpus(t)
	for _, s := range cudaSubjects("cuda") {
		t.Run(fmt.Sprint(s.Dir, s.Device.AsExported, s.Device.ProviderOptions), func(t *testing.T) { orttest.Conform(t, s) })
	}
}

// TestConformanceCUDANarrow plays it with a cache of 8 bits.
func TestConformanceCUDANarrow(t *testing.T) {
	initDevice(t, "cuda")
	gpus(t)
	orttest.Conform(t, orttest.Subject{Dir: narrow(t, "testdata/gqa-float16"), Device: ort.Options{Device: "cuda"}, Tolerance: 5e-2})
}

// TestCUDAPaged: passes are ragged there, with paged attention.
func TestCUDAPaged(t *testing.T) {
	initDevice(t, "cuda")
	gpus(t)
	for _, name := range []string{"gqa", "gqa-float16", "bfloat16", "growing"} {
		b, err := ort.OpenBundle("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ort.Load(b, ort.Options{Device: "cuda"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := m.Ragged(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if free, total, err := m.DeviceMemory(); err != nil || free <= 0 || total <= free {
			t.Errorf("%d of %d bytes are free, %v", free, total, err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCUDASideBySide plays it on all GPUs at once, and twice on the only one.
func TestCUDASideBySide(t *testing.T) {
	initDevice(t, "cuda")
	n := gpus(t)
	var wg sync.WaitGroup
	for i := range max(n, 2) {
		device := fmt.Sprintf("cuda:%d", i%n)
		wg.Go(func() {
			for _, s := range cudaSubjects(device) {
				t.Run(fmt.Sprintf("%d on %s/%s/%v%v", i, device, s.Dir, s.Device.AsExported, s.Device.ProviderOptions), func(t *testing.T) { orttest.Conform(t, s) })
			}
		})
	}
	wg.Wait()
	t.Logf("%d GPUs", n)
}

// TestCUDARefuses says in one line what cannot be.
func TestCUDARefuses(t *testing.T) {
	initDevice(t, "cuda")
	for _, c := range []struct {
		dir, device string
		asExported  bool
		want        string
	}{
		{"gqa", "cuda", true, "GroupQueryAttention runs in float16 and bfloat16"},
		{"gqa-float16", fmt.Sprintf("cuda:%d", gpus(t)), false, "no GPU of this number"},
	} {
		b, err := ort.OpenBundle("testdata/" + c.dir)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ort.Load(b, ort.Options{Device: c.device, AsExported: c.asExported})
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s on %s: got %v, want %q", c.dir, c.device, err, c.want)
		}
	}
}
