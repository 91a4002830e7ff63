package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/verify"
	"github.com/draftmill/draftmill/storage"
)

// TestVerifyCommand finds a job by name and by path, prints what holds, and
// fails with one line that names the file that does not. The replay itself is
// tested in pipeline/verify.
func TestVerifyCommand(t *testing.T) {
	out := t.TempDir()
	folder := smallJob(t, out)
	if text, err := output("verify", "small", "--out", out); err != nil || !strings.Contains(text, "holds (not complete") {
		t.Fatalf("before the end: %v: %s", err, text)
	}
	if done, err := folder.Finalize(t.Context()); err != nil || !done {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", "small", "--out", out}, {"verify", folder.Dir()}} {
		text, err := output(args...)
		if err != nil || !strings.Contains(text, "holds (complete)") || !strings.Contains(text, "1 shards, 2 files") {
			t.Errorf("%v: %v: %s", args, err, text)
		}
	}
	text, err := output("verify", folder.Dir(), "--json")
	var counts verify.Counts
	if err != nil || json.Unmarshal([]byte(text), &counts) != nil || counts.Modes[0].Errors != 1 || !counts.Complete {
		t.Errorf("%v: %s", err, text)
	}

	path := filepath.Join(folder.Dir(), "loops", "mode=ars", "part-00000.parquet")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 4
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err = output("verify", folder.Dir())
	var usage *configs.UsageError
	if err == nil || errors.As(err, &usage) || text != "" || !strings.HasPrefix(err.Error(), "job small does not hold: loops/mode=ars/part-00000.parquet: ") {
		t.Errorf("a flipped bit: %v, %s", err, text)
	}
	for _, args := range [][]string{{"verify"}, {"verify", "a", "b"}, {"verify", "nothing", "--out", out}} {
		if _, err := output(args...); !errors.As(err, &usage) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// smallJob has one row, in error, and is complete but for its end.
func smallJob(t *testing.T, out string) *storage.Job {
	t.Helper()
	job := pipeline.Job{Name: "small", Modes: []pipeline.Mode{pipeline.ArS}, ShardRows: 2, Samples: 1, MaxNewTokens: 4}
	identity, err := job.Spec()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := storage.CreateJob(out, job.Name, identity)
	if err != nil {
		t.Fatal(err)
	}
	w, err := folder.NewShardWriter("ars", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.AddCompletion(storage.Completion{Job: "small", RowID: "only", FinishReason: storage.FinishError, Error: "the prompt is null", Worker: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := folder.WritePlan(1, 1, []string{"ars"}); err != nil {
		t.Fatal(err)
	}
	return folder
}
