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
	"time"

	"github.com/gofrs/flock"
)

// version counts the ways in which this package has made graphs; what an older
// one made is made again.
const version = 3

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
	name := o.Name
	if name == "" {
		name = baseName(src)
	}
	dir = filepath.Join(cache, fmt.Sprintf("%s-%s-%x", clean(name), p.precision, key[:6]))
	if complete(dir) {
		return dir, nil, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", nil, named(src, err)
	}
	one := flock.New(dir + ".lock")
	if locked, err := one.TryLock(); err == nil && !locked && waiting != nil {
		waiting()
	}
	if _, err := one.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return "", nil, named(src, err)
	}
	defer func() { err = errors.Join(err, one.Unlock()) }()
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

// baseName is a source's name.
func baseName(src string) string {
	if abs, err := filepath.Abs(src); err == nil {
		src = abs
	}
	name := filepath.Base(src)
	if ext := filepath.Ext(name); strings.EqualFold(ext, ".gguf") {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// clean is a name without what would be odd in a file name.
func clean(name string) string {
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
