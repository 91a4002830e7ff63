package e2e

import (
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

// TestCertify: the demo pair passes under the default rule and fails under a
// lossy one, and both certificates are written.
func TestCertify(t *testing.T) {
	for rule, want := range map[string]string{"rejection": "PASS", "lenient:0.2": "FAIL"} {
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
