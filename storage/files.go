package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// step is called at the named points of the commit protocol and where a reader
// begins. Tests replace it to stop, or fail, exactly there.
var step = func(name string) {}

// note is told of work that grows with a job. Tests count it.
var note = func(name string) {}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// makeDir makes a folder and its parents, durably.
func makeDir(dir string) error {
	if stat, err := os.Stat(dir); err == nil {
		if !stat.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) { // another process was faster
			return nil
		}
		return err
	}
	return syncDir(parent)
}

// unique returns a name part that no other writer has.
func unique() string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// writeSynced writes a new file and syncs it; on error nothing is left.
func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(path)
	}
	return err
}

// createOnce gives path the content data unless it exists: the file appears
// whole or not at all, and of several processes one creates it. temp is a
// folder on the same file system, outside every reader's glob.
func createOnce(path string, data []byte, temp string) (created bool, err error) {
	name := filepath.Join(temp, "."+filepath.Base(path)+"."+unique())
	if err := writeSynced(name, data); err != nil {
		return false, err
	}
	defer os.Remove(name)
	return linkOnce(name, path)
}

// linkOnce is the commit point of everything that may be written once: an
// exclusive hard link, atomic between processes, then made durable.
func linkOnce(temp, path string) (created bool, err error) {
	err = os.Link(temp, path)
	switch {
	case err == nil:
		step("linked")
	case errors.Is(err, fs.ErrExist):
		// NFS may report a link that it made itself, on a resent request.
		a, aerr := os.Stat(temp)
		b, berr := os.Stat(path)
		if aerr != nil || berr != nil || !os.SameFile(a, b) {
			return false, nil
		}
	case errors.Is(err, fs.ErrNotExist):
		// A job that became complete meanwhile sweeps what late writers left.
		if there, _ := exists(path); !there {
			return false, err
		}
		return false, nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOSYS):
		return false, fmt.Errorf("the file system of %s has no hard links, which commits need: choose another output folder: %w", filepath.Dir(path), err)
	default:
		return false, err
	}
	return true, syncDir(filepath.Dir(path))
}

// replaceFile writes path anew, atomically and durably.
func replaceFile(path string, data []byte, temp string) error {
	name := filepath.Join(temp, "."+filepath.Base(path)+"."+unique())
	if err := writeSynced(name, data); err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		os.Remove(name)
		return err
	}
	return syncDir(filepath.Dir(path))
}

// lockWait is the longest pause between two looks at a lock that somebody holds.
const lockWait = 50 * time.Millisecond

// waitLock takes an exclusive lock, which ends with the process at the latest. It waits until ctx ends.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, lockWait) {
		f, err := tryLock(path)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return f, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the lock %s, which another process holds: %w", path, ctx.Err())
		}
	}
}

// tryLock takes an exclusive lock, or gives unix.EWOULDBLOCK if somebody holds it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// exists tells whether a file is there; an error other than absence counts.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
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
