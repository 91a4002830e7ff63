package ort

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/draftmill/draftmill/ort/library"
)

// within polls until ok holds.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, d)
		}
	}
}

func TestCancel(t *testing.T) {
	eachModel(t, func(t *testing.T, m *Model) {
		d := decoderT(t, m)
		s := sequenceT(t, d)
		s.feed(0, 1, 2, 3, 4, 5)
		forward := func(ctx context.Context) error {
			_, err := d.Forward(ctx, whole([]int{s.slot}, []int{2}, [][]int32{{9, 9, 9}}))
			return err
		}

		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := forward(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("ended before: got %v", err)
		}

		// The end of an armed context reaches the runtime: the session's own
		// run fails, with no check in between.
		armed, cancel := context.WithCancel(context.Background())
		if err := forward(armed); err != nil {
			t.Fatal(err)
		}
		cancel()
		within(t, 2*time.Minute, "the run is terminated", func() bool {
			_, err := d.caches.forward([]span{{Span: whole([]int{s.slot}, []int{2}, [][]int32{{9}})[0], held: 2}}, 1)
			return err != nil && strings.Contains(err.Error(), "terminate")
		})
		if err := forward(armed); !errors.Is(err, context.Canceled) {
			t.Errorf("ended between: got %v", err)
		}

		// An earlier context has no power over later runs, and the cache is as
		// it was before the cancelled ones.
		fresh := sequenceT(t, d)
		fresh.feed(0, 1, 2, 3, 4, 5)
		bitEqual(t, "after a cancel", s.feed(2, 3, 4, 5), fresh.feed(2, 3, 4, 5))

		// Cancels at any moment.
		for i := range 100 {
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				for range i * 20 {
					runtime.Gosched()
				}
				cancel()
			}()
			var err error
			for err == nil {
				err = forward(ctx)
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
		}
		bitEqual(t, "after many cancels", s.feed(2, 3, 4, 5), fresh.feed(2, 3, 4, 5))
	})
}

func TestClose(t *testing.T) {
	eachModel(t, func(t *testing.T, m *Model) {
		before := liveBytes.Load()
		d, err := m.NewDecoder(0)
		if err != nil {
			t.Fatal(err)
		}
		s := sequenceT(t, d)
		s.feed(0, 1, 2, 3)

		// The session outlives its model's Close while a decoder is open.
		if err := errors.Join(m.Close(), m.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := m.NewDecoder(0); err == nil {
			t.Error("a decoder of a closed model")
		}
		s.feed(3, 4)

		// Close while another goroutine decodes.
		var wg sync.WaitGroup
		started := make(chan struct{})
		wg.Go(func() {
			for i := 0; ; i++ {
				_, err := d.Forward(context.Background(), whole([]int{s.slot}, []int{0}, [][]int32{{1, 2, 3, 4, 5, 6, 7, 8}}))
				if i == 0 {
					close(started)
				}
				if err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("got %v, want %v", err, ErrClosed)
					}
					return
				}
			}
		})
		<-started
		for range 2 {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		if _, err := d.Alloc(); !errors.Is(err, ErrClosed) {
			t.Errorf("alloc: got %v", err)
		}
		d.Free(s.slot)
		if n := liveBytes.Load(); n != before {
			t.Errorf("%d bytes are left", n-before)
		}
	})
}

// TestOpenCloseStaysFlat: memory outside Go's heap does not grow with what was
// opened and closed. `make soak` does it 10,000 times.
func TestOpenCloseStaysFlat(t *testing.T) { openClose(t, 200, 12<<20) }

// openClose opens and closes models and decoders over and over.
func openClose(t *testing.T, cycles, margin int) {
	t.Helper()
	needLibrary(t)
	const warm = 50
	var bundles []*Bundle
	for _, name := range tiny {
		bundles = append(bundles, openBundleT(t, modelDir(name)))
	}
	live := liveBytes.Load()
	cycle := func(i int) {
		m, err := Load(bundles[i%len(bundles)], Options{Threads: 2, AsExported: i%2 == 1})
		if err != nil {
			t.Fatal(err)
		}
		d, err := m.NewDecoder(0)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s := sequenceT(t, d)
			s.feed(0, selfTestTokens(20, d.Vocab())...)
			s.feed(17, 5, 6, 7, 8, 9)
		}
		if err := errors.Join(d.Close(), m.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range warm {
		cycle(i)
	}
	start := residentBytes(t)
	for i := range cycles {
		cycle(i)
	}
	grown := residentBytes(t) - start
	t.Logf("%d cycles grew the process by %d KiB", cycles, grown>>10)
	if grown > margin {
		t.Errorf("that is more than %d KiB", margin>>10)
	}
	if n := liveBytes.Load(); n != live {
		t.Errorf("%d bytes are left", n-live)
	}
}

// TestLongDecodingStaysFlat: a step's cost in memory does not depend on how
// many other lengths were fed before.
func TestLongDecodingStaysFlat(t *testing.T) {
	for _, name := range tiny {
		s := sequenceT(t, decoderT(t, loadT(t, modelDir(name), Options{})))
		text := func() {
			for past := range s.d.Context() - 5 {
				s.feed(past, 1, 2, 3, 4, 5)
				s.feed(past, 6)
			}
		}
		for range 5 {
			text()
		}
		start := residentBytes(t)
		for range 20 {
			text()
		}
		if grown := residentBytes(t) - start; grown > 6<<20 {
			t.Errorf("%s: 20 texts grew the process by %d KiB", name, grown>>10)
		}
	}
}

// residentBytes is the process's resident memory after a collection: on Linux
// the present one, elsewhere the peak, which the system tells everywhere.
func residentBytes(t *testing.T) int {
	t.Helper()
	runtime.GC()
	if runtime.GOOS != "linux" {
		peak, err := peakBytes()
		if err != nil {
			t.Fatal(err)
		}
		return peak
	}
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize()
}

// initChild names the library that a child process of this test loads.
const initChild = "ORT_TEST_INIT_CHILD"

func runInitChild(path string) int {
	err := Init(path)
	if err == nil {
		err = errors.Join(Init(path), Init(path+".other"))
	}
	fmt.Println(err)
	return 0
}

// TestInit runs in children, because a process loads one library for good.
func TestInit(t *testing.T) {
	real, err := library.Find("")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := filepath.Join(dir, "text.so")
	if err := os.WriteFile(text, []byte("no library\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "none.so"), "load onnx runtime: " + filepath.Join(dir, "none.so") + ": cannot open shared object file"},
		{text, "load onnx runtime: " + text},
		{"libc.so.6", "not an ONNX Runtime library"},
		{real, "this process already uses " + real},
	} {
		if runtime.GOOS != "linux" && c.path != real {
			continue // other systems' loaders use other words
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), initChild+"="+c.path)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.path, err, out)
		}
		if out = bytes.TrimSpace(out); !strings.Contains(string(out), c.want) || bytes.Contains(out, []byte("\n")) {
			t.Errorf("%s: got %q, want %q", c.path, out, c.want)
		}
	}
	needLibrary(t)
	if Version() != library.Version && os.Getenv(library.EnvVar) == "" {
		t.Errorf("loaded version %s, installed %s", Version(), library.Version)
	}
}

func TestLoadRefuses(t *testing.T) {
	needLibrary(t)
	b := openBundleT(t, modelDir("gqa"))
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"device", Options{Device: "abacus"}, `device "abacus" is not known: use cpu`},
		{"threads", Options{Threads: -1}, "-1 threads"},
		{"context", Options{Context: -1}, "context of -1 tokens"},
		{"session option", Options{SessionConfig: map[string]string{"": "1"}}, "session option =1"},
	} {
		m, err := Load(b, c.o)
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "load model testdata/gqa: ") {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if m := loadT(t, modelDir("gqa"), Options{Context: 1 << 20}); m.Context() != b.Context {
		t.Errorf("context %d, want the model's %d", m.Context(), b.Context)
	}
}

func TestSelfTest(t *testing.T) {
	eachModel(t, func(t *testing.T, m *Model) {
		for _, s := range []int{1, 5, 9} {
			if err := m.SelfTest(s); err != nil {
				t.Error(err)
			}
		}
		if err := m.SelfTest(m.Context()); err == nil || !strings.Contains(err.Error(), "do not fit") {
			t.Errorf("as many tokens as the context: got %v", err)
		}
	})
	// A model whose tokens see those after them is what a wrong kernel looks like.
	err := loadT(t, modelDir("acausal"), Options{}).SelfTest(5)
	if err == nil || !strings.Contains(err.Error(), "cannot verify drafts") {
		t.Errorf("a wrong model: got %v", err)
	}
}

func TestBarePass(t *testing.T) {
	eachModel(t, func(t *testing.T, m *Model) {
		for _, c := range []struct{ past, s int }{{0, 1}, {10, 1}, {10, 5}} {
			if mean, err := m.BarePass(1, c.past, c.s, 10); err != nil || mean <= 0 {
				t.Errorf("%d after %d: %v, %v", c.s, c.past, mean, err)
			}
		}
		if mean, err := m.BarePass(3, 10, 5, 10); (err == nil && mean > 0) != (m.Ragged() == nil) {
			t.Errorf("three sequences: %v, %v", mean, err)
		}
		if _, err := m.BarePass(1, m.Context(), 1, 1); !errors.Is(err, ErrContextFull) {
			t.Errorf("beyond the context: %v", err)
		}
	})
}
