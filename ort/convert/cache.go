package convert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// version counts the ways in which this package has made graphs; what an older
// one made is made again.
const version = 1

// CacheDir is the folder of models converted by Cached:
// <os.UserCacheDir>/draftmill/models.
func CacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache: %w", err)
	}
	return filepath.Join(cache, "draftmill", "models"), nil
}

// Cached returns the folder in the user's cache that Import makes of src, and
// makes it first where it is not there. It is named after the digest of the
// source and the settings, so that whatever names the source again finds it,
// and it is made once, however many processes ask for it at a time; waiting is
// called once where another one is at it. The report is nil where nothing was
// to be done.
func Cached(ctx context.Context, src string, o Options, waiting func()) (dir string, r *Report, err error) {
	cache, err := CacheDir()
	if err != nil {
		return "", nil, err
	}
	p, err := o.plan()
	if err != nil {
		return "", nil, named(src, err)
	}
	digest, err := knownDigest(ctx, cache, src, o.Progress)
	if err != nil {
		return "", nil, named(src, err)
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", version, digest, p.settings()))
	dir = filepath.Join(cache, fmt.Sprintf("%s-%s-%x", baseName(src), p.precision, key[:6]))
	if complete(dir) {
		return dir, nil, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", nil, named(src, err)
	}
	unlock, err := lock(ctx, dir+".lock", waiting)
	if err != nil {
		return "", nil, named(src, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if complete(dir) {
		return dir, nil, nil
	}
	r, err = importAs(ctx, src, dir, digest, o)
	return dir, r, err
}

// complete reports whether a folder is there; it is renamed into place as a
// whole.
func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "genai_config.json"))
	return err == nil
}

// baseName is a source's name without what would be odd in a file name.
func baseName(src string) string {
	if abs, err := filepath.Abs(src); err == nil {
		src = abs
	}
	name := strings.TrimSuffix(filepath.Base(src), filepath.Ext(src))
	if !strings.EqualFold(filepath.Ext(src), ".gguf") {
		name = filepath.Base(src)
	}
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// knownDigest is Digest, remembered by the paths, sizes and times of the files:
// reading several GB again at every start would take longer than all else.
func knownDigest(ctx context.Context, cache, src string, progress func(Step)) (string, error) {
	paths, err := files(src)
	if err != nil {
		return "", err
	}
	state := sha256.New()
	for _, path := range paths {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(state, "%s\x00%d\x00%d\n", abs, info.Size(), info.ModTime().UnixNano())
	}
	memo := filepath.Join(cache, "sources", hex.EncodeToString(state.Sum(nil)[:16]))
	if data, err := os.ReadFile(memo); err == nil && len(data) == 2*sha256.Size {
		return string(data), nil
	}
	digest, err := Digest(ctx, src, progress)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(memo), 0o755); err != nil {
		return "", err
	}
	temp, err := os.CreateTemp(filepath.Dir(memo), ".new-")
	if err != nil {
		return "", err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(digest)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), memo)
	}
	return digest, err
}

// lock waits until this process alone holds the lock file at path. The lock
// ends with the process, however it ends.
func lock(ctx context.Context, path string, waiting func()) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
