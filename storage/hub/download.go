package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // git's object ids
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// download fetches one file at one commit.
type download struct {
	hub  *Hub
	name Name

	blob string // the digest, which names it
	size int64  // -1: not known
}

// digestName is SHA-256 of a large file, or git's object id of a small one.
var digestName = regexp.MustCompile(`^([0-9a-f]{64}|[0-9a-f]{40})$`)

func (d *download) address() string {
	return fmt.Sprintf("%s/%s/resolve/%s/%s", d.hub.endpoint(), escaped(d.name.page()), d.name.Revision, escaped(d.name.Path))
}

// run fetches the blob unless it is there, and returns its name.
func (d *download) run(ctx context.Context) (blob string, err error) {
	if err := d.head(ctx); err != nil {
		return "", err
	}
	path := d.hub.dir(d.name, "blobs", d.blob)
	if present(path) {
		return d.blob, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	unlock, err := d.hub.lock(ctx, d.name, d.blob)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if present(path) { // by who held the lock
		return d.blob, nil
	}
	return d.blob, d.fill(ctx, path)
}

func present(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// head asks for the file's digest and size. A large file's lies elsewhere: the
// Hub's own headers say what it is, and the redirect is not followed.
func (d *download) head(ctx context.Context) error {
	answer, err := d.hub.request(ctx, d.name, http.MethodHead, d.address(), nil, near)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	etag := answer.Header.Get("X-Linked-Etag")
	if etag == "" {
		etag = answer.Header.Get("Etag")
	}
	d.blob = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	if !digestName.MatchString(d.blob) {
		return fmt.Errorf("%s: the server gives no digest of it (ETag %q): check HF_ENDPOINT", d.name, etag)
	}
	d.size = -1
	if answer.StatusCode < 300 {
		d.size = answer.ContentLength
	}
	if n, err := strconv.ParseInt(answer.Header.Get("X-Linked-Size"), 10, 64); err == nil && n >= 0 {
		d.size = n
	}
	return nil
}

// fill makes the blob at path: what an earlier download left is gone on with.
func (d *download) fill(ctx context.Context, path string) error {
	partial := path + ".incomplete"
	f, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	for again := true; ; again = false {
		old, err := f.Seek(0, io.SeekEnd)
		if err == nil && d.size >= 0 && old > d.size {
			old, err = 0, f.Truncate(0)
		}
		if err != nil {
			return err
		}
		if err := d.transfer(ctx, f, old); err != nil {
			return err
		}
		digest, err := d.digest(f)
		if err != nil {
			return fileError(err, partial)
		}
		if digest == d.blob {
			break
		}
		if err := f.Truncate(0); err != nil {
			return err
		}
		if old == 0 || !again { // else what was left before was something else
			return errors.Join(fmt.Errorf("%s: what was downloaded has the digest %s, the Hub says %s; try again", d.name, digest, d.blob), os.Remove(partial))
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fileError(err, partial)
	}
	return os.Rename(partial, path)
}

// digest is the file's, of the kind that the blob's name is.
func (d *download) digest(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	var h hash.Hash
	if len(d.blob) == hex.EncodedLen(sha256.Size) {
		h = sha256.New()
	} else {
		h = sha1.New() //nolint:gosec // git's
		fmt.Fprintf(h, "blob %d\x00", info.Size())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// transfer appends to f, which has n bytes, what the file has behind them. It
// goes on as long as tries make progress.
func (d *download) transfer(ctx context.Context, f *os.File, n int64) error {
	for try := 1; d.size < 0 || n < d.size; try++ {
		before := n
		whole, err := d.part(ctx, f, &n)
		if whole {
			return nil
		}
		var refused *Error
		if ctx.Err() != nil || errors.As(err, &refused) || errors.Is(err, ErrUnreachable) || errors.Is(err, errDisk) {
			return fmt.Errorf("download %s: %w", d.name, err)
		}
		if n > before {
			try = 1
		}
		if try == tries {
			return fmt.Errorf("download %s: %w: broken off at byte %d of %d again and again: %w; the same command goes on there", d.name, ErrUnreachable, n, d.size, err)
		}
		if err := d.hub.rest(ctx, time.Second<<(try-1)); err != nil {
			return err
		}
	}
	return nil
}

var errDisk = errors.New("write it")

// part is one request; n counts what f has. whole says that the server sent all
// that there is.
func (d *download) part(ctx context.Context, f *os.File, n *int64) (whole bool, err error) {
	var header map[string]string
	if *n > 0 {
		header = map[string]string{"Range": fmt.Sprintf("bytes=%d-", *n)}
	}
	answer, err := d.hub.request(ctx, d.name, http.MethodGet, d.address(), header, follow)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	from := int64(0)
	if answer.StatusCode == http.StatusPartialContent {
		if _, err := fmt.Sscanf(answer.Header.Get("Content-Range"), "bytes %d-", &from); err != nil {
			return false, fmt.Errorf("the server sends the range %q", answer.Header.Get("Content-Range"))
		}
	}
	if from != *n || answer.StatusCode == http.StatusRequestedRangeNotSatisfiable { // from the beginning, then
		if err := f.Truncate(0); err != nil {
			return false, fmt.Errorf("%w: %w", errDisk, err)
		}
		if *n = 0; from != 0 || answer.StatusCode == http.StatusRequestedRangeNotSatisfiable {
			return false, errors.New("the server sends another range than was asked for")
		}
	}
	if _, err := f.Seek(*n, io.SeekStart); err != nil {
		return false, fmt.Errorf("%w: %w", errDisk, err)
	}
	buffer := make([]byte, 1<<17)
	for {
		got, readErr := answer.Body.Read(buffer)
		if _, err := f.Write(buffer[:got]); err != nil {
			return false, fmt.Errorf("%w: %w", errDisk, err)
		}
		*n += int64(got)
		if d.hub.Progress != nil && got > 0 {
			d.hub.Progress(Step{d.name.Path, *n, d.size})
		}
		switch {
		case d.size >= 0 && *n > d.size:
			return false, fmt.Errorf("%w: the server sends more than the %d bytes that it promised", ErrUnreachable, d.size)
		case errors.Is(readErr, io.EOF):
			return d.size < 0 || *n == d.size, io.ErrUnexpectedEOF
		case readErr != nil:
			return false, readErr
		}
	}
}
