package bucket

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// folder is a Bucket on a file system. A file appears under its key by a link
// or a rename, after its content was synced; then the folder's names are synced
// too.
type folder struct{ dir string }

func (f *folder) String() string { return f.dir }

func (f *folder) Sub(dir string) Bucket { return &folder{f.path(dir)} }

func (f *folder) path(key string) string { return filepath.Join(f.dir, filepath.FromSlash(key)) }

func (f *folder) Stat(_ context.Context, key string) (Info, error) {
	stat, err := os.Stat(f.path(key))
	if err != nil {
		return Info{}, err
	}
	return infoOf(key, stat), nil
}

// infoOf describes a file. Device, inode, size and time name its content as
// long as nobody writes to it in place and turns back the clock: a rename keeps
// all of them.
func infoOf(key string, stat fs.FileInfo) Info {
	info := Info{Key: key, Size: stat.Size(), ID: fmt.Sprint(stat.Size(), " ", stat.ModTime().UnixNano())}
	if !stat.Mode().IsRegular() {
		info.Size = -1
	}
	if s, ok := stat.Sys().(*syscall.Stat_t); ok {
		info.ID += fmt.Sprint(" ", s.Dev, " ", s.Ino)
	}
	return info
}

func (f *folder) Get(_ context.Context, key string) ([]byte, error) { return os.ReadFile(f.path(key)) }

func (f *folder) Open(_ context.Context, key string) (*File, error) {
	return openFile(f.path(key), key)
}

// openFile opens a regular file. It looks before: to open a named pipe is to
// wait for its writer.
func openFile(path, key string) (*File, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !stat.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is no regular file")}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if stat, err = file.Stat(); err != nil {
		_ = file.Close()
		return nil, err
	}
	return &File{file, infoOf(key, stat)}, nil
}

func (f *folder) List(ctx context.Context, dir string) ([]Info, error) {
	var list []Info
	err := filepath.WalkDir(f.path(dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, fs.ErrNotExist) { // never there, or gone since
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(f.dir, path)
		if err != nil {
			return err
		}
		stat, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		list = append(list, infoOf(filepath.ToSlash(name), stat))
		return nil
	})
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Key, b.Key) })
	return list, err
}

// fileWriter writes a file in place: until the object is moved from Staging no
// reader looks at it.
type fileWriter struct {
	*os.File
	key   string
	ended bool
}

func (f *folder) Create(_ context.Context, key string) (Writer, error) {
	path := f.path(key)
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &fileWriter{File: file, key: key}, nil
}

func (w *fileWriter) Close(string) (info Info, err error) {
	if w.ended {
		return Info{}, os.ErrClosed
	}
	w.ended = true
	err = w.Sync()
	var stat fs.FileInfo
	if err == nil {
		stat, err = w.Stat()
	}
	if cerr := w.File.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = syncDir(filepath.Dir(w.Name()))
	}
	if err != nil {
		os.Remove(w.Name())
		return Info{}, err
	}
	return infoOf(w.key, stat), nil
}

func (w *fileWriter) Abort() {
	if !w.ended {
		w.ended = true
		_ = w.File.Close()
		os.Remove(w.Name())
	}
}

// temp writes and syncs a file in Staging, whose name nobody knows.
func (f *folder) temp(key string, data []byte) (string, error) {
	dir := f.path(Staging)
	if err := makeDir(dir); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "."+filepath.Base(key)+"."+unique())
	return path, writeSynced(path, data)
}

func (f *folder) CreateOnce(_ context.Context, key string, data []byte) (created bool, err error) {
	name, err := f.temp(key, data)
	if err != nil {
		return false, err
	}
	defer os.Remove(name)
	path := f.path(key)
	if err := makeDir(filepath.Dir(path)); err != nil {
		return false, err
	}
	return linkOnce(name, path)
}

// linkOnce makes an exclusive hard link, atomic between processes, and then
// makes it durable.
func linkOnce(temp, path string) (created bool, err error) {
	err = os.Link(temp, path)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrExist):
		// NFS may report a link that it made itself, on a resent request.
		a, aerr := os.Stat(temp)
		b, berr := os.Stat(path)
		if aerr != nil || berr != nil || !os.SameFile(a, b) {
			return false, nil
		}
	case errors.Is(err, fs.ErrNotExist):
		// A job that became complete meanwhile sweeps what late writers left.
		if _, gone := os.Lstat(path); gone != nil {
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

func (f *folder) Replace(_ context.Context, key string, data []byte) error {
	name, err := f.temp(key, data)
	if err != nil {
		return err
	}
	if err := f.rename(name, f.path(key)); err != nil {
		os.Remove(name)
		return err
	}
	return nil
}

func (f *folder) rename(from, to string) error {
	if err := makeDir(filepath.Dir(to)); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

func (f *folder) Move(ctx context.Context, from, to string) (Info, error) {
	if err := f.rename(f.path(from), f.path(to)); err != nil {
		return Info{}, err
	}
	return f.Stat(ctx, to)
}

func (f *folder) Remove(_ context.Context, key string) error {
	path := f.path(key)
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return syncDir(filepath.Dir(path))
}

// roomWanted is how much a disk must take before it has room again.
const roomWanted = 4 << 20

func (f *folder) Room(context.Context) error {
	name, err := f.temp("room", make([]byte, roomWanted))
	os.Remove(name)
	return err
}

func (f *folder) Free() (uint64, bool, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(f.dir, &s); err != nil {
		return 0, false, &fs.PathError{Op: "statfs", Path: f.dir, Err: err}
	}
	return s.Bavail * uint64(s.Bsize), true, nil
}

// flocked is a lock of the system's, on an open file.
type flocked struct{ file *os.File }

func (l flocked) Held() error    { return nil }
func (l flocked) Release() error { return l.file.Close() }

// TryLock works between processes on all machines that share the folder with
// working flock.
func (f *folder) TryLock(_ context.Context, key, holder string) (Lock, error) {
	path := f.path(key)
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		other, _ := os.ReadFile(path)
		err = fmt.Errorf("%s: %w (%s)", path, ErrLocked, strings.TrimSpace(string(other)))
	} else if err == nil && holder != "" {
		// For the other's error line; the lock itself needs no content.
		if err = file.Truncate(0); err == nil {
			_, err = file.WriteAt([]byte(holder+"\n"), 0)
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return flocked{file}, nil
}

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
