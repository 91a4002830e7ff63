package ort

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressOfABundle(t *testing.T) {
	needLibrary(t)
	dir := exportedDir("llama-builder")
	var steps []Step
	told := func(s Step) { steps = append(steps, s) }
	b, err := OpenBundleWith(dir, told)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Load(b, Options{Progress: told})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	var names []string
	for _, s := range steps {
		if s.Done == s.Total {
			names = append(names, s.Name)
		}
		if s.Dir != dir || s.Total != b.Bytes || s.Elapsed <= 0 {
			t.Errorf("step %+v", s)
		}
	}
	if !slices.Equal(names, []string{"read", "load"}) {
		t.Errorf("ends of steps: %v", names)
	}
	if openBundleT(t, dir).Digest != b.Digest {
		t.Error("another digest without progress")
	}
	// A step that fails has no end.
	steps = nil
	if _, err := OpenBundleWith(exportedDir(filepath.Join("refused", "pruned")), told); err == nil || len(steps) != 0 {
		t.Errorf("%v: told of %+v", err, steps)
	}
	if _, err := Load(b, Options{Device: "abacus", Progress: told}); err == nil || len(steps) != 0 {
		t.Errorf("%v: told of %+v", err, steps)
	}
}

// TestProgressOverTime: a report each second, and none after the end.
func TestProgressOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []Step
		m := Progress(func(s Step) { steps = append(steps, s) }).start("read", "model", 100)
		for range 4 {
			time.Sleep(700 * time.Millisecond)
			if _, err := m.Write(make([]byte, 20)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		m.end(nil)
		time.Sleep(time.Minute)
		want := []Step{
			{"read", "model", 20, 100, time.Second},
			{"read", "model", 40, 100, 2 * time.Second},
			{"read", "model", 100, 100, 2800 * time.Millisecond},
		}
		if !slices.Equal(steps, want) {
			t.Errorf("got %v, want %v", steps, want)
		}

		steps = nil
		m = Progress(func(s Step) { steps = append(steps, s) }).start("load", "model", 100)
		time.Sleep(1500 * time.Millisecond)
		m.end(errors.New("no memory"))
		if want := []Step{{"load", "model", 0, 100, time.Second}}; !slices.Equal(steps, want) {
			t.Errorf("a step that failed: got %v, want %v", steps, want)
		}
		Progress(nil).start("load", "model", 100).end(nil)
	})
}

func TestLogProgress(t *testing.T) {
	var out bytes.Buffer
	tell := LogProgress(slog.New(slog.NewTextHandler(&out, nil)))
	tell(Step{"read", "big", 1_500_000_000, 3_000_000_000, 2 * time.Second})
	tell(Step{"load", "big", 0, 3_000_000_000, time.Second})
	tell(Step{"load", "big", 3_000_000_000, 3_000_000_000, 5 * time.Second})
	tell(Step{"load", "small", 1000, 1000, time.Millisecond}) // too short to be worth a line
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		`level=INFO msg="reading the model" dir=big MB=3000 done=1500 seconds=2.0`,
		`level=INFO msg="loading the model" dir=big MB=3000 seconds=1.0`,
		`level=INFO msg="model loaded" dir=big MB=3000 seconds=5.0`,
	}
	if len(lines) != len(want) {
		t.Fatalf("got\n%s", out.String())
	}
	for i := range want {
		if !strings.HasSuffix(lines[i], want[i]) {
			t.Errorf("got %s, want %s", lines[i], want[i])
		}
	}
}
