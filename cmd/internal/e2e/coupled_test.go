package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/storage"
)

// texts are a mode's completions, tokens and text, by row and sample.
func texts(t *testing.T, dir, mode string) map[string]string {
	t.Helper()
	job, err := storage.OpenJob(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	if err := job.ReadCompletions(mode, func(c storage.Completion) error {
		all[fmt.Sprintf("row %d sample %d", c.Row, c.Sample)] = fmt.Sprintf("%v %q %s", c.Tokens, c.Completion, c.FinishReason)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestCoupledDoesNotDependOnTheDraft: with real models, speculative sampling
// under the rule coupled gives the bytes of autoregressive sampling, whatever K
// is, however it is chosen, whatever drafts and however many lanes there are.
func TestCoupledDoesNotDependOnTheDraft(t *testing.T) {
	for _, temperature := range []string{"0", "0.8", "1.3"} {
		t.Run(temperature, func(t *testing.T) {
			args := func(out string, more ...string) []string {
				return small(out, append([]string{"--rule", "coupled", "--temperature", temperature, "--limit", "8", "--max-new-tokens", "40"}, more...)...)
			}
			out := t.TempDir()
			run(t, "submit", args(out, "--mode", "ars")...)
			want := texts(t, filepath.Join(out, "small"), "ars")
			if len(want) != 8 {
				t.Fatalf("%d completions", len(want))
			}
			for _, c := range [][]string{
				{"--k", "1"}, {"--k", "4", "--lanes", "8"}, {"--k", "8"}, {"--lookahead", "auto", "--lanes", "8"},
				{"--drafter", "lookup", "--lanes", "8"}, {"--drafter", "model+lookup", "--lookahead", "confidence:0.4"},
			} {
				out := t.TempDir()
				run(t, "submit", args(out, append(c, "--mode", "sps")...)...)
				got := texts(t, filepath.Join(out, "small"), "sps")
				for _, key := range slices.Sorted(maps.Keys(want)) {
					if got[key] != want[key] {
						t.Errorf("%v: %s is\n%s\nautoregressively\n%s", c, key, got[key], want[key])
					}
				}
				run(t, "submit", "verify", "small", "--out", out)
			}
		})
	}
}

// TestCoupledReport: a job in both modes says that they are identical, instead of
// a test.
func TestCoupledReport(t *testing.T) {
	out := t.TempDir()
	p := run(t, "submit", small(out, "--rule", "coupled", "--json")...)
	var summary struct {
		Identical *struct {
			Same        int
			Divergences []any
		}
		Lossy bool
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &summary); err != nil {
		t.Fatal(err)
	}
	if summary.Lossy || summary.Identical == nil || summary.Identical.Same != 12 || len(summary.Identical.Divergences) != 0 {
		t.Errorf("%s", p.stdout.String())
	}
}
