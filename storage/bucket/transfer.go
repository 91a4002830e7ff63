package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"gocloud.dev/blob"
)

// An object is written to, and read from, a file without a name in the folder
// of temporary files: a transfer that was cut off begins again, and Parquet
// reads at any offset.

// errCutOff is a body that ended early.
var errCutOff = errors.New("the answer was cut off")

// tempFile is an open file that ends with its last descriptor.
func tempFile() (*os.File, error) {
	file, err := os.CreateTemp("", "draftmill-*")
	if err != nil {
		return nil, err
	}
	os.Remove(file.Name())
	return file, nil
}

// Open fetches the whole object. Where the object notes its digest, what came is
// checked against it, and fetched again if it is something else; what comes twice
// is what the store has.
func (o *objects) Open(ctx context.Context, key string) (*File, error) {
	info, err := o.Stat(ctx, key)
	if err != nil {
		return nil, err
	}
	file, err := tempFile()
	if err != nil {
		return nil, err
	}
	wrong := "" // the digest of what came last
	err = o.try(ctx, "read", key, int(info.Size), func(ctx context.Context) error {
		if err := errors.Join(rewind(file), file.Truncate(0)); err != nil {
			return err
		}
		r, err := o.store.NewReader(ctx, o.key(key), nil)
		if err != nil {
			return err
		}
		defer r.Close()
		hash := sha256.New()
		n, err := io.Copy(io.MultiWriter(file, hash), r)
		if err == nil && n != r.Size() {
			err = errCutOff
		}
		if err != nil {
			return err
		}
		digest := hex.EncodeToString(hash.Sum(nil))
		if info.SHA256 != "" && digest != info.SHA256 && digest != wrong {
			wrong = digest
			return fmt.Errorf("%w: it is not what was written", errCutOff)
		}
		info.Size, info.SHA256 = n, digest
		return nil
	})
	if err == nil {
		err = rewind(file)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return &File{file, info}, nil
}

func rewind(file *os.File) error {
	_, err := file.Seek(0, io.SeekStart)
	return err
}

// objectWriter collects an object in a file and sends it at the end.
type objectWriter struct {
	ctx  context.Context //nolint:containedctx // of the whole writer
	to   *objects
	key  string
	file *os.File
	n    int64
}

func (o *objects) Create(ctx context.Context, key string) (Writer, error) {
	file, err := tempFile()
	if err != nil {
		return nil, err
	}
	return &objectWriter{ctx: ctx, to: o, key: key, file: file}, nil
}

func (w *objectWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	w.n += int64(n)
	return n, err
}

func (w *objectWriter) Close(sha256 string) (Info, error) {
	if w.file == nil {
		return Info{}, os.ErrClosed
	}
	defer w.Abort()
	options := &blob.WriterOptions{ContentType: "application/octet-stream"}
	if sha256 != "" {
		options.Metadata = map[string]string{metaSHA256: sha256}
	}
	err := w.to.try(w.ctx, "write", w.key, int(w.n), func(ctx context.Context) error {
		return w.to.store.Upload(ctx, w.to.key(w.key), io.NewSectionReader(w.file, 0, w.n), options)
	})
	if err != nil {
		return Info{}, err
	}
	info, err := w.to.Stat(w.ctx, w.key)
	if err == nil && info.Size != w.n {
		err = fmt.Errorf("write %s: %w: it kept %d bytes of %d", w.to.name(w.key), ErrUnreachable, info.Size, w.n)
	}
	return info, err
}

func (w *objectWriter) Abort() {
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
}
