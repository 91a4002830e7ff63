package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"
)

// hostile makes streams that ask Arrow for far more than they hold, or for what
// no shard needs, and says what the error names.
func hostile(t testing.TB) map[string][]byte {
	good, err := EncodeShard(sampleShard(6))
	if err != nil {
		t.Fatal(err)
	}
	good = good[:len(good)-shardTrailer]
	first := 8 + int(binary.LittleEndian.Uint32(good[4:])) // where the batch begins
	// edit changes the metadata of the schema (at 0) or of the batch (at first).
	edit := func(at int, change func(message, header *flatbuffers.Table)) []byte {
		data := bytes.Clone(good)
		meta := data[at+8:][:binary.LittleEndian.Uint32(data[at+4:])]
		m := &flatbuffers.Table{Bytes: meta, Pos: flatbuffers.GetUOffsetT(meta)}
		change(m, child(m, 8))
		return data
	}
	length := func(t *flatbuffers.Table, slot flatbuffers.VOffsetT, n uint32) {
		flatbuffers.WriteUint32(t.Bytes[vector(t, slot, 1).at-4:], n)
	}
	pair := func(t *flatbuffers.Table, slot flatbuffers.VOffsetT, i int, a, b int64) {
		e := t.Bytes[int(vector(t, slot, 16).at)+16*i:]
		flatbuffers.WriteInt64(e, a)
		flatbuffers.WriteInt64(e[8:], b)
	}
	write := func(fields []arrow.Field, options ...ipc.Option) []byte {
		md := arrow.NewMetadata([]string{metaFormat, metaShard}, []string{"1", "0"})
		schema := arrow.NewSchema(fields, &md)
		b := array.NewRecordBuilder(allocator, schema)
		defer b.Release()
		for i := range fields {
			b.Field(i).AppendEmptyValue()
		}
		rec := b.NewRecord()
		defer rec.Release()
		var out bytes.Buffer
		w := ipc.NewWriter(&out, append(options, ipc.WithSchema(schema))...)
		if err := errors.Join(w.Write(rec), w.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	dictionary := write([]arrow.Field{shardFields[0], shardFields[1],
		{Name: "prompt", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.Binary}, Nullable: true}})
	deep := arrow.DataType(arrow.BinaryTypes.Binary)
	for range 60 {
		deep = arrow.ListOf(deep)
	}
	return map[string][]byte{
		"body of 1099511627776": edit(first, func(m, _ *flatbuffers.Table) { m.MutateInt64Slot(10, 1<<40) }),
		"body of -8":            edit(first, func(m, _ *flatbuffers.Table) { m.MutateInt64Slot(10, -8) }),
		"bytes of metadata":     append([]byte{255, 255, 255, 255, 0, 0, 0, 0x7f}, good[8:]...),
		"no message begins":     good[4:], // as Arrow wrote before its version 0.15
		"a vector of 4294967295": edit(0, func(_, schema *flatbuffers.Table) {
			length(schema, 8, 1<<32-1)
		}),
		"a vector of 1073741823":   edit(0, func(_, schema *flatbuffers.Table) { length(schema, 6, 1<<30-1) }),
		"of 6 rows has 2 columns":  edit(first, func(_, batch *flatbuffers.Table) { length(batch, 6, 2) }),
		"-1 rows":                  edit(first, func(_, batch *flatbuffers.Table) { batch.MutateInt64Slot(4, -1) }),
		"4611686018427387904 rows": edit(first, func(_, batch *flatbuffers.Table) { batch.MutateInt64Slot(4, 1<<62) }),
		"column 2 has 7 rows":      edit(first, func(_, batch *flatbuffers.Table) { pair(batch, 6, 2, 7, 0) }),
		"not inside the body":      edit(first, func(_, batch *flatbuffers.Table) { pair(batch, 8, 7, 1<<40, 1<<40) }),
		"for 6 rows":               edit(first, func(_, batch *flatbuffers.Table) { pair(batch, 8, 3, 0, 0); pair(batch, 8, 1, 0, 8) }),
		"longer than the body":     edit(first, func(m, batch *flatbuffers.Table) { pair(batch, 8, 7, 0, m.GetInt64Slot(10, 0)) }),
		"longer than the":          aliased(),
		"compressed":               write(shardFields, ipc.WithLZ4()),
		"is not plain":             dictionary,
		"one of its columns, 2":    write([]arrow.Field{shardFields[0], shardFields[1], {Name: "prompt", Type: deep}}),
		"of kind 1 is not a batch": bytes.Join([][]byte{good[:first], good}, nil),
		"with 8 bytes left":        append(bytes.Clone(good), 0, 0, 0, 0, 0, 0, 0, 0),
		"its columns are":          write([]arrow.Field{shardFields[0], shardFields[2], shardFields[1]}),
	}
}

// aliased is a schema whose metadata is 20,000 times one text of 1 MB.
func aliased() []byte {
	b := flatbuffers.NewBuilder(0)
	text := b.CreateString(strings.Repeat("x", 1<<20))
	b.StartObject(2)
	b.PrependUOffsetTSlot(0, text, 0)
	b.PrependUOffsetTSlot(1, text, 0)
	pair := b.EndObject()
	const n = 20000
	b.StartVector(4, n, 4)
	for range n {
		b.PrependUOffsetT(pair)
	}
	pairs := b.EndVector(n)
	b.StartObject(4)
	b.PrependUOffsetTSlot(2, pairs, 0)
	schema := b.EndObject()
	b.StartObject(5)
	b.PrependInt16Slot(0, 4, 0)
	b.PrependByteSlot(1, kindSchema, 0)
	b.PrependUOffsetTSlot(2, schema, 0)
	b.Finish(b.EndObject())
	meta := b.FinishedBytes()
	return append(binary.LittleEndian.AppendUint32([]byte{255, 255, 255, 255}, uint32(len(meta))), meta...)
}

// A sealed shard cannot make a worker allocate what it does not hold.
func TestHostileShardIsAnError(t *testing.T) {
	checkAlloc(t)
	for want, stream := range hostile(t) {
		allocated := allocation(func() {
			if _, err := DecodeShard(seal(stream)); !errors.Is(err, ErrShard) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		})
		if allocated > allowance(len(stream)) {
			t.Errorf("%s: %d bytes allocated for %d", want, allocated, len(stream))
		}
	}
}

// allowance is how much decoding a stream of so many bytes may allocate.
func allowance(stream int) uint64 { return 16<<20 + 64*uint64(stream) }

// allocation is how many bytes the process allocates while f runs.
func allocation(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Behind a right checksum anything may stand: it is a shard or an error, and
// takes memory in proportion.
func FuzzSealedShard(f *testing.F) {
	for _, stream := range hostile(f) {
		if len(stream) < 1<<16 {
			f.Add(stream)
		}
	}
	for _, s := range []Shard{{}, {Index: 3, Meta: map[string]string{"job": "{}"}, Rows: []ShardRow{{Row: 1, ID: "a", Prompt: []byte("x\xff")}, {Row: 2, Null: true}}}} {
		data, err := EncodeShard(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:len(data)-shardTrailer])
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		data := seal(stream)
		allocated := allocation(func() {
			s, err := DecodeShard(data)
			if err != nil && (!errors.Is(err, ErrShard) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%v", err)
			}
			if len(s.Rows) > len(stream) {
				t.Errorf("%d rows of %d bytes", len(s.Rows), len(stream))
			}
		})
		if allocated > allowance(len(stream)) {
			t.Errorf("%d bytes allocated for %d", allocated, len(stream))
		}
	})
}
