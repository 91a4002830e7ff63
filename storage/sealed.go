package storage

import (
	"encoding/binary"
	"errors"
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"
)

// What is in this file checks the Arrow stream of a shard before Arrow reads
// it. Arrow believes what a stream says of its own sizes: a few bytes that
// announce a body of a terabyte end the process, and no recover helps against
// that. What passes is what EncodeShard writes: plain columns in uncompressed
// batches, without dictionaries, every buffer inside its body, no byte counted
// twice. Arrow then allocates a small multiple of the stream's size at most.
//
// The layouts are those of Message.fbs and Schema.fbs of Apache Arrow. An
// offset that leads outside of the metadata is a panic, which DecodeShard
// turns into an error.

// Kinds of messages.
const (
	kindSchema = 1
	kindBatch  = 3
)

// A message of a stream: its header, a table inside metadata of size bytes, and
// the length of the body that follows. The mark of the stream's end is one of
// size 0.
type message struct {
	kind       byte
	header     *flatbuffers.Table
	size, body int64
}

// nextMessage takes a message off the beginning of a stream.
func nextMessage(data []byte) (m message, rest []byte, err error) {
	if len(data) < 8 || binary.LittleEndian.Uint32(data) != 0xffffffff {
		return m, nil, fmt.Errorf("no message begins %d bytes before its end", len(data))
	}
	m.size = int64(binary.LittleEndian.Uint32(data[4:]))
	if data = data[8:]; m.size == 0 {
		return m, data, nil
	}
	if m.size > int64(len(data)) {
		return m, nil, fmt.Errorf("a message announces %d bytes of metadata, of %d", m.size, len(data))
	}
	meta := data[:m.size]
	data = data[m.size:]
	t := &flatbuffers.Table{Bytes: meta, Pos: flatbuffers.GetUOffsetT(meta)}
	m.kind, m.header, m.body = t.GetByteSlot(6, 0), child(t, 8), t.GetInt64Slot(10, 0)
	if m.body < 0 || m.body > int64(len(data)) {
		return m, nil, fmt.Errorf("a message announces a body of %d bytes, of %d", m.body, len(data))
	}
	return m, data[m.body:], nil
}

// schemaMeta is the metadata of a stream, which begins with its schema.
func schemaMeta(m message) (map[string]string, error) {
	if m.kind != kindSchema {
		return nil, fmt.Errorf("it begins with a message of kind %d", m.kind)
	}
	// Many pairs may share the bytes of one long text, and each is copied.
	pairs, total := vector(m.header, 8, 4), int64(0)
	meta := make(map[string]string)
	for i := range pairs.n {
		pair := pairs.table(i)
		key, value := vector(pair, 4, 1), vector(pair, 6, 1)
		if total += int64(key.n + value.n); total > m.size {
			return nil, fmt.Errorf("its metadata is longer than the %d bytes that hold it", m.size)
		}
		meta[key.text()] = value.text()
	}
	return meta, nil
}

// checkSchema takes a schema whose metadata is of the format that this
// draftmill reads.
func checkSchema(schema *flatbuffers.Table) error {
	if schema.GetInt16Slot(4, 0) != 0 {
		return errors.New("it is not little-endian")
	}
	fields := vector(schema, 6, 4)
	if fields.n != len(shardFields) {
		return fmt.Errorf("its columns are %d, not %d", fields.n, len(shardFields))
	}
	for i := range fields.n {
		field := fields.table(i)
		// What a column of these types cannot have: a dictionary, children, and
		// metadata, which could make it an extension.
		if field.Offset(12) != 0 || vector(field, 14, 4).n > 0 || vector(field, 16, 4).n > 0 {
			return fmt.Errorf("one of its columns, %d, is not plain", i)
		}
	}
	return nil
}

// checkBatches takes what follows the schema.
func checkBatches(data []byte) error {
	for n := 0; ; n++ {
		m, rest, err := nextMessage(data)
		switch {
		case err != nil:
			return err
		case m.size == 0 && (n == 0 || len(rest) > 0):
			return fmt.Errorf("it ends after %d batches, with %d bytes left", n, len(rest))
		case m.size == 0:
			return nil
		case m.kind != kindBatch:
			return fmt.Errorf("a message of kind %d is not a batch", m.kind)
		}
		if err := checkBatch(m.header, m.body); err != nil {
			return err
		}
		data = rest
	}
}

// The buffers of shardFields: the validity, offsets and values of each column,
// as many as its type has. A unit is the bytes that a row takes, 0 if that is
// not fixed; plus is how many units a column has beyond its rows.
var shardBuffers = []struct{ column, unit, plus int64 }{
	{0, -1, 0}, {0, 8, 0},
	{1, -1, 0}, {1, 4, 1}, {1, 0, 0},
	{2, -1, 0}, {2, 4, 1}, {2, 0, 0},
}

// checkBatch takes a table RecordBatch and the length of its body.
func checkBatch(batch *flatbuffers.Table, body int64) error {
	if batch.Offset(10) != 0 {
		return errors.New("it is compressed")
	}
	rows := batch.GetInt64Slot(4, 0)
	nodes, buffers := vector(batch, 6, 16), vector(batch, 8, 16)
	if rows < 0 || rows > body || nodes.n != len(shardFields) || buffers.n != len(shardBuffers) {
		return fmt.Errorf("a batch of %d rows has %d columns, %d buffers and %d bytes", rows, nodes.n, buffers.n, body)
	}
	nulls := make([]int64, nodes.n)
	for i := range nodes.n {
		var n int64
		if n, nulls[i] = nodes.pair(i); n != rows || nulls[i] < 0 || nulls[i] > rows {
			return fmt.Errorf("column %d has %d rows of %d, %d of them null", i, n, rows, nulls[i])
		}
	}
	total := int64(0)
	for i, b := range shardBuffers {
		offset, length := buffers.pair(i)
		if offset < 0 || length < 0 || offset > body || length > body-offset {
			return fmt.Errorf("buffer %d, %d bytes at %d, is not inside the body of %d bytes", i, length, offset, body)
		}
		if total += length; total > body {
			return fmt.Errorf("its buffers are longer than the body of %d bytes", body)
		}
		need := b.unit * (rows + b.plus)
		if b.unit < 0 {
			need = 0
			if nulls[b.column] > 0 {
				need = (rows + 7) / 8
			}
		}
		if length < need && rows > 0 {
			return fmt.Errorf("buffer %d has %d bytes for %d rows", i, length, rows)
		}
	}
	return nil
}

// child is the table that a slot refers to.
func child(t *flatbuffers.Table, slot flatbuffers.VOffsetT) *flatbuffers.Table {
	o := flatbuffers.UOffsetT(t.Offset(slot))
	if o == 0 {
		panic(fmt.Sprintf("table %d has no member %d", t.Pos, slot))
	}
	return &flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(o + t.Pos)}
}

// An fbVector is a vector inside a flat buffer: n elements from at on.
type fbVector struct {
	bytes []byte
	at    flatbuffers.UOffsetT
	n     int
}

// vector is the vector that a slot refers to, of elements of width bytes; an
// absent one is empty.
func vector(t *flatbuffers.Table, slot flatbuffers.VOffsetT, width int) fbVector {
	o := flatbuffers.UOffsetT(t.Offset(slot))
	if o == 0 {
		return fbVector{bytes: t.Bytes}
	}
	v := fbVector{t.Bytes, t.Vector(o), t.VectorLen(o)}
	if v.n*width > len(t.Bytes) || int(v.at) > len(t.Bytes)-v.n*width {
		panic(fmt.Sprintf("a vector of %d elements in %d bytes", v.n, len(t.Bytes)))
	}
	return v
}

func (v fbVector) text() string { return string(v.bytes[v.at:][:v.n]) }

func (v fbVector) table(i int) *flatbuffers.Table {
	t := &flatbuffers.Table{Bytes: v.bytes}
	t.Pos = t.Indirect(v.at + flatbuffers.UOffsetT(4*i))
	return t
}

// pair is element i of a vector of two int64 each.
func (v fbVector) pair(i int) (a, b int64) {
	e := v.bytes[int(v.at)+16*i:]
	return int64(binary.LittleEndian.Uint64(e)), int64(binary.LittleEndian.Uint64(e[8:]))
}
