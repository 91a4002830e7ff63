package storage

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/storage/bucket"
)

// Of two writers in one process, the first to commit wins and the other
// leaves nothing.
func TestTheFirstToCommitWins(t *testing.T) {
	checkAlloc(t)
	j := plannedJob(t, 1)
	early, late := fillShard(t, j, "sps", 0, "early"), fillShard(t, j, "sps", 0, "late")
	if won, err := late.Commit(t.Context()); !won || err != nil {
		t.Fatalf("%v %v", won, err)
	}
	if won, err := early.Commit(t.Context()); won || err != nil {
		t.Fatalf("%v %v", won, err)
	}
	for _, w := range []*ShardWriter{early, late} {
		if err := w.Abort(); err != nil {
			t.Errorf("abort after commit: %v", err)
		}
		if _, err := w.Commit(t.Context()); err == nil {
			t.Error("a writer committed twice")
		}
	}
	if err := j.ReadCompletions("sps", func(c Completion) error {
		if c.Worker != "late" {
			t.Errorf("the result is of %s", c.Worker)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(j.path(stagingDir)); len(left) > 0 {
		t.Errorf("left in staging: %v", left)
	}
}

// A duplicate of a shard that is still being written when the job becomes
// complete must lose in peace, though its files were swept away.
func TestALateWriterLosesInPeace(t *testing.T) {
	j := plannedJob(t, 1)
	late := fillShard(t, j, "sps", 0, "late")
	commitShard(t, j, "sps", 0, "w")
	checkComplete(t, j, "sps", 1)
	if won, err := late.Commit(t.Context()); won || err != nil {
		t.Fatalf("%v %v", won, err)
	}
	checkComplete(t, j, "sps", 1)
}

func TestAbortLeavesNothing(t *testing.T) {
	checkAlloc(t)
	j := plannedJob(t, 1)
	w := fillShard(t, j, "ars", 0, "w")
	for range 2 {
		if err := w.Abort(); err != nil {
			t.Fatal(err)
		}
	}
	// A refused row ends in the same.
	w = fillShard(t, j, "ars", 0, "w")
	if err := w.AddCompletion(Completion{FinishReason: "tired"}); err == nil || !strings.HasPrefix(err.Error(), "write shard 0 of mode ars: ") {
		t.Errorf("%v", err)
	}
	if won, err := w.Commit(t.Context()); won || err == nil {
		t.Errorf("a spoilt writer committed: %v %v", won, err)
	}
	if got := tree(t, j.Dir()); !slices.Equal(got, []string{planFile, jobFile}) {
		t.Errorf("left: %q", got)
	}
}

func TestShardsAndModesThatDoNotExist(t *testing.T) {
	j := newJob(t)
	for _, mode := range []string{"", "..", "a/b", "ARS", "*"} {
		if _, err := j.NewShardWriter(mode, 0); err == nil {
			t.Errorf("mode %q was accepted", mode)
		}
		if _, err := j.Committed(t.Context(), mode, 0); err == nil {
			t.Errorf("mode %q was looked up", mode)
		}
		if err := j.WritePlan(1, 1, []string{mode}); err == nil {
			t.Errorf("mode %q was planned", mode)
		}
	}
	if _, err := j.NewShardWriter("ars", -1); err == nil {
		t.Error("a negative shard was accepted")
	}
	if err := j.WritePlan(1, 1, nil); err == nil {
		t.Error("a plan without modes was accepted")
	}
}

// Whatever happens to a committed shard's files, the shard is then not
// committed, and the next writer's rows become its result.
func TestDamagedShardIsMadeAgain(t *testing.T) {
	t.Parallel()
	flip := func(path string) {
		data := must(os.ReadFile(path))
		data[len(data)/3] ^= 4
		if err := os.WriteFile(path, data, 0o644); err != nil {
			panic(err)
		}
	}
	for name, damage := range map[string]func(j *Job){
		"file lost":      func(j *Job) { os.Remove(j.path(finalKey("completions", "sps", 0))) },
		"both lost":      func(j *Job) { os.RemoveAll(j.path("completions")); os.RemoveAll(j.path("loops")) },
		"file changed":   func(j *Job) { flip(j.path(finalKey("loops", "sps", 0))) },
		"file cut":       func(j *Job) { os.Truncate(j.path(finalKey("loops", "sps", 0)), 100) },
		"file replaced":  func(j *Job) { os.WriteFile(j.path(finalKey("completions", "sps", 0)), []byte("PAR1"), 0o644) },
		"manifest empty": func(j *Job) { os.Truncate(j.path(shardManifestKey("sps", 0)), 0) },
		"manifest of other": func(j *Job) {
			p := j.path(shardManifestKey("sps", 0))
			os.WriteFile(p, bytes.Replace(must(os.ReadFile(p)), []byte(`"shard": 0`), []byte(`"shard": 1`), 1), 0o644)
		},
		"manifest escapes": func(j *Job) {
			p := j.path(shardManifestKey("sps", 0))
			os.WriteFile(p, bytes.Replace(must(os.ReadFile(p)), []byte(`"staging": "`), []byte(`"staging": "../`), 1), 0o644)
		},
	} {
		j := plannedJob(t, 1)
		commitShard(t, j, "sps", 0, "first")
		for _, ask := range []bool{true, false} { // a worker may ask first, or not
			checkComplete(t, j, "sps", 1)
			damage(j)
			j = reopen(t, j)
			if ask {
				if ok, err := j.Committed(t.Context(), "sps", 0); ok || err != nil {
					t.Errorf("%s: committed: %v %v", name, ok, err)
				}
				if j.Done() {
					t.Errorf("%s: still done", name)
				}
				checkReaders(t, j)
			}
			if !commitShard(t, j, "sps", 0, "second") {
				t.Errorf("%s: the second writer lost to a damaged shard", name)
			}
		}
		checkComplete(t, j, "sps", 1)
	}
}

// What a later version wrote is not for this one to judge.
func TestLaterFormatsAreLeftAlone(t *testing.T) {
	j := plannedJob(t, 1)
	commitShard(t, j, "sps", 0, "w")
	p := j.path(shardManifestKey("sps", 0))
	later := bytes.Replace(must(os.ReadFile(p)), []byte(`"format": 1`), []byte(`"format": 2`), 1)
	os.WriteFile(p, later, 0o644)
	if _, err := j.Committed(t.Context(), "sps", 0); err == nil || !strings.Contains(err.Error(), "newer than 1") {
		t.Errorf("%v", err)
	}
	if err := j.Recover(t.Context()); err == nil {
		t.Error("recovered")
	}
	if !bytes.Equal(must(os.ReadFile(p)), later) {
		t.Error("the manifest was changed")
	}
	os.WriteFile(j.path(planFile), []byte(`{"format":2,"shards":1,"rows":5,"modes":["sps"]}`), 0o644)
	if _, err := j.Finalize(t.Context()); err == nil {
		t.Error("finalized by a later plan")
	}
}

// failing is a writer whose end fails.
type failing struct {
	bucket.Writer
	err error
}

func (f failing) Close(string) (bucket.Info, error) {
	f.Abort()
	return bucket.Info{}, f.err
}

// Failures of the file system are one line that names shard, mode and path.
func TestFileSystemFailures(t *testing.T) {
	for name, spoil := range map[string]func(j *Job, w *ShardWriter){
		"staging": func(j *Job, w *ShardWriter) {
			os.RemoveAll(j.path(stagingDir))
			os.WriteFile(j.path(stagingDir), nil, 0o644)
		},
		"shards": func(j *Job, w *ShardWriter) {
			os.RemoveAll(j.path(shardsDir))
			os.WriteFile(j.path(shardsDir), nil, 0o644)
		},
		"sync": func(j *Job, w *ShardWriter) {
			w.loops.to = failing{w.loops.to, &os.PathError{Op: "sync", Path: j.path(stagingDir), Err: syscall.EIO}}
		},
	} {
		j := newJob(t)
		w := fillShard(t, j, "sps", 3, "w")
		spoil(j, w)
		won, err := w.Commit(t.Context())
		if won || err == nil || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "write shard 3 of mode sps: ") || !strings.Contains(err.Error(), j.Dir()) {
			t.Errorf("%s: %v %v", name, won, err)
		}
		if found, _ := filepath.Glob(j.path("*", "mode=*", "*.parquet")); len(found) > 0 {
			t.Errorf("%s: a reader would find %q", name, found)
		}
	}
	// After the commit point the writer has won, whatever then fails.
	j := newJob(t)
	w := fillShard(t, j, "sps", 3, "w")
	os.RemoveAll(j.path("loops"))
	os.WriteFile(j.path("loops"), nil, 0o644)
	won, err := w.Commit(t.Context())
	if !won || err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v %v", won, err)
	}
	os.Remove(j.path("loops"))
	if ok, err := j.Committed(t.Context(), "sps", 3); !ok || err != nil {
		t.Errorf("not rolled forward: %v %v", ok, err)
	}
}

// A process that was stopped while it held a shard's lock holds nobody up for
// ever: the others are told, and what they linked is finished later.
func TestAStoppedHolderIsNotWaitedForWithoutEnd(t *testing.T) {
	defer func(d time.Duration) { lockPatience = d }(lockPatience)
	lockPatience = 20 * time.Millisecond
	j := plannedJob(t, 1)
	other, err := OpenJob(j.Dir())
	if err != nil {
		t.Fatal(err)
	}
	stopped, err := other.wait(t.Context(), "shard-00")
	if err != nil {
		t.Fatal(err)
	}
	w := fillShard(t, j, "sps", 0, "w")
	if won, err := w.Commit(t.Context()); !won || !errors.Is(err, bucket.ErrLocked) {
		t.Fatalf("commit under another's lock: %v, %v", won, err)
	}
	release(stopped)
	if done, err := j.Committed(t.Context(), "sps", 0); !done || err != nil {
		t.Fatalf("behind the lock: %v, %v", done, err)
	}
	checkComplete(t, j, "sps", 1)
}
