package storage

import (
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// Format is the version of everything this package writes: the tables, the
// shards and the JSON files of a job folder. FORMAT.md states the rule by
// which it grows.
const Format = 1

// Keys of the metadata of a Parquet file and of a shard's Arrow schema.
const (
	metaFormat = "draftmill.format"
	metaTable  = "draftmill.table"
	metaJob    = "draftmill.job"
	metaSpec   = "draftmill.spec"
	metaMode   = "draftmill.mode"
	metaShard  = "draftmill.shard"
)

// A table says how a Go struct becomes rows of a Parquet file. Columns are
// written in this order and read by name.
type table[T any] struct {
	name  string
	cols  []column[T]
	size  func(*T) int // rough bytes of a row, to bound what the writer buffers
	check func(*T) error
}

// A column moves one field between a row and its Arrow array.
type column[T any] struct {
	name     string
	typ      arrow.DataType
	nullable bool
	dict     bool // few distinct values: dictionary-encode
	put      func(array.Builder, *T) error
	get      func(arrow.Array, int, *T)
}

func (t *table[T]) schema(meta map[string]string) *arrow.Schema {
	fields := make([]arrow.Field, len(t.cols))
	for i, c := range t.cols {
		fields[i] = arrow.Field{Name: c.name, Type: c.typ, Nullable: c.nullable}
	}
	md := arrow.MetadataFrom(meta)
	return arrow.NewSchema(fields, &md)
}

func int32Column[T any](name string, field func(*T) *int32) column[T] {
	return column[T]{name: name, typ: arrow.PrimitiveTypes.Int32,
		put: func(b array.Builder, row *T) error { b.(*array.Int32Builder).Append(*field(row)); return nil },
		get: func(a arrow.Array, i int, row *T) { *field(row) = a.(*array.Int32).Value(i) },
	}
}

func int64Column[T any](name string, field func(*T) *int64) column[T] {
	return column[T]{name: name, typ: arrow.PrimitiveTypes.Int64,
		put: func(b array.Builder, row *T) error { b.(*array.Int64Builder).Append(*field(row)); return nil },
		get: func(a arrow.Array, i int, row *T) { *field(row) = a.(*array.Int64).Value(i) },
	}
}

func uint64Column[T any](name string, field func(*T) *uint64) column[T] {
	return column[T]{name: name, typ: arrow.PrimitiveTypes.Uint64,
		put: func(b array.Builder, row *T) error { b.(*array.Uint64Builder).Append(*field(row)); return nil },
		get: func(a arrow.Array, i int, row *T) { *field(row) = a.(*array.Uint64).Value(i) },
	}
}

// textColumn writes valid UTF-8 whatever it is given: one byte that is not
// would make DuckDB refuse the whole file.
func textColumn[T any](name string, field func(*T) *string) column[T] {
	return column[T]{name: name, typ: arrow.BinaryTypes.String,
		put: func(b array.Builder, row *T) error {
			b.(*array.StringBuilder).Append(validUTF8(*field(row)))
			return nil
		},
		// Arrow's string shares the batch's buffer, which the reader releases.
		get: func(a arrow.Array, i int, row *T) { *field(row) = strings.Clone(a.(*array.String).Value(i)) },
	}
}

// labelColumn is a textColumn of few distinct values.
func labelColumn[T any](name string, field func(*T) *string) column[T] {
	c := textColumn(name, field)
	c.dict = true
	return c
}

// maybeTextColumn is a textColumn whose empty string is a null.
func maybeTextColumn[T any](name string, field func(*T) *string) column[T] {
	c := labelColumn(name, field)
	c.nullable = true
	put := c.put
	c.put = func(b array.Builder, row *T) error {
		if *field(row) == "" {
			b.AppendNull()
			return nil
		}
		return put(b, row)
	}
	return c
}

func int32sColumn[T any](name string, field func(*T) *[]int32) column[T] {
	return column[T]{name: name, typ: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int32),
		put: func(b array.Builder, row *T) error {
			lb := b.(*array.ListBuilder)
			lb.Append(true)
			lb.ValueBuilder().(*array.Int32Builder).AppendValues(*field(row), nil)
			return nil
		},
		get: func(a arrow.Array, i int, row *T) {
			l := a.(*array.List)
			from, to := l.ValueOffsets(i)
			*field(row) = append([]int32(nil), l.ListValues().(*array.Int32).Int32Values()[from:to]...)
		},
	}
}

func float64sColumn[T any](name string, field func(*T) *[]float64) column[T] {
	return listColumn(name, field, math.MaxFloat64)
}

// marginsColumn allows infinity: the margin over a runner-up that has no
// probability.
func marginsColumn[T any](name string, field func(*T) *[]float64) column[T] {
	return listColumn(name, field, math.Inf(1))
}

func listColumn[T any](name string, field func(*T) *[]float64, most float64) column[T] {
	return column[T]{name: name, typ: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Float64),
		put: func(b array.Builder, row *T) error {
			for _, v := range *field(row) {
				if !(math.Abs(v) <= most) {
					return fmt.Errorf("column %s: %v is not a finite number", name, v)
				}
			}
			lb := b.(*array.ListBuilder)
			lb.Append(true)
			lb.ValueBuilder().(*array.Float64Builder).AppendValues(*field(row), nil)
			return nil
		},
		get: func(a arrow.Array, i int, row *T) {
			l := a.(*array.List)
			from, to := l.ValueOffsets(i)
			*field(row) = append([]float64(nil), l.ListValues().(*array.Float64).Float64Values()[from:to]...)
		},
	}
}

func float64Column[T any](name string, field func(*T) *float64) column[T] {
	return column[T]{name: name, typ: arrow.PrimitiveTypes.Float64,
		put: func(b array.Builder, row *T) error {
			if v := *field(row); math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("column %s: %v is not a finite number", name, v)
			}
			b.(*array.Float64Builder).Append(*field(row))
			return nil
		},
		get: func(a arrow.Array, i int, row *T) { *field(row) = a.(*array.Float64).Value(i) },
	}
}

// maybeFloat64Column writes nil as null. Infinity is allowed (the margin over
// a runner-up that has no probability), NaN is not.
func maybeFloat64Column[T any](name string, field func(*T) **float64) column[T] {
	return column[T]{name: name, typ: arrow.PrimitiveTypes.Float64, nullable: true,
		put: func(b array.Builder, row *T) error {
			v := *field(row)
			if v == nil {
				b.AppendNull()
				return nil
			}
			if math.IsNaN(*v) {
				return fmt.Errorf("column %s: NaN", name)
			}
			b.(*array.Float64Builder).Append(*v)
			return nil
		},
		get: func(a arrow.Array, i int, row *T) {
			v := a.(*array.Float64).Value(i)
			*field(row) = &v
		},
	}
}

// validUTF8 replaces each run of bytes that are not UTF-8 by U+FFFD.
func validUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
