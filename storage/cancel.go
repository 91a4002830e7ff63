package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// cancelFile marks a job that was given up. What is committed stays.
const cancelFile = "_CANCELLED"

// Cancel marks the job as given up: workers pass over its shards, and whoever
// waits for it ends. A complete job stays complete.
func (j *Job) Cancel() error {
	if err := makeDir(j.path(stagingDir)); err != nil {
		return fmt.Errorf("cancel job %s: %w", j.name, err)
	}
	_, err := createOnce(j.path(cancelFile), nil, j.path(stagingDir))
	return wrapf(err, "cancel job %s", j.name)
}

// Cancelled tells whether the job was given up and not taken up again.
func (j *Job) Cancelled() (bool, error) {
	there, err := exists(j.path(cancelFile))
	return there, wrapf(err, "look at job %s", j.name)
}

// Resume takes the job up again.
func (j *Job) Resume() error {
	err := remove(j.path(cancelFile))
	if err == nil {
		err = syncDir(j.dir)
	}
	return wrapf(err, "take up job %s again", j.name)
}

// CountCommitted counts the committed shards of a mode without looking into
// them.
func (j *Job) CountCommitted(mode string) (int, error) {
	if err := checkShard(mode, 0); err != nil {
		return 0, fmt.Errorf("count the shards of job %s: %w", j.name, err)
	}
	entries, err := os.ReadDir(j.path(shardsDir, "mode="+mode))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("count the shards of job %s: %w", j.name, err)
	}
	n := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "part-") && strings.HasSuffix(e.Name(), ".json") {
			n++
		}
	}
	return n, nil
}

// Free is how many bytes the folder's disk has left for this user.
func (j *Job) Free() (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(j.dir, &s); err != nil {
		return 0, fmt.Errorf("look for room in %s: %w", j.dir, err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}
