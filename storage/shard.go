package storage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
)

// A ShardRow is one row of a dataset on its way to a worker.
type ShardRow struct {
	Row    int64  // index in the dataset, from 0
	ID     string // the dataset's id of the row
	Prompt []byte // raw bytes, perhaps not UTF-8
	Null   bool   // the dataset has no prompt here; Prompt is nil
}

// A Shard is a run of rows and what a worker must know to decode them. Meta
// is the caller's (the job's specification, models' digests); keys that begin
// with "draftmill." belong to this package.
type Shard struct {
	Index int
	Meta  map[string]string
	Rows  []ShardRow
}

// An encoded shard is an Arrow IPC stream, its sha256 and shardMagic. Readers
// of Arrow streams stop at the stream's end, so they read it as it is.
const shardMagic = "DMSHARD1"

const shardTrailer = sha256.Size + len(shardMagic)

var shardFields = []arrow.Field{
	{Name: "row", Type: arrow.PrimitiveTypes.Int64},
	{Name: "row_id", Type: arrow.BinaryTypes.String},
	{Name: "prompt", Type: arrow.BinaryTypes.Binary, Nullable: true},
}

// ErrShard is wrapped by every error of DecodeShard.
var ErrShard = errors.New("not an intact shard")

// ErrNewer is wrapped by what was written by a newer draftmill than this one.
var ErrNewer = errors.New("update draftmill")

// EncodeShard returns the shard's bytes; the same shard gives the same bytes.
func EncodeShard(s Shard) ([]byte, error) {
	if s.Index < 0 {
		return nil, fmt.Errorf("encode shard %d: the index is negative", s.Index)
	}
	keys := []string{metaFormat, metaShard}
	values := []string{strconv.Itoa(Format), strconv.Itoa(s.Index)}
	for _, k := range slices.Sorted(maps.Keys(s.Meta)) {
		if strings.HasPrefix(k, "draftmill.") {
			return nil, fmt.Errorf("encode shard %d: metadata key %q is reserved", s.Index, k)
		}
		keys, values = append(keys, k), append(values, s.Meta[k])
	}
	md := arrow.NewMetadata(keys, values)
	schema := arrow.NewSchema(shardFields, &md)

	b := array.NewRecordBuilder(allocator, schema)
	defer b.Release()
	for i := range s.Rows {
		r := &s.Rows[i]
		b.Field(0).(*array.Int64Builder).Append(r.Row)
		b.Field(1).(*array.StringBuilder).Append(validUTF8(r.ID))
		if r.Null {
			b.Field(2).AppendNull()
		} else {
			b.Field(2).(*array.BinaryBuilder).Append(r.Prompt)
		}
	}
	rec := b.NewRecord()
	defer rec.Release()

	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema), ipc.WithAllocator(allocator))
	err := w.Write(rec)
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("encode shard %d: %w", s.Index, err)
	}
	sum := sha256.Sum256(out.Bytes())
	out.Write(sum[:])
	out.WriteString(shardMagic)
	return out.Bytes(), nil
}

// DecodeShard is EncodeShard's inverse. The result shares no memory with
// data. Bytes that are not exactly what EncodeShard made give an error that
// wraps ErrShard: the checksum, and then every size that the stream announces,
// are verified before Arrow sees anything.
func DecodeShard(data []byte) (s Shard, err error) {
	fail := func(format string, args ...any) (Shard, error) {
		return Shard{}, fmt.Errorf("decode shard: %w: %s", ErrShard, fmt.Sprintf(format, args...))
	}
	n := len(data) - shardTrailer
	if n < 0 || string(data[len(data)-len(shardMagic):]) != shardMagic {
		return fail("%d bytes without the mark at the end", len(data))
	}
	if sum := sha256.Sum256(data[:n]); !bytes.Equal(sum[:], data[n:n+sha256.Size]) {
		return fail("its checksum is wrong")
	}
	// From here on only a wrong encoder can fail, or somebody who means harm.
	// Most of what Arrow does with such bytes is a panic, which must not end a
	// worker; what is worse, the checks of sealed.go refuse.
	defer func() {
		if p := recover(); p != nil {
			s, err = fail("%v", p)
		}
	}()
	schema, batches, err := nextMessage(data[:n])
	if err == nil {
		s.Meta, err = schemaMeta(schema)
	}
	if err != nil {
		return fail("%v", err)
	}
	version, err := strconv.Atoi(s.Meta[metaFormat])
	switch {
	case err != nil || version < 1:
		return fail("no %s in its metadata", metaFormat)
	case version > Format:
		return Shard{}, fmt.Errorf("decode shard: %w: its format %d is newer than %d, which this draftmill reads: %w", ErrShard, version, Format, ErrNewer)
	}
	if s.Index, err = strconv.Atoi(s.Meta[metaShard]); err != nil {
		return fail("no %s in its metadata", metaShard)
	}
	delete(s.Meta, metaFormat)
	delete(s.Meta, metaShard)
	if err = checkSchema(schema.header); err == nil {
		err = checkBatches(batches)
	}
	if err != nil {
		return fail("%v", err)
	}
	r, err := ipc.NewReader(bytes.NewReader(data[:n]), ipc.WithAllocator(allocator))
	if err != nil {
		return fail("%v", err)
	}
	defer r.Release()
	if !r.Schema().Equal(arrow.NewSchema(shardFields, nil)) {
		return fail("its columns are %v", r.Schema().Fields())
	}
	for r.Next() {
		rec := r.Record()
		row, id, prompt := rec.Column(0).(*array.Int64), rec.Column(1).(*array.String), rec.Column(2).(*array.Binary)
		for i := range int(rec.NumRows()) {
			sr := ShardRow{Row: row.Value(i), ID: strings.Clone(id.Value(i)), Null: prompt.IsNull(i)}
			if !sr.Null {
				sr.Prompt = append([]byte{}, prompt.Value(i)...)
			}
			s.Rows = append(s.Rows, sr)
		}
	}
	if err := r.Err(); err != nil {
		return fail("%v", err)
	}
	return s, nil
}
