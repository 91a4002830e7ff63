package storage

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"
	"testing"
)

// count makes note count its names for the rest of the test.
func count(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	was := note
	note = func(name string) { counts[name]++ }
	t.Cleanup(func() { note = was })
	return counts
}

// What a job of n shards costs in all grows with n, not with its square: a shard
// is looked for once after it is committed, and files that this process wrote are
// not read again.
func TestFinalizeLooksOnceAtEveryShard(t *testing.T) {
	const shards = 60
	j := plannedJob(t, shards)
	counts := count(t)
	for shard := range shards {
		commitShard(t, j, "sps", shard, "w")
		for range 3 {
			if done, err := j.Finalize(t.Context()); err != nil || done != (shard == shards-1) {
				t.Fatalf("after shard %d: %v %v", shard, done, err)
			}
		}
	}
	if n := counts["look"]; n > 5*shards {
		t.Errorf("%d looks for %d shards", n, shards)
	}
	if n := counts["hash"]; n > 0 {
		t.Errorf("%d files hashed that this process has written", n)
	}
	// Another process hashes each file once.
	j = reopen(t, j)
	for range 3 {
		if done, err := j.Finalize(t.Context()); !done || err != nil {
			t.Fatal(done, err)
		}
	}
	if n := counts["hash"]; n != 2*shards {
		t.Errorf("%d of %d files hashed", n, 2*shards)
	}
}

// A process that stands still with a lock in its hands holds up nobody for longer
// than he wants to wait, and nobody who has no need of that lock.
func TestAHolderThatStandsStill(t *testing.T) {
	j := plannedJob(t, 2)
	commitShard(t, j, "sps", 0, "w")
	for _, name := range []string{completeLock, marksLock, "shard-01"} {
		lock, err := j.b.TryLock(t.Context(), path.Join(locksDir, name), "")
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
	}
	j = reopen(t, j)
	if ok, err := j.Committed(t.Context(), "sps", 0); !ok || err != nil { // whole: no lock
		t.Errorf("a shard in its place: %v %v", ok, err)
	}
	if done, err := j.Finalize(t.Context()); done || err != nil { // shard 1 is missing: no lock
		t.Errorf("finalize with a shard missing: %v %v", done, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := fillShard(t, j, "sps", 1, "w")
	defer func(was func(string)) { step = was }(step)
	step = func(point string) {
		if point == "link synced" {
			cancel() // what is left to do takes the lock
		}
	}
	won, err := w.Commit(ctx)
	if !won || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "another process holds") {
		t.Errorf("commit while the shard's lock is held: %v %v", won, err)
	}
	if _, err := j.Finalize(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("finalize while the job's lock is held: %v", err)
	}
}

// A folder that was removed and made anew is another job's.
func TestAJobThatIsNoLongerThere(t *testing.T) {
	j := newJob(t)
	current := func(j *Job) bool {
		is, err := j.Current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	if !current(j) {
		t.Error("the job as made is not current")
	}
	if err := os.RemoveAll(j.Dir()); err != nil {
		t.Fatal(err)
	}
	if current(j) {
		t.Error("a removed job is current")
	}
	again, err := CreateJob(strings.TrimSuffix(j.Dir(), "/"+j.Name()), j.Name(), []byte(`{"temperature": 0.2}`))
	if err != nil {
		t.Fatal(err)
	}
	if current(j) || !current(again) {
		t.Error("another job in the same place passes for the first")
	}
}
