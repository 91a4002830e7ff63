package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEncoderDecoder runs jobs of encoder-decoder targets with every kind of draft:
// greedy text does not depend on what drafts, the log replays with and without the
// models, and a certificate passes.
func TestEncoderDecoder(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "prompts.jsonl")
	var rows strings.Builder
	for i, prompt := range []string{"the quick brown fox", "def the_answer(n):", "0123456789 0123456789 0123456789", "x = [1, 2, 3", strings.Repeat("too long ", 20)} {
		line, err := json.Marshal(map[string]any{"id": i, "prompt": prompt})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&rows, "%s\n", line)
	}
	if err := os.WriteFile(data, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ target, temperature, draft, drafter string }{
		{"t5-optimum", "0", "t5-optimum-split", "model"},
		{"t5-optimum", "0", "", "lookup"},
		{"t5-optimum-split", "0.9", "mt5-optimum", "model"},
		{"bart-optimum", "0", "marian-optimum", "model"},
		{"marian-optimum", "1", "", "uniform"},
	} {
		name := fmt.Sprintf("pair%d", i)
		args := []string{"--dataset", data, "--target", models + c.target, "--drafter", c.drafter, "--temperature", c.temperature,
			"--max-new-tokens", "30", "--k", "4", "--seed", "3", "--n", "2", "--lanes", "3", "--job", name, "--out", dir, "--json"}
		if c.draft != "" {
			args = append(args, "--draft", models+c.draft)
		}
		p := run(t, "submit", args...)
		var summary struct {
			Modes map[string]struct{ Samples, Errors, Drafted int }
		}
		if err := json.Unmarshal(p.stdout.Bytes(), &summary); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []string{"ars", "sps"} {
			if m := summary.Modes[mode]; m.Samples != 10 || m.Errors != 2 || (m.Drafted > 0) != (mode == "sps") {
				t.Errorf("%v, %s: %+v; one row of two samples has no room", c, mode, m)
			}
		}
		got := tokens(t, filepath.Join(dir, name))
		for key, ars := range got {
			if rest, ok := strings.CutPrefix(key, "ars "); ok && c.temperature == "0" && !slices.Equal(ars, got["sps "+rest]) {
				t.Errorf("%v: %s is %v with autoregressive sampling and %v with speculative", c, rest, ars, got["sps "+rest])
			}
		}
		args = []string{"verify", name, "--out", dir, "--models", "--target", models + c.target}
		if c.draft != "" {
			args = append(args, "--draft", models+c.draft)
		}
		run(t, "submit", append(args, "--dataset", data)...)
	}
	p := run(t, "submit", "certify", "--dataset", data, "--target", models+"bart-optimum", "--draft", models+"marian-optimum", "--temperature", "1",
		"--prompts", "4", "--samples", "100", "--tokens", "6", "--output", filepath.Join(dir, "certificate.json"))
	if !strings.Contains(p.stdout.String(), "PASS") {
		t.Errorf("certify: %s", &p.stdout)
	}
	for _, args := range [][]string{
		{"--target", models + "t5-optimum", "--draft", models + "llama-optimum"},
		{"--target", models + "mt5-optimum", "--draft", models + "t5-optimum"},
	} {
		p := command("submit", append([]string{"--dataset", data, "--out", dir}, args...)...).start(t)
		if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), "choose a draft of the target's family") {
			t.Errorf("%v: exit code %d: %s", args, code, &p.stderr)
		}
	}
}

// TestTranslate runs the translation pair's file: both modes say the same, as does a
// job whose sequences share passes and draft from the text itself, most drafted tokens
// are accepted, and the log replays.
func TestTranslate(t *testing.T) {
	out := t.TempDir()
	p := run(t, "submit", "--config", "configs/translate.yaml", "--limit", "16", "--out", out, "--json")
	var summary struct {
		Alpha float64
		Modes map[string]struct{ Samples, Errors int }
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &summary); err != nil {
		t.Fatal(err)
	}
	if summary.Modes["sps"].Samples != 16 || summary.Modes["sps"].Errors != 0 || summary.Alpha < 0.6 {
		t.Errorf("%+v", summary)
	}
	run(t, "submit", "--config", "configs/translate.yaml", "--limit", "16", "--out", out, "--mode", "sps", "--drafter", "lookup", "--lanes", "8", "--job", "lanes")
	got, lanes := tokens(t, filepath.Join(out, "translate")), tokens(t, filepath.Join(out, "lanes"))
	for key, ars := range got {
		if rest, ok := strings.CutPrefix(key, "ars "); ok && (!slices.Equal(ars, got["sps "+rest]) || !slices.Equal(ars, lanes["sps "+rest])) {
			t.Errorf("%s is %v with autoregressive sampling, %v with speculative, %v in eight lanes", rest, ars, got["sps "+rest], lanes["sps "+rest])
		}
	}
	run(t, "submit", "verify", "translate", "--out", out, "--models", "--target", "testdata/translate/target", "--draft", "testdata/translate/draft", "--dataset", "testdata/translate/sentences.parquet")
}
