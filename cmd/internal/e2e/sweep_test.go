package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSweepTakesTurns: the jobs of a sweep share one queue, shard by shard, so
// that a machine whose speed changes does so for all of them. A sweep that was
// killed goes on where it was.
func TestSweepTakesTurns(t *testing.T) {
	out := t.TempDir()
	args := []string{"sweep", "--k", "0,2,auto", "--dataset", "testdata/demo/minieval.parquet", "--limit", "8", "--shard-rows", "2",
		"--max-new-tokens", "40", "--job", "s", "--out", out, "--json"}
	jobs := []string{"s-k0", "s-k2", "s-kauto"}
	p := command("submit", args...).start(t)
	until(t, "a commit", func() bool {
		n := 0
		for _, job := range jobs {
			n += committed(t, filepath.Join(out, job))
		}
		return n > 0
	})
	p.signal(t, syscall.SIGKILL)
	p.code(t)
	p = run(t, "submit", args...)

	var first, last [3]time.Time // commits of each job
	for i, job := range jobs {
		parts, err := filepath.Glob(filepath.Join(out, job, "completions", "mode=*", "part-*.parquet"))
		if err != nil || len(parts) != 4 {
			t.Fatalf("job %s has the files %q (%v)", job, parts, err)
		}
		for _, part := range parts {
			info, err := os.Stat(part)
			if err != nil {
				t.Fatal(err)
			}
			if at := info.ModTime(); first[i].IsZero() || at.Before(first[i]) {
				first[i] = at
			}
			if at := info.ModTime(); at.After(last[i]) {
				last[i] = at
			}
		}
	}
	for i := range jobs {
		for j := range jobs {
			if first[i].After(last[j]) {
				t.Errorf("%s began when %s was complete", jobs[i], jobs[j])
			}
		}
	}
	var grids []struct {
		Sweep struct {
			Points []struct{ K int }
			Auto   *struct{ Speedup *float64 }
		}
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &grids); err != nil || len(grids) != 1 {
		t.Fatalf("%v:\n%s", err, &p.stdout)
	}
	if s := grids[0].Sweep; len(s.Points) != 2 || s.Points[1].K != 2 || s.Auto == nil || s.Auto.Speedup == nil {
		t.Errorf("the sweep says\n%s", &p.stdout)
	}
	left, err := filepath.Glob(filepath.Join(out, "_*"))
	if err != nil || left != nil {
		t.Errorf("a finished sweep leaves %q (%v)", left, err)
	}
	again := run(t, "submit", args...)
	if again.stdout.String() != p.stdout.String() || strings.Contains(again.stderr.String(), "queued") {
		t.Errorf("a second run says\n%s%s", &again.stderr, &again.stdout)
	}
}
