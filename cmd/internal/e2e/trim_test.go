package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/storage"
)

// TestTrimmedDraft: a draft whose head scores the tokens of a table alone drafts
// no other ones; greedy completions are those without a draft, token for token;
// and a log of a job with it holds, against its models too.
func TestTrimmedDraft(t *testing.T) {
	t.Setenv("DRAFTMILL_ORT_LIBRARY", strings.TrimSpace(run(t, "submit", "setup").stdout.String()))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const model, dataset = checkpoints + "llama", "testdata/demo/minieval.parquet"
	out, dir := t.TempDir(), t.TempDir()
	table, draft := filepath.Join(dir, "own.ngram"), filepath.Join(dir, "draft")
	run(t, "submit", "ngram", "--order", "1", "--dataset", dataset, "--target", model, "--output", table)
	run(t, "submit", "import", model, draft, "--trim-vocab", "100:"+table)
	job := func(name string, more ...string) map[string][]int32 {
		t.Helper()
		run(t, "submit", append([]string{"--dataset", dataset, "--limit", "6", "--template", "{{.task_id}}", "--target", model, "--draft", draft,
			"--max-new-tokens", "40", "--k", "3", "--out", out, "--job", name}, more...)...)
		return tokens(t, filepath.Join(out, name))
	}
	greedy := job("greedy", "--temperature", "0")
	for key, got := range greedy {
		if row, sps := strings.CutPrefix(key, "sps "); sps {
			same(t, map[string][]int32{row: got}, map[string][]int32{row: greedy["ars "+row]})
		}
	}
	job("drawn", "--temperature", "1", "--n", "2", "--lanes", "4")
	run(t, "submit", "verify", filepath.Join(out, "greedy"), "--models")
	run(t, "submit", "verify", filepath.Join(out, "drawn"), "--models")

	folder, err := storage.OpenJob(filepath.Join(out, "drawn"))
	if err != nil {
		t.Fatal(err)
	}
	drafted, others := map[int32]bool{}, 0
	if err := folder.ReadLoops("sps", func(l storage.Loop) error {
		for _, x := range l.Drafted {
			drafted[x] = true
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, got := range tokens(t, filepath.Join(out, "drawn")) {
		for _, x := range got {
			if !drafted[x] {
				others++
			}
		}
	}
	if len(drafted) < 20 || len(drafted) > 101 || others == 0 {
		t.Errorf("%d different tokens were drafted, %d emitted that never were", len(drafted), others)
	}
}
