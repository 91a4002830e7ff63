package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"

	"github.com/draftmill/draftmill/storage/bucket"
)

// ReadCompletions calls fn for each row of the completions file at key in b, in
// file order, and stops at fn's first error, which it returns as it is. Give the
// file's sha256 (from the shard's or the job's manifest): then the bytes are
// checked before anything parses them. With an empty digest the file is trusted,
// and a damaged one can end the process inside the Parquet library.
func ReadCompletions(b bucket.Bucket, key, sha256 string, fn func(Completion) error) error {
	return readTable(completionTable, b, key, sha256, fn)
}

// ReadLoops is ReadCompletions for a loops file.
func ReadLoops(b bucket.Bucket, key, sha256 string, fn func(Loop) error) error {
	return readTable(loopTable, b, key, sha256, fn)
}

// errDigest is a file whose bytes are not those that were committed.
var errDigest = errors.New("its sha256 is not the one in the manifest: the file was changed or damaged")

func readTable[T any](t *table[T], b bucket.Bucket, key, digest string, fn func(T) error) error {
	f, err := b.Open(context.Background(), key)
	if err != nil {
		return fmt.Errorf("read %s: %w", t.name, err)
	}
	defer f.Close()
	name := bucket.Join(b.String(), key)
	if digest != "" {
		got, err := fileDigest(f, f.Info.Size)
		if err != nil {
			return fmt.Errorf("read %s: %w", t.name, err)
		}
		if got != digest {
			return fmt.Errorf("read %s %s: %w", t.name, name, errDigest)
		}
	}
	rows, err := openTable(t, f.File)
	if err != nil {
		return fmt.Errorf("read %s %s: %w", t.name, name, err)
	}
	defer rows.close()
	for {
		batch, err := rows.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s %s: %w", t.name, name, err)
		}
		for i := range batch {
			if err := fn(batch[i]); err != nil {
				return err
			}
		}
	}
}

// tableRows yields a Parquet file's rows in batches.
type tableRows[T any] struct {
	table  *table[T]
	pq     *file.Reader
	reader pqarrow.RecordReader
}

func openTable[T any](t *table[T], f *os.File) (rows *tableRows[T], err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("parquet reader: %v", r)
		}
	}()
	props := parquet.NewReaderProperties(allocator)
	props.BufferedStreamEnabled = true
	pq, err := file.NewParquetReader(f, file.WithReadProps(props))
	if err != nil {
		return nil, err
	}
	if err := checkTableMeta(t.name, pq.MetaData().KeyValueMetadata().FindValue); err != nil {
		return nil, err
	}
	fr, err := pqarrow.NewFileReader(pq, pqarrow.ArrowReadProperties{BatchSize: 512}, allocator)
	if err != nil {
		return nil, err
	}
	rr, err := fr.GetRecordReader(context.Background(), nil, nil)
	if err != nil {
		return nil, err
	}
	return &tableRows[T]{table: t, pq: pq, reader: rr}, nil
}

// checkTableMeta refuses a file of another kind or from a later version.
func checkTableMeta(table string, find func(string) *string) error {
	kind, version := find(metaTable), find(metaFormat)
	if kind == nil || version == nil {
		return fmt.Errorf("not a file of draftmill: no %s in its metadata", metaFormat)
	}
	if *kind != table {
		return fmt.Errorf("it holds the table %s, not %s", *kind, table)
	}
	n, err := strconv.Atoi(*version)
	if err != nil || n < 1 {
		return fmt.Errorf("%s %q is not a version", metaFormat, *version)
	}
	if n > Format {
		return fmt.Errorf("its format %d is newer than %d, which this draftmill reads: update draftmill", n, Format)
	}
	return nil
}

// next returns the following rows, which own their memory, or io.EOF.
func (r *tableRows[T]) next() (rows []T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("parquet reader: %v", p)
		}
	}()
	if !r.reader.Next() {
		if err := r.reader.Err(); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, io.EOF
	}
	rec := r.reader.Record()
	rows = make([]T, rec.NumRows())
	for _, c := range r.table.cols {
		where := rec.Schema().FieldIndices(c.name)
		if len(where) == 0 {
			continue // written by an earlier minor change of this format: reads as the zero value
		}
		a := rec.Column(where[0])
		if !sameType(a.DataType(), c.typ) {
			return nil, fmt.Errorf("column %s is %s, not %s", c.name, a.DataType(), c.typ)
		}
		for i := range rows {
			if a.IsValid(i) {
				c.get(a, i, &rows[i])
			}
		}
	}
	return rows, nil
}

// sameType compares types without the names that list items happen to have.
func sameType(a, b arrow.DataType) bool {
	la, ok := a.(*arrow.ListType)
	if !ok {
		return arrow.TypeEqual(a, b)
	}
	lb, ok := b.(*arrow.ListType)
	return ok && arrow.TypeEqual(la.Elem(), lb.Elem())
}

func (r *tableRows[T]) close() {
	r.reader.Release()
	_ = r.pq.Close()
}
