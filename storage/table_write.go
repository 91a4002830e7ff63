package storage

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"strconv"

	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"

	"github.com/draftmill/draftmill/storage/bucket"
)

// flushBytes bounds what a table writer holds back: about one row group.
const flushBytes = 4 << 20

// fileInfo describes a finished file.
type fileInfo struct {
	rows   int64
	bytes  int64
	sha256 string // lower-case hexadecimal
	id     string // of its content, see bucket.Info
}

// A tableWriter writes one Parquet file in memory bounded by flushBytes.
// The file is worth nothing until close returned nil.
type tableWriter[T any] struct {
	table   *table[T]
	to      bucket.Writer
	sink    *hashingSink
	parquet *pqarrow.FileWriter
	builder *array.RecordBuilder
	pending int
	rows    int64
	err     error // sticky
}

// newTableWriter begins a file, and owns to. meta says in its metadata what it
// is a part of.
func newTableWriter[T any](t *table[T], to bucket.Writer, meta map[string]string) (*tableWriter[T], error) {
	kv := map[string]string{metaFormat: strconv.Itoa(Format), metaTable: t.name}
	maps.Copy(kv, meta)
	schema := t.schema(kv)
	options := []parquet.WriterProperty{
		parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithDictionaryDefault(false),
		parquet.WithCreatedBy("draftmill"),
		parquet.WithAllocator(allocator),
	}
	for _, c := range t.cols {
		if c.dict {
			options = append(options, parquet.WithDictionaryFor(c.name, true))
		}
	}
	sink := &hashingSink{file: bufio.NewWriterSize(to, 1<<16), hash: sha256.New()}
	pw, err := pqarrow.NewFileWriter(schema, sink, parquet.NewWriterProperties(options...),
		pqarrow.NewArrowWriterProperties(pqarrow.WithAllocator(allocator)))
	if err != nil {
		to.Abort()
		return nil, err
	}
	return &tableWriter[T]{table: t, to: to, sink: sink, parquet: pw, builder: array.NewRecordBuilder(allocator, schema)}, nil
}

// add appends a row. The row is not kept.
func (w *tableWriter[T]) add(row *T) error {
	if w.err != nil {
		return w.err
	}
	if err := w.table.check(row); err != nil {
		w.err = err // the builders may be uneven after a refused row: nothing can follow it
		return err
	}
	for i, c := range w.table.cols {
		if err := c.put(w.builder.Field(i), row); err != nil {
			w.err = err
			return err
		}
	}
	w.rows++
	w.pending += w.table.size(row)
	if w.pending >= flushBytes {
		w.err = w.flush()
	}
	return w.err
}

// flush writes the pending rows as one row group.
func (w *tableWriter[T]) flush() error {
	rec := w.builder.NewRecord()
	defer rec.Release()
	w.pending = 0
	if rec.NumRows() == 0 {
		return nil
	}
	return w.guard(func() error { return w.parquet.Write(rec) })
}

// close writes the footer and makes the file, durably.
func (w *tableWriter[T]) close() (fileInfo, error) {
	defer w.to.Abort()
	defer w.builder.Release()
	err := w.err
	if err == nil {
		err = w.flush()
	}
	step("before footer")
	// Also after an error: the Parquet writer holds buffers of its own.
	err = errors.Join(err, w.guard(w.parquet.Close))
	if err == nil {
		err = w.sink.file.Flush()
	}
	if err != nil {
		return fileInfo{}, firstError(err)
	}
	info := fileInfo{rows: w.rows, bytes: w.sink.n, sha256: hex.EncodeToString(w.sink.hash.Sum(nil))}
	made, err := w.to.Close(info.sha256)
	info.id = made.ID
	return info, err
}

// abort gives up: nothing is made.
func (w *tableWriter[T]) abort() {
	if w.err == nil {
		w.err = errAborted
	}
	_, _ = w.close()
}

var errAborted = errors.New("the file was given up")

// guard runs a step of the Parquet library, which panics on some failed
// writes and swallows others, and returns what went wrong first.
func (w *tableWriter[T]) guard(step func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("parquet writer: %v", r)
		}
		if w.sink.err != nil {
			err = w.sink.err
		}
	}()
	return step()
}

// firstError keeps one line of what errors.Join collected.
func firstError(err error) error {
	var joined interface{ Unwrap() []error }
	for errors.As(err, &joined) {
		err = joined.Unwrap()[0]
	}
	return err
}

// hashingSink counts and digests what goes to the file, and remembers the
// first failed write.
type hashingSink struct {
	file *bufio.Writer
	hash hash.Hash
	n    int64
	err  error
}

func (s *hashingSink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	note("write")
	n, err := s.file.Write(p)
	s.hash.Write(p[:n])
	s.n += int64(n)
	s.err = err
	return n, err
}

// fileDigest hashes an open file from its start.
func fileDigest(f io.ReaderAt, size int64) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
