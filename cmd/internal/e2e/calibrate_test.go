package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// TestCalibrate: a model that was given a cache of 8 bits is a target like any other:
// without temperature both modes have its tokens, and its job is verified with the
// models; the model that it was made of is another.
func TestCalibrate(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	narrow := filepath.Join(dir, "narrow")
	p := run(t, "submit", "calibrate", "testdata/demo/target", narrow, "--dataset", "testdata/demo/minieval.parquet",
		"--column", "prompt", "--column", "canonical_solution", "--tokens", "1500", "--json")
	var made struct {
		Digest string
		Bytes  int `json:"cache_bytes_per_token"`
		Before int `json:"cache_bytes_per_token_before"`
		Tokens int
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &made); err != nil || made.Bytes != 768 || made.Before != 4*made.Bytes || made.Tokens != 1500 {
		t.Fatalf("made %+v, %v", made, err)
	}
	if said := run(t, "submit", "inspect", narrow).stdout.String(); !strings.Contains(said, "int8, layers 6") || !strings.Contains(said, "768 B") {
		t.Errorf("inspect says\n%s", said)
	}
	p = run(t, "submit", small(out, "--target", narrow, "--draft", "testdata/demo/draft", "--temperature", "0", "--lanes", "4", "--json")...)
	var summary struct {
		Greedy *struct {
			Same        int
			Divergences []struct{ Margin float64 }
		}
		Modes map[string]struct{ Drafted int }
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &summary); err != nil || summary.Greedy == nil || summary.Greedy.Same != 12 || summary.Modes["sps"].Drafted == 0 {
		t.Errorf("%v: %s", err, &p.stdout)
	}
	run(t, "submit", "verify", "small", "--out", out, "--models")
	p = command("submit", "verify", "small", "--out", out, "--models", "--target", "testdata/demo/target").start(t)
	if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), "digest") {
		t.Errorf("verify with the float cache exits with %d: %s", code, &p.stderr)
	}
	for want, args := range map[string][]string{
		"is there already": {narrow},
		"this one is int8": {filepath.Join(dir, "again"), "of a narrow one"},
	} {
		model := "testdata/demo/target"
		if len(args) > 1 {
			model = narrow
		}
		p = command("submit", "calibrate", model, args[0], "--dataset", "testdata/demo/minieval.parquet", "--tokens", "50").start(t)
		if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), want) {
			t.Errorf("calibrate %s %s exits with %d: %s", model, args[0], code, &p.stderr)
		}
	}
}
