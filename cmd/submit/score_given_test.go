package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/pipeline/eval"
	"github.com/draftmill/draftmill/storage"
)

// submitted runs the command.
func submitted(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

// TestScoreFile: files of other systems become jobs, are scored as such, again and
// again, and are compared with one another.
func TestScoreFile(t *testing.T) {
	const dataset = "../../testdata/summaries/summaries.jsonl"
	source, err := os.ReadFile(dataset)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	var good, bad strings.Builder
	for i, line := range strings.Split(strings.TrimSpace(string(source)), "\n") {
		var row struct{ ID, Document, Summary string }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(row.Document, ". ")
		text := func(s string) string { b, _ := json.Marshal(s); return string(b) }
		fmt.Fprintf(&good, "{\"custom_id\": %s, \"response\": {\"status_code\": 200, \"body\": {\"choices\": [{\"message\": {\"content\": %s}, \"finish_reason\": \"stop\"}]}}, \"error\": null}\n", text(row.ID), text(row.Summary))
		fmt.Fprintf(&bad, "{\"doc_id\": %d, \"doc\": {}, \"resps\": [[%s]], \"filtered_resps\": [%s], \"filter\": \"none\"}\n", i, text(first), text(first))
	}
	ours, theirs := filepath.Join(dir, "batch-1.output.jsonl"), filepath.Join(dir, "samples_x.jsonl")
	for path, text := range map[string]string{ours: good.String(), theirs: bad.String()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		text, err := submitted(t, "score", ours, "--dataset", dataset, "--out", out)
		if err != nil || !strings.Contains(text, "rougeLsum") || !strings.Contains(text, "1.0000") {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	text, err := submitted(t, "score", theirs, "--dataset", dataset, "--out", out, "--job", "theirs", "--json")
	var sum eval.Summary
	if err != nil || json.Unmarshal([]byte(text), &sum) != nil || sum.Modes["given"].Samples != 60 || sum.Modes["given"].Metrics["rouge2"].Mean > 0.4 {
		t.Fatalf("%v\n%s", err, text)
	}
	if _, err := submitted(t, "score", "batch-1", "--out", out, "--stemmer"); err != nil { // as a job
		t.Error(err)
	}
	job, err := storage.OpenJob(filepath.Join(out, "batch-1"))
	if err != nil || !job.Done() {
		t.Fatalf("%v", err)
	}
	text, err = submitted(t, "report", "batch-1", "theirs", "--out", out)
	if err != nil || !strings.Contains(text, "60 completions of another system") || !strings.Contains(text, "rouge2 of theirs given minus batch-1 given") {
		t.Errorf("%v\n%s", err, text)
	}
	page := filepath.Join(dir, "page.html")
	if text, err := submitted(t, "report", "batch-1", "theirs", "--out", out, "--html", page, "--full", "--dataset", dataset); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"score", ours, "--out", out}, "name the dataset"},
		{[]string{"score", theirs, "--dataset", dataset, "--out", out, "--job", "batch-1"}, "with --job NAME"},
		{[]string{"score", ours, "--dataset", dataset, "--out", out, "--format", "xml"}, "--format: want one of"},
		{[]string{"score", ours, "--dataset", dataset, "--out", out, "--format", "humaneval", "--job", "x"}, "line 1 is not one of format humaneval"},
		{[]string{"verify", "theirs", "--out", out}, "completions of another system"},
	} {
		if text, err := submitted(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s\n%s", c.args, err, c.want, text)
		}
	}
}
