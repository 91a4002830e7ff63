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
	}{{"gqa-float16", 3e-2}, {"growing", 2e-3}, {"float16", 3e-2}} {
		subjects = append(subjects, orttest.Subject{Dir: "testdata/" + c.name, Device: ort.Options{Device: device}, Tolerance: c.tolerance})
	}
	return subjects
}

// TestConformanceCUDA plays the suite on the first GPU.
func TestConformanceCUDA(t *testing.T) {
	initDevice(t, "cuda")
	gpus(t)
	for _, s := range cudaSubjects("cuda") {
		t.Run(s.Dir, func(t *testing.T) { orttest.Conform(t, s) })
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
				t.Run(fmt.Sprintf("%d on %s/%s", i, device, s.Dir), func(t *testing.T) { orttest.Conform(t, s) })
			}
		})
	}
	wg.Wait()
	t.Logf("%d GPUs", n)
}

// TestCUDARefuses says in one line what cannot be.
func TestCUDARefuses(t *testing.T) {
	initDevice(t, "cuda")
	for _, c := range []struct{ dir, device, want string }{
		{"gqa", "cuda", "GroupQueryAttention runs in float16 and bfloat16"},
		{"gqa-float16", fmt.Sprintf("cuda:%d", gpus(t)), "no GPU of this number"},
	} {
		b, err := ort.OpenBundle("testdata/" + c.dir)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ort.Load(b, ort.Options{Device: c.device})
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s on %s: got %v, want %q", c.dir, c.device, err, c.want)
		}
	}
}
