package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Metadata are a file's values by key. A value is int64, uint64, float64, bool,
// string, or a list: []string, []int64, []float64, []bool, or []any of lists.
type Metadata map[string]any

// Text is a string, empty where there is none.
func (m Metadata) Text(key string) string {
	s, _ := m[key].(string)
	return s
}

// Int is an integer.
func (m Metadata) Int(key string) (int, bool) {
	switch n := m[key].(type) {
	case int64:
		return int(n), true
	case uint64:
		return int(n), n <= math.MaxInt64
	}
	return 0, false
}

// Float is a number.
func (m Metadata) Float(key string) (float64, bool) {
	if x, ok := m[key].(float64); ok {
		return x, true
	}
	n, ok := m.Int(key)
	return float64(n), ok
}

// Bool is a truth value, and whether it is there.
func (m Metadata) Bool(key string) (value, ok bool) {
	value, ok = m[key].(bool)
	return value, ok
}

// Strings is a list of texts; like Ints and Floats nil where there is none of
// this kind.
func (m Metadata) Strings(key string) []string { s, _ := m[key].([]string); return s }

// Ints is a list of integers.
func (m Metadata) Ints(key string) []int64 { s, _ := m[key].([]int64); return s }

// Floats is a list of numbers with fractions.
func (m Metadata) Floats(key string) []float64 { s, _ := m[key].([]float64); return s }

// reader takes values from the front of data.
type reader struct {
	data []byte
	at   int
}

var errShort = errors.New("cut short")

func (r *reader) bytes(n uint64) ([]byte, error) {
	if n > uint64(len(r.data)-r.at) {
		return nil, errShort
	}
	b := r.data[r.at : r.at+int(n)]
	r.at += int(n)
	return b, nil
}

func (r *reader) uint32() (uint32, error) {
	b, err := r.bytes(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (r *reader) uint64() (uint64, error) {
	b, err := r.bytes(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// count reads how many things follow, each of at least size bytes.
func (r *reader) count(size int) (int, error) {
	n, err := r.uint64()
	if err != nil {
		return 0, err
	}
	if n > uint64((len(r.data)-r.at)/size) {
		return 0, fmt.Errorf("%d, for which the file is too short", n)
	}
	return int(n), nil
}

func (r *reader) text() (string, error) {
	n, err := r.uint64()
	if err != nil {
		return "", err
	}
	b, err := r.bytes(n)
	return string(b), err
}

func (r *reader) name() (string, error) {
	s, err := r.text()
	if err == nil && (s == "" || len(s) > maxName) {
		err = fmt.Errorf("a name of %d bytes", len(s))
	}
	return s, err
}

// kind is the type of a value: its bytes, and what they mean.
type kind struct {
	size int
	read func(b []byte) any
}

const (
	textKind = 8
	listKind = 9
)

var kinds = map[uint32]kind{
	0:  {1, func(b []byte) any { return uint64(b[0]) }},
	1:  {1, func(b []byte) any { return int64(int8(b[0])) }},
	2:  {2, func(b []byte) any { return uint64(binary.LittleEndian.Uint16(b)) }},
	3:  {2, func(b []byte) any { return int64(int16(binary.LittleEndian.Uint16(b))) }},
	4:  {4, func(b []byte) any { return uint64(binary.LittleEndian.Uint32(b)) }},
	5:  {4, func(b []byte) any { return int64(int32(binary.LittleEndian.Uint32(b))) }},
	6:  {4, func(b []byte) any { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }},
	7:  {1, func(b []byte) any { return b[0] != 0 }},
	10: {8, func(b []byte) any { return binary.LittleEndian.Uint64(b) }},
	11: {8, func(b []byte) any { return int64(binary.LittleEndian.Uint64(b)) }},
	12: {8, func(b []byte) any { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }},
}

func (r *reader) value() (any, error) {
	t, err := r.uint32()
	if err != nil {
		return nil, err
	}
	return r.valueOf(t, 0)
}

func (r *reader) valueOf(t uint32, depth int) (any, error) {
	switch t {
	case textKind:
		return r.text()
	case listKind:
		return r.list(depth + 1)
	}
	k, ok := kinds[t]
	if !ok {
		return nil, fmt.Errorf("type %d is not known", t)
	}
	b, err := r.bytes(uint64(k.size))
	if err != nil {
		return nil, err
	}
	return k.read(b), nil
}

func (r *reader) list(depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("lists in lists, more than %d deep", maxDepth)
	}
	t, err := r.uint32()
	if err != nil {
		return nil, err
	}
	size := 8 // of a string's length
	switch k, ok := kinds[t]; {
	case ok:
		size = k.size
	case t == listKind:
		size = 12
	case t != textKind:
		return nil, fmt.Errorf("a list of type %d, which is not known", t)
	}
	n, err := r.count(size)
	if err != nil {
		return nil, fmt.Errorf("length of a list: %w", err)
	}
	switch t {
	case textKind:
		return collect(r, t, depth, n, func(v any) string { return v.(string) })
	case listKind:
		return collect(r, t, depth, n, func(v any) any { return v })
	case 7:
		return collect(r, t, depth, n, func(v any) bool { return v.(bool) })
	case 6, 12:
		return collect(r, t, depth, n, func(v any) float64 { return v.(float64) })
	}
	return collect(r, t, depth, n, func(v any) int64 {
		if n, ok := v.(uint64); ok {
			return int64(n)
		}
		return v.(int64)
	})
}

func collect[T any](r *reader, t uint32, depth, n int, as func(any) T) ([]T, error) {
	list := make([]T, n)
	for i := range list {
		v, err := r.valueOf(t, depth)
		if err != nil {
			return nil, err
		}
		list[i] = as(v)
	}
	return list, nil
}
