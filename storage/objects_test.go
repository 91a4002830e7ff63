package storage

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/storage/bucket/buckettest"
)

// The commit protocol on a real S3 server: a writer killed at any step leaves a
// shard that is committed, with its rows, or is not, and then the next writer's
// rows are the result. A killed holder's lease has to run out, so all go at once.
func TestKillAtEveryStepOnS3(t *testing.T) {
	t.Parallel()
	s := buckettest.Start(t)
	const steps = 12 // of a commit, and one more
	for at := range steps {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			j := jobAt(t, s.URL(fmt.Sprint("kill-", at)), 1)
			killed := (helperTask{Do: "commit", Dir: j.Dir(), Mode: "sps", Shards: 1, Worker: "first", KillAt: at}).killed(t)
			if killed != (at < steps-1) { // the last one runs to its end
				t.Errorf("killed at step %d: %v", at, killed)
			}
			j = reopen(t, j)
			ok, err := j.Committed(t.Context(), "sps", 0)
			if err != nil {
				t.Fatal(err)
			}
			if won := commitShard(t, j, "sps", 0, "second"); won == ok {
				t.Errorf("committed %v, and then another writer won: %v", ok, won)
			}
			worker := map[bool]string{true: "first", false: "second"}[ok]
			if done, err := j.Finalize(t.Context()); !done || err != nil {
				t.Fatal(done, err)
			}
			rows := 0
			if err := j.ReadCompletions("sps", func(c Completion) error {
				if rows++; c.Worker != worker {
					return fmt.Errorf("a row is of the %s writer", c.Worker)
				}
				return nil
			}); err != nil || rows != shardRows {
				t.Errorf("%d rows: %v", rows, err)
			}
			findings(t, j, nil)
			for _, key := range objects(t, j.b) {
				if strings.HasPrefix(key, stagingDir) {
					t.Errorf("left behind: %s", key)
				}
			}
		})
	}
}

// Another specification, and another submit, are refused in a store as in a folder.
func TestAJobInAStore(t *testing.T) {
	t.Parallel()
	out := buckettest.Start(t).URL("runs")
	j := jobAt(t, out, 1)
	if _, err := CreateJob(out, "he", []byte(`{"temperature": 0.2}`)); !errors.Is(err, ErrOtherJob) {
		t.Errorf("%v", err)
	}
	if _, err := CreateJob(out, "he", j.Spec()); err != nil {
		t.Errorf("%v", err)
	}
	unlock, err := j.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reopen(t, j).Lock(t.Context()); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("%v", err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
	if current, err := j.Current(t.Context()); !current || err != nil {
		t.Errorf("%v %v", current, err)
	}
	if err := j.b.Remove(t.Context(), jobFile); err != nil {
		t.Fatal(err)
	}
	if current, err := j.Current(t.Context()); current || err != nil {
		t.Errorf("a job that was removed: %v %v", current, err)
	}
	if err := errors.Join(j.Cancel(), j.Resume(), j.Room()); err != nil {
		t.Error(err)
	}
}
