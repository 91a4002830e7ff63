package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerify: a job's log replays; a copy in which one bit is flipped does not.
func TestVerify(t *testing.T) {
	out := t.TempDir()
	run(t, "submit", small(out)...)
	run(t, "submit", "verify", "small", "--out", out)

	part := filepath.Join(out, "small", "loops", "mode=sps", "part-00002.parquet")
	data, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/3] ^= 4
	if err := os.WriteFile(part, data, 0o600); err != nil {
		t.Fatal(err)
	}
	p := command("submit", "verify", "small", "--out", out).start(t)
	if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), "part-00002.parquet") {
		t.Errorf("verify of a tampered job exits with %d:\n%s", code, &p.stderr)
	}
}

// TestVerifyModels: the models draw every token of a job again, with and without
// the draft; other models are refused.
func TestVerifyModels(t *testing.T) {
	for _, rule := range []string{"rejection", "coupled"} {
		out := t.TempDir()
		run(t, "submit", small(out, "--rule", rule, "--top-p", "0.9", "--lanes", "4")...)
		p := run(t, "submit", "verify", "small", "--out", out, "--models", "--json")
		var held struct {
			Texts  bool
			Models struct {
				Drafts bool
				Modes  []struct{ Completions, Tokens, Drawn, Ties, Believed int }
			}
		}
		if err := json.Unmarshal(p.stdout.Bytes(), &held); err != nil || !held.Texts || !held.Models.Drafts || len(held.Models.Modes) != 2 {
			t.Fatalf("%s: %v: %s", rule, err, &p.stdout)
		}
		for _, m := range held.Models.Modes {
			if m.Completions != 12 || m.Tokens == 0 || m.Drawn != m.Tokens || m.Ties != 0 || m.Believed != 0 {
				t.Errorf("%s: %+v", rule, m)
			}
		}
		var scored struct {
			Modes map[string]struct {
				Metrics map[string]struct{ Mean float64 }
			}
		}
		p = run(t, "submit", "score", "small", "--out", out, "--by", "likelihood", "--json")
		if err := json.Unmarshal(p.stdout.Bytes(), &scored); err != nil {
			t.Fatal(err)
		}
		ars, sps := scored.Modes["ars"].Metrics["likelihood"].Mean, scored.Modes["sps"].Metrics["likelihood"].Mean
		if !(ars > 0.5 && ars < 1 && sps > 0.5 && sps < 1) || (ars == sps) != (rule == "coupled") {
			t.Errorf("%s: the target's likelihood of ars is %v, of sps %v", rule, ars, sps)
		}
		p = command("submit", "verify", "small", "--out", out, "--models", "--target", "testdata/demo/draft").start(t)
		if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), "digest") {
			t.Errorf("%s: verify with another target exits with %d: %s", rule, code, &p.stderr)
		}
	}
}

// TestCertify: the demo pair passes under the default rule and fails under a
// lossy one, and both certificates are written.
func TestCertify(t *testing.T) {
	for rule, want := range map[string]string{"rejection": "PASS", "lenient:0.1": "FAIL"} {
		certificate := filepath.Join(t.TempDir(), "certificate.json")
		p := command("submit", "certify", "--dataset", "testdata/demo/minieval.parquet", "--temperature", "1",
			"--prompts", "6", "--samples", "200", "--tokens", "12", "--rule", rule, "--output", certificate).start(t)
		code := p.code(t)
		if (code == 0) != (want == "PASS") || !strings.Contains(p.stdout.String(), want) {
			t.Errorf("rule %s: exit code %d\n%s%s", rule, code, &p.stdout, &p.stderr)
		}
		if data, err := os.ReadFile(certificate); err != nil || !strings.Contains(string(data), `"detectable"`) {
			t.Errorf("rule %s: certificate %.200s (%v)", rule, data, err)
		}
	}
}
