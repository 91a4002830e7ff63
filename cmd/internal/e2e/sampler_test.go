package e2e

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestSamplerOnDevice: jobs whose tokens are drawn and verified by the device's
// sampler say so, are killed and resumed like others, pass verify with and without
// the models, and have the tokens of the same job on the host but for ties, of which
// verify knows each. Under rules that promise it, both modes have the same tokens.
func TestSamplerOnDevice(t *testing.T) {
	for name, flags := range map[string][]string{
		"nucleus": {"--top-p", "0.95", "--lanes", "4", "--limit", "8"},
		"greedy":  {"--temperature", "0", "--repetition-penalty", "1.1", "--lanes", "3", "--k", "6", "--limit", "8"},
		"coupled": {"--temperature", "1", "--top-p", "0.95", "--rule", "coupled", "--k", "4", "--lanes", "4", "--limit", "4", "--max-new-tokens", "30"},
		"match":   {"--temperature", "1", "--rule", "match", "--k", "1", "--lanes", "2", "--limit", "4", "--max-new-tokens", "30"},
		"auto":    {"--temperature", "1", "--lookahead", "auto", "--lanes", "auto", "--rule", "lenient:0.6", "--limit", "6"},
	} {
		t.Run(name, func(t *testing.T) {
			host, out := t.TempDir(), t.TempDir()
			run(t, "submit", small(host, flags...)...)
			there := small(out, append([]string{"--sampler", "device"}, flags...)...)
			dir := filepath.Join(out, "small")
			p := command("submit", there...).start(t)
			until(t, "some shards", func() bool { return committed(t, dir) > 1 })
			p.signal(t, syscall.SIGKILL)
			p.code(t)
			run(t, "submit", there...)
			if !strings.Contains(p.stderr.String(), "draws on the device") {
				t.Errorf("it does not say where it draws:\n%s", &p.stderr)
			}
			draws := p
			p = run(t, "submit", "verify", "small", "--out", out, "--models", "--json")
			var verified struct {
				Models struct {
					Modes []struct {
						Ties   int
						Tokens int
					}
				}
			}
			if err := json.Unmarshal(p.stdout.Bytes(), &verified); err != nil || len(verified.Models.Modes) != 2 {
				t.Fatalf("%v: %s", err, &p.stdout)
			}
			ties := 0
			for _, m := range verified.Models.Modes {
				ties += m.Ties
			}
			differ, apart := 0, 0
			want, got := tokens(t, filepath.Join(host, "small")), tokens(t, dir)
			for key, x := range got {
				if !slices.Equal(x, want[key]) {
					differ++
				}
				if row, ok := strings.CutPrefix(key, "ars"); ok && !slices.Equal(x, got["sps"+row]) {
					apart++
				}
			}
			if slices.Contains(flags, "coupled") || slices.Contains(flags, "match") {
				if t.Logf("%d of %d rows differ between the modes", apart, len(got)/2); apart > ties {
					t.Errorf("%d rows differ between the modes, with %d ties", apart, ties)
				}
				if !strings.Contains(draws.stderr.String(), "but for ties") {
					t.Errorf("it does not say what is promised of the tokens:\n%s", &draws.stderr)
				}
			}
			t.Logf("%d of %d completions differ from the host's, %d ties", differ, len(want), ties)
			if differ > ties && name != "auto" || ties > 3 { // what auto drafts depends on times
				t.Errorf("%d of %d completions differ from the host's, with %d ties", differ, len(want), ties)
			}
		})
	}
}

// TestSamplerCertified: certify finds the target's law in what the device draws.
func TestSamplerCertified(t *testing.T) {
	p := run(t, "submit", "certify", "--dataset", "testdata/demo/minieval.parquet", "--temperature", "1", "--sampler", "device",
		"--prompts", "4", "--samples", "150", "--tokens", "8", "--output", filepath.Join(t.TempDir(), "certificate.json"))
	if !strings.Contains(p.stdout.String(), "PASS") || !strings.Contains(p.stderr.String(), "draws on the device") {
		t.Errorf("%s%s", &p.stdout, &p.stderr)
	}
}
