package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"sync"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/gcsblob" // gs://
	_ "gocloud.dev/blob/memblob" // mem://, for tests
	_ "gocloud.dev/blob/s3blob"  // s3://
)

// objects is a Bucket in an object store, under a prefix.
type objects struct {
	store  *blob.Bucket
	url    string // of the bucket, with its query
	prefix string // without slashes around it
}

// stores are the open clients by URL. They live as long as the process.
var stores struct {
	sync.Mutex
	open map[string]*blob.Bucket
}

// openStore makes a client, or finds the one that there is.
func openStore(url string) (*blob.Bucket, error) {
	stores.Lock()
	defer stores.Unlock()
	if b := stores.open[url]; b != nil {
		return b, nil
	}
	b, err := blob.OpenBucket(context.Background(), url)
	if err != nil {
		return nil, errors.New(oneLine(err))
	}
	if stores.open == nil {
		stores.open = map[string]*blob.Bucket{}
	}
	stores.open[url] = b
	return b, nil
}

func (o *objects) String() string { return join(o.url, o.prefix) }

func (o *objects) Sub(dir string) Bucket {
	return &objects{store: o.store, url: o.url, prefix: o.key(dir)}
}

// key is an object's key in the store.
func (o *objects) key(key string) string { return strings.TrimPrefix(path.Join(o.prefix, key), "/") }

// name is an object as errors name it.
func (o *objects) name(key string) string {
	base, _, _ := strings.Cut(o.url, "?")
	return base + "/" + o.key(key)
}

// metaSHA256 is where an object notes its digest.
const metaSHA256 = "sha256"

func (o *objects) Stat(ctx context.Context, key string) (info Info, err error) {
	err = o.try(ctx, "look at", key, 0, func(ctx context.Context) error {
		a, err := o.store.Attributes(ctx, o.key(key))
		if err == nil {
			info = Info{Key: key, Size: a.Size, SHA256: a.Metadata[metaSHA256], ID: fmt.Sprint(a.Size, " ", a.ModTime.UnixNano(), " ", a.ETag)}
		}
		return err
	})
	return info, err
}

func (o *objects) Get(ctx context.Context, key string) (data []byte, err error) {
	err = o.try(ctx, "read", key, 0, func(ctx context.Context) error {
		r, err := o.store.NewReader(ctx, o.key(key), nil)
		if err != nil {
			return err
		}
		defer r.Close()
		var b bytes.Buffer
		if _, err := r.WriteTo(&b); err != nil {
			return err
		}
		if int64(b.Len()) != r.Size() {
			return errCutOff
		}
		data = b.Bytes()
		return nil
	})
	return data, err
}

func (o *objects) List(ctx context.Context, dir string) (list []Info, err error) {
	under, strip := o.key(dir)+"/", ""
	if o.prefix != "" {
		strip = o.prefix + "/"
	}
	if under == "/" {
		under = ""
	}
	err = o.try(ctx, "list", dir, 0, func(ctx context.Context) error {
		list = nil
		token := blob.FirstPageToken
		for len(token) > 0 {
			var page []*blob.ListObject
			var err error
			page, token, err = o.store.ListPage(ctx, token, 1000, &blob.ListOptions{Prefix: under})
			if err != nil {
				return err
			}
			for _, e := range page {
				if !strings.HasSuffix(e.Key, "/") { // folders, as some tools make them
					list = append(list, Info{Key: strings.TrimPrefix(e.Key, strip), Size: e.Size})
				}
			}
		}
		return nil
	})
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Key, b.Key) })
	return list, err
}

// put writes a small object.
func (o *objects) put(ctx context.Context, key string, data []byte, once bool) error {
	return o.store.WriteAll(ctx, o.key(key), data, &blob.WriterOptions{ContentType: "application/octet-stream", IfNotExist: once})
}

func (o *objects) CreateOnce(ctx context.Context, key string, data []byte) (bool, error) {
	for n := range 6 {
		err := o.try(ctx, "create", key, len(data), func(ctx context.Context) error { return o.put(ctx, key, data, true) })
		if !errors.Is(err, errTaken) {
			return err == nil, err
		}
		// It exists; but the store may have made it for us, and its answer was lost.
		got, err := o.Get(ctx, key)
		switch {
		case err == nil:
			return bytes.Equal(got, data), nil
		case !errors.Is(err, fs.ErrNotExist):
			return false, err
		}
		if err := pause(ctx, firstPause<<n); err != nil { // removed meanwhile, or a false answer
			return false, err
		}
	}
	return false, fmt.Errorf("create %s: %w: it refuses an object that it says exists, and has none", o.name(key), ErrUnreachable)
}

func (o *objects) Replace(ctx context.Context, key string, data []byte) error {
	return o.try(ctx, "write", key, len(data), func(ctx context.Context) error { return o.put(ctx, key, data, false) })
}

// Move copies within the store, and then removes. When it is interrupted
// between the two both are there.
func (o *objects) Move(ctx context.Context, from, to string) (Info, error) {
	was, err := o.Stat(ctx, from)
	if err != nil {
		return Info{}, err
	}
	err = o.try(ctx, "copy", from, int(was.Size), func(ctx context.Context) error {
		return o.store.Copy(ctx, o.key(to), o.key(from), nil)
	})
	if err != nil {
		return Info{}, err
	}
	info, err := o.Stat(ctx, to)
	if err == nil && info.Size != was.Size {
		err = fmt.Errorf("copy %s: %w: the copy has %d bytes of %d", o.name(from), ErrUnreachable, info.Size, was.Size)
	}
	if err != nil {
		return Info{}, err
	}
	return info, o.Remove(ctx, from)
}

func (o *objects) Remove(ctx context.Context, key string) error {
	err := o.try(ctx, "remove", key, 0, func(ctx context.Context) error { return o.store.Delete(ctx, o.key(key)) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (o *objects) Room(ctx context.Context) error {
	key := path.Join(Staging, ".room."+unique())
	if err := o.Replace(ctx, key, nil); err != nil {
		return err
	}
	return o.Remove(ctx, key)
}

func (o *objects) Free() (uint64, bool, error) { return math.MaxUint64, false, nil }
