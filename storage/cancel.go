package storage

import (
	"context"
	"fmt"

	"github.com/draftmill/draftmill/storage/bucket"
)

// cancelFile marks a job that was given up. What is committed stays.
const cancelFile = "_CANCELLED"

// Cancel marks the job as given up: workers pass over its shards, and whoever
// waits for it ends. A complete job stays complete.
func (j *Job) Cancel() error {
	_, err := j.b.CreateOnce(context.Background(), cancelFile, nil)
	return wrapf(err, "cancel job %s", j.name)
}

// Cancelled tells whether the job was given up and not taken up again.
func (j *Job) Cancelled() (bool, error) {
	there, err := bucket.Exists(context.Background(), j.b, cancelFile)
	return there, wrapf(err, "look at job %s", j.name)
}

// Resume takes the job up again.
func (j *Job) Resume() error {
	return wrapf(j.b.Remove(context.Background(), cancelFile), "take up job %s again", j.name)
}

// CountCommitted counts the committed shards of a mode without looking into
// them.
func (j *Job) CountCommitted(mode string) (int, error) {
	if err := checkShard(mode, 0); err != nil {
		return 0, fmt.Errorf("count the shards of job %s: %w", j.name, err)
	}
	shards, err := j.committedShards(context.Background(), mode)
	return len(shards), wrapf(err, "count the shards of job %s", j.name)
}

// Room tries whether the job's place takes data: nil says that it does.
func (j *Job) Room() error {
	return wrapf(j.b.Room(context.Background()), "look for room in %s", j.Dir())
}

// Free is how many bytes the job's place has left for this user; known is
// false where nobody can say.
func (j *Job) Free() (bytes uint64, known bool, err error) {
	bytes, known, err = j.b.Free()
	return bytes, known, wrapf(err, "look for room in %s", j.Dir())
}
