package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDrafters trains a table and decodes with every drafter and lookahead;
// those without a model need no draft folder.
func TestDrafters(t *testing.T) {
	dir := t.TempDir()
	target, table := filepath.Join(dir, "target"), filepath.Join(dir, "code.ngram")
	if err := os.CopyFS(target, os.DirFS(filepath.Join(root, "testdata/demo/target"))); err != nil {
		t.Fatal(err)
	}
	p := run(t, "submit", "ngram", "--dataset", "testdata/demo/minieval.parquet", "--column", "prompt", "--column", "canonical_solution", "--target", target, "--output", table)
	if line := p.stdout.String(); !strings.Contains(line, "order 3") {
		t.Errorf("ngram says %q", line)
	}
	greedy := map[string][]int32{}
	for i, c := range []struct {
		drafter, lookahead string
		more               []string
	}{
		{"ngram:" + table, "fixed", nil},
		{"lookup", "confidence:0.5", nil},
		{"uniform", "auto", nil},
		{"model+ngram:" + table, "auto", []string{"--draft", "testdata/demo/draft"}},
	} {
		out := filepath.Join(dir, "out")
		name := "drafter" + string(rune('0'+i))
		args := append([]string{"--dataset", "testdata/demo/minieval.parquet", "--limit", "4", "--max-new-tokens", "24", "--mode", "sps", "--temperature", "0",
			"--job", name, "--out", out, "--json", "--target", target, "--drafter", c.drafter, "--lookahead", c.lookahead, "--k", "3"}, c.more...)
		p := run(t, "submit", args...)
		var summary struct {
			Modes map[string]struct{ Samples, Errors, Drafted int }
		}
		if err := json.Unmarshal(p.stdout.Bytes(), &summary); err != nil {
			t.Fatalf("%s: stdout is no JSON: %v\n%s", c.drafter, err, &p.stdout)
		}
		if m := summary.Modes["sps"]; m.Samples != 4 || m.Errors != 0 || m.Drafted == 0 {
			t.Errorf("%s, %s: %+v", c.drafter, c.lookahead, m)
		}
		text, err := os.ReadFile(filepath.Join(out, name, "job.json"))
		if err != nil {
			t.Fatal(err)
		}
		if named := strings.Contains(string(text), `"table"`); named != strings.Contains(c.drafter, "ngram") {
			t.Errorf("%s: job.json names a table: %v", c.drafter, named)
		}
		// Greedily, every drafter gives the target's tokens, near ties apart.
		same := 0
		all := tokens(t, filepath.Join(out, name))
		for key, got := range all {
			if i == 0 {
				greedy[key] = got
			}
			if len(got) > 0 && len(greedy[key]) > 0 && got[0] == greedy[key][0] {
				same++
			}
		}
		if len(all) != 4 || same != 4 {
			t.Errorf("%s: %d of %d completions begin as with the first drafter", c.drafter, same, len(all))
		}
		run(t, "submit", "verify", filepath.Join(out, name))
	}
}

func TestNGramRefuses(t *testing.T) {
	dir := t.TempDir()
	damaged := filepath.Join(dir, "damaged.ngram")
	if err := os.WriteFile(damaged, []byte("draftmill-ngram\nand no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	dataset := "testdata/demo/minieval.parquet"
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"ngram", "--output", "x"}, 2, "name a dataset with --dataset"},
		{[]string{"ngram", "--dataset", dataset}, 2, "name one with --output"},
		{[]string{"ngram", "--dataset", dataset, "--order", "9", "--output", "x"}, 2, "order: want 1 to 8, got 9"},
		{[]string{"ngram", "--dataset", dataset, "--column", "prompt", "--column", "none", "--output", filepath.Join(dir, "x")}, 1, `no column "none"`},
		{[]string{"ngram", "--dataset", dataset, "--output", filepath.Join(dir, "no", "folder")}, 1, "write the n-gram table"},
		{[]string{"ngram", "--job", filepath.Join(dir, "none"), "--output", filepath.Join(dir, "x")}, 2, "no job"},
		{[]string{"--dataset", dataset, "--drafter", "ngram:" + filepath.Join(dir, "none")}, 2, "drafter: cannot read"},
		{[]string{"--dataset", dataset, "--drafter", "ngram:" + damaged, "--out", dir}, 1, "damaged"},
		{[]string{"--dataset", dataset, "--drafter", "oracle"}, 2, "want model, ngram:TABLE"},
		{[]string{"--dataset", dataset, "--lookahead", "often"}, 2, "want fixed, auto or confidence:X"},
	} {
		p := command("submit", c.args...).start(t)
		if code := p.code(t); code != c.code || !strings.Contains(p.stderr.String(), c.want) || strings.Count(p.stderr.String(), "\n") != 1 {
			t.Errorf("%q exits with %d: %s", c.args, code, &p.stderr)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".tmp-*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}
