package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/draftmill/draftmill/storage/bucket"
)

// step is called at the named points of the commit protocol and where a reader
// begins. Tests replace it to stop, or fail, exactly there.
var step = func(name string) {}

// note is told of work that grows with a job. Tests count it.
var note = func(name string) {}

// unique returns a name part that no other writer has.
func unique() string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// lockWait is the longest pause between two looks at a lock that somebody holds.
const lockWait = 50 * time.Millisecond

// lockPatience is how long a lock is waited for: a holder has it for moments, unless its process was stopped. Tests
// shorten it.
var lockPatience = 30 * time.Second

// wait takes one of the job's locks, at the latest when its holder's process ends. It waits until ctx ends, and for
// lockPatience at most: then the error is bucket.ErrLocked, and the work has to be tried again later. Locks are
// taken in this order: that of completing the job, a shard's, that of the job's own marks.
func (j *Job) wait(ctx context.Context, lock string) (bucket.Lock, error) {
	key := path.Join(locksDir, lock)
	begin := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, lockWait) {
		l, err := j.b.TryLock(ctx, key, holder())
		if !errors.Is(err, bucket.ErrLocked) {
			return l, err
		}
		if time.Since(begin) > lockPatience {
			return nil, fmt.Errorf("wait for the lock %s of job %s: another process has held it for %v (is it stopped?): %w",
				key, j.name, lockPatience, bucket.ErrLocked)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the lock %s of job %s, which another process holds: %w", key, j.name, ctx.Err())
		}
	}
}

// release lets a lock go. Where that fails the lock ends by itself, later.
func release(l bucket.Lock) { _ = l.Release() }

// holder names this process to others that want its lock.
func holder() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

// jsonBytes is indented JSON with a final newline.
func jsonBytes(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic("storage: a value of our own is not JSON: " + err.Error())
	}
	return b.Bytes()
}
