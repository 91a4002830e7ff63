//go:build linux

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The disk under the job fills up and has room again.
func TestChaosAFullDisk(t *testing.T) {
	fullOnly(t, "a worker waits seconds before it looks for room again")
	f := faults.begin(t, "the job's disk is full, and has room again", "a tmpfs of 24 MB, 3 workers")
	servers := startCluster(t, 1)
	tr := newTrial(t, f, servers, standard())
	err := syscall.Mount("tmpfs", tr.out, "tmpfs", 0, "size=24m")
	if errors.Is(err, syscall.EPERM) && os.Getenv("CI") == "" {
		f.Where = "not run: only root may mount a small disk"
		t.Skip(f.Where)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(tr.out, 0); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(tr.out, "filler")
	tr.submit()
	for n := range 3 {
		worker := tr.worker(slow)
		if n > 0 {
			tr.commits(2) // it fills up under a worker that decodes
		}
		if err := fill(filler); err != nil {
			t.Fatal(err)
		}
		f.Disturbed++
		until(t, "a word about it", func() bool { return strings.Contains(worker.stderr.String(), "no space left on device") })
		<-time.After(ackWait)
		if s, err := servers.state(); err != nil || s.dead > 0 {
			t.Errorf("shards are set aside for a disk that is full: %+v (%v)", s, err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	tr.end()
}

// fill writes until the disk is full.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for b := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(b)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
