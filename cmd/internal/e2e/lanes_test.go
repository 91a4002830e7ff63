package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/draftmill/draftmill/storage"
)

// record is everything in a job's files but times and company, in the order of
// the files.
func record(t *testing.T, dir string) (lines []string, lanes int32) {
	t.Helper()
	job, err := storage.OpenJob(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"ars", "sps"} {
		if err := job.ReadCompletions(mode, func(c storage.Completion) error {
			lines = append(lines, fmt.Sprintf("%s %d/%d %v %q %s %d %d %d", mode, c.Row, c.Sample, c.Tokens, c.Completion, c.FinishReason, c.Loops, c.Drafted, c.Accepted))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := job.ReadLoops(mode, func(l storage.Loop) error {
			lanes = max(lanes, l.Lanes)
			l.Lanes, l.DraftNS, l.ScoreNS, l.SampleNS = 0, 0, 0, 0
			margin := 0.0
			if l.Margin != nil {
				margin, l.Margin = *l.Margin, nil
			}
			lines = append(lines, fmt.Sprintf("%s %+v %v", mode, l, margin))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return lines, lanes
}

// TestLanesChangeNothing: with real models on the CPU, what a job writes is the
// same to the last bit of its probabilities, however many sequences share the
// passes.
func TestLanesChangeNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"sampled", []string{"--n", "3", "--limit", "8"}},
		{"greedy, with lookup", []string{"--temperature", "0", "--drafter", "model+lookup"}},
		{"penalties, lookup", []string{"--drafter", "lookup", "--presence-penalty", "0.3", "--top-p", "0.9"}},
		{"confidence", []string{"--lookahead", "confidence:0.5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := t.TempDir()
			run(t, "submit", small(out, c.args...)...)
			want, _ := record(t, filepath.Join(out, "small"))
			for _, lanes := range []string{"3", "auto"} {
				out := t.TempDir()
				run(t, "submit", small(out, append(c.args, "--lanes", lanes)...)...)
				got, most := record(t, filepath.Join(out, "small"))
				if lanes == "3" && most != 3 {
					t.Errorf("of 3 lanes %d are used", most)
				}
				if len(got) != len(want) {
					t.Fatalf("lanes %s: %d rows, want %d", lanes, len(got), len(want))
				}
				for i := range want {
					if got[i] != want[i] {
						t.Fatalf("lanes %s: row %d is\n%s\nalone it is\n%s", lanes, i, got[i], want[i])
					}
				}
				run(t, "submit", "verify", "small", "--out", out)
			}
		})
	}
}

// TestKillWithLanes: several shards are in hand when submit is killed.
func TestKillWithLanes(t *testing.T) {
	calm, out := t.TempDir(), t.TempDir()
	run(t, "submit", small(calm)...)
	dir := filepath.Join(out, "small")
	for _, shards := range []int{1, 5} {
		p := command("submit", small(out, "--lanes", "5")...).start(t)
		until(t, "a commit", func() bool { return committed(t, dir) >= shards })
		p.signal(t, syscall.SIGKILL)
		p.code(t)
	}
	p := command("submit", small(out, "--lanes", "5")...).start(t)
	until(t, "a commit", func() bool { return committed(t, dir) >= 8 })
	p.signal(t, syscall.SIGINT) // finishes what is in hand
	if code := p.code(t); code == 1 && !strings.Contains(p.stderr.String(), "run the same command again") {
		t.Errorf("interrupted:\n%s", &p.stderr)
	}
	run(t, "submit", small(out, "--lanes", "5")...)
	same(t, tokens(t, dir), tokens(t, filepath.Join(calm, "small")))
}
