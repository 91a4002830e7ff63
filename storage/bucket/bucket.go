package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
)

var (
	// ErrUnreachable is wrapped by the errors of a store that does not answer, or not as it should.
	ErrUnreachable = errors.New("the object store does not answer as it should")
	// ErrDamaged is wrapped where a store itself says that its object is not what was written.
	ErrDamaged = errors.New("the object is damaged in its store")
	// ErrLocked is wrapped when somebody else holds a lock.
	ErrLocked = errors.New("another process holds the lock")
)

// Staging is where a folder keeps files that have no name yet. Objects of other
// keys may be put there too; readers pass it by.
const Staging = "_staging"

// A Bucket holds objects by key. All methods may be called by several
// goroutines, and several processes may use the same place. An object that is
// not there is an error that wraps fs.ErrNotExist.
type Bucket interface {
	// String is the place as a path or URL that Open takes.
	String() string
	// Sub is the part of the bucket whose keys begin with dir.
	Sub(dir string) Bucket

	// Stat describes an object.
	Stat(ctx context.Context, key string) (Info, error)
	// Get reads a small object.
	Get(ctx context.Context, key string) ([]byte, error)
	// Open makes an object readable at any offset; close the file.
	Open(ctx context.Context, key string) (*File, error)
	// List describes all objects whose keys begin with dir/, by key; none is no error.
	List(ctx context.Context, dir string) ([]Info, error)

	// Create begins an object; see Writer. ctx is for all that the writer does.
	Create(ctx context.Context, key string) (Writer, error)
	// CreateOnce makes a small object unless it exists, and tells whether it
	// did: of all callers with different data one is told so.
	CreateOnce(ctx context.Context, key string, data []byte) (created bool, err error)
	// Replace makes a small object, or puts another in its place.
	Replace(ctx context.Context, key string, data []byte) error
	// Move gives an object another key, and takes it from who has that key.
	Move(ctx context.Context, from, to string) (Info, error)
	// Remove removes an object; one that is gone is no error.
	Remove(ctx context.Context, key string) error

	// TryLock takes a lock, or gives an error that wraps ErrLocked and says who
	// holds it: the holder that the other one gave. A lock ends with its process.
	TryLock(ctx context.Context, key, holder string) (Lock, error)
	// Room tries whether the place takes data; nil says that it does.
	Room(ctx context.Context) error
	// Free is how many bytes there is room for; known is false where nobody can say.
	Free() (bytes uint64, known bool, err error)
}

// Info describes an object.
type Info struct {
	Key    string
	Size   int64  // bytes; -1: it is no regular file
	SHA256 string // of its content, noted by who wrote it; empty: not known
	ID     string // another one means that the content may be another; of List it may be empty
}

// A File is an open object.
type File struct {
	*os.File // a regular file, at its start
	Info     Info
}

// A Writer writes one object, which is not there before Close gave nil. End it
// with Close or Abort; Abort after either does nothing.
type Writer interface {
	io.Writer
	// Close makes the object, durably. sha256 is noted where the store has room for it.
	Close(sha256 string) (Info, error)
	// Abort leaves no object.
	Abort()
}

// A Lock is held until Release, or the end of the process.
type Lock interface {
	// Held is nil while the lock is known to be held. Ask before what only the holder may do.
	Held() error
	Release() error
}

// IsURL tells whether place is a URL and not a path.
func IsURL(place string) bool {
	scheme, _, found := strings.Cut(place, "://")
	return found && scheme != "" && !strings.ContainsAny(scheme, `/\.`)
}

// schemes are the kinds of URL, with what stands for the bucket's name.
var schemes = map[string]string{"s3": "s3://BUCKET/PREFIX?region=REGION", "gs": "gs://BUCKET/PREFIX", "mem": "mem://NAME/PREFIX", "file": "file:///PATH"}

// Check says why place is neither a path nor a URL that Open takes. It asks nobody.
func Check(place string) error {
	_, _, err := split(place)
	return err
}

// split takes a URL apart: the bucket as gocloud.dev names it and the prefix
// within. A path has no bucket.
func split(place string) (bucket, prefix string, err error) {
	if !IsURL(place) {
		if place == "" {
			return "", "", errors.New("the path is empty")
		}
		return "", filepath.Clean(place), nil
	}
	u, err := url.Parse(place)
	if err != nil {
		return "", "", fmt.Errorf("%s is no URL that can be read: write s3://BUCKET/PREFIX", redact(place))
	}
	form, known := schemes[u.Scheme]
	switch {
	case !known:
		return "", "", fmt.Errorf("%s: nothing is known of %s://; use a path, s3:// or gs://", redact(place), u.Scheme)
	case u.User != nil:
		return "", "", fmt.Errorf("%s: a URL carries no credentials; the environment does, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or GOOGLE_APPLICATION_CREDENTIALS", u.Redacted())
	case u.Fragment != "":
		return "", "", fmt.Errorf("%s: a URL of a bucket has no # part", place)
	case u.Scheme == "file" && u.Host == "" && u.RawQuery == "" && u.Path != "":
		return "", filepath.Clean(filepath.FromSlash(u.Path)), nil
	case u.Host == "" || u.Scheme == "file":
		return "", "", fmt.Errorf("%s is no bucket: write %s", place, form)
	}
	prefix = strings.Trim(path.Clean("/"+u.Path), "/")
	u.Path, u.RawPath = "", ""
	return u.String(), prefix, nil
}

// redact cuts what may be a secret out of something that is no URL.
func redact(place string) string {
	scheme, rest, _ := strings.Cut(place, "://")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		rest = "***" + rest[at:]
	}
	return scheme + "://" + rest
}

// Clean is the one way in which a place is written: an absolute path, or the
// URL without what means nothing.
func Clean(place string) (string, error) {
	bucket, prefix, err := split(place)
	if err != nil {
		return "", err
	}
	if bucket == "" {
		return filepath.Abs(prefix)
	}
	return join(bucket, prefix), nil
}

// Join is the place within a place.
func Join(place string, elem ...string) string {
	bucket, prefix, err := split(place)
	switch {
	case err != nil:
		return filepath.Join(append([]string{place}, elem...)...)
	case bucket == "":
		return filepath.Join(append([]string{prefix}, elem...)...)
	}
	return join(bucket, path.Join(append([]string{prefix}, elem...)...))
}

// Split is Join's inverse for one element: the place that holds the last one.
func Split(place string) (parent, name string) {
	bucket, prefix, err := split(place)
	switch {
	case err != nil:
		return filepath.Dir(place), filepath.Base(place)
	case bucket == "":
		return filepath.Dir(prefix), filepath.Base(prefix)
	}
	parent, name = path.Split(prefix)
	return join(bucket, strings.Trim(parent, "/")), name
}

// join puts a prefix into the URL of a bucket.
func join(bucket, prefix string) string {
	base, query, _ := strings.Cut(bucket, "?")
	if prefix != "" {
		base += "/" + (&url.URL{Path: prefix}).EscapedPath()
	}
	if query != "" {
		base += "?" + query
	}
	return base
}

// Open gives the bucket at a path (an existing folder or not) or URL. Nothing
// is asked and nothing made before it is used.
func Open(place string) (Bucket, error) {
	bucket, prefix, err := split(place)
	switch {
	case err != nil:
		return nil, fmt.Errorf("open the bucket: %w", err)
	case bucket == "":
		return &folder{dir: prefix}, nil
	}
	store, err := openStore(bucket)
	if err != nil {
		return nil, fmt.Errorf("open the bucket %s: %w", place, err)
	}
	return &objects{store: store, url: bucket, prefix: prefix}, nil
}

// NotExist tells whether err says that an object is not there.
func NotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Unreachable tells whether err says that a store does not answer.
func Unreachable(err error) bool { return errors.Is(err, ErrUnreachable) }

// Exists tells whether an object is there; an error other than its absence counts.
func Exists(ctx context.Context, b Bucket, key string) (bool, error) {
	_, err := b.Stat(ctx, key)
	if NotExist(err) {
		return false, nil
	}
	return err == nil, err
}
