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
const version = 5

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
		return "", nil, unkept(src, err)
	}
	one := flock.New(dir + ".lock")
	if locked, err := one.TryLock(); err == nil && !locked && waiting != nil {
		waiting()
	}
	if _, err := one.TryLockContext(ctx, 100*time.Millisecond); ctx.Err() != nil {
		return "", nil, context.Cause(ctx)
	} else if err != nil {
		return "", nil, unkept(src, err)
	}
	defer func() { err = errors.Join(err, one.Unlock()) }()
	if complete(dir) {
		return dir, nil, nil
	}
	// What processes left that were killed: only the lock's holder writes.
	left, _ := filepath.Glob(partialOf(dir) + "*")
	for _, partial := range left {
		if err := os.RemoveAll(partial); err != nil {
			return "", nil, named(src, err)
		}
	}
	r, err = importAs(ctx, src, dir, digest, o)
	return dir, r, err
}

// unkept says what to do where the cache cannot be written.
func unkept(src string, err error) error {
	return named(src, fmt.Errorf("keep it converted: %w; set XDG_CACHE_HOME to a folder that can be written, or convert it with submit import", err))
}

// partialOf is how names of folders begin in which dst is made.
func partialOf(dst string) string {
	return filepath.Join(filepath.Dir(dst), "."+filepath.Base(dst)+".partial-")
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
	_ = remember(memo, digest) // where the cache cannot be written it is read again next time
	return digest, nil
}

func remember(memo, digest string) error {
	if err := os.MkdirAll(filepath.Dir(memo), 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(memo), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(digest)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), memo)
	}
	return err
}
