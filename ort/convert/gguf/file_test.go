package gguf

import (
	"encoding/binary"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

const formats = "../testdata/formats/formats.gguf"

// TestFormats: every type reads as the Python package reads it, to the bit.
func TestFormats(t *testing.T) {
	f, err := Open(formats)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := os.ReadFile(formats + ".f32")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Tensors)) {
		x := f.Tensors[name]
		if x.Format.String() != name {
			t.Errorf("%s is %v", name, x)
		}
		got := x.Floats()
		for i, v := range got {
			if want := math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])); v != want {
				t.Errorf("%s: number %d is %g, want %g", name, i, v, want)
				break
			}
		}
		data = data[4*len(got):]
	}
	if len(f.Tensors) != 14 || len(data) > 0 {
		t.Errorf("%d tensors, %d bytes more", len(f.Tensors), len(data))
	}
}

// TestMetadata: values of all types.
func TestMetadata(t *testing.T) {
	f, err := Open(formats)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := f.Metadata
	for i, key := range []string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"} {
		want := 100 + i
		if key[0] == 'i' {
			want = -100 - i
		}
		if n, ok := m.Int("test." + key); !ok || n != want {
			t.Errorf("%s: %d, %v, want %d", key, n, ok, want)
		}
	}
	half, _ := m.Float("test.float32")
	tenth, _ := m.Float("test.float64")
	yes, ok := m.Bool("test.bool")
	if half != 0.5 || tenth != 0.1 || !yes || !ok || m.Text("test.string") != "Grüße" {
		t.Errorf("%v", m)
	}
	if !slices.Equal(m.Strings("test.strings"), []string{"a", "", "ü"}) || !slices.Equal(m.Ints("test.ints"), []int64{1, -2, 3}) || !slices.Equal(m.Floats("test.floats"), []float64{0.5, -1.5}) {
		t.Errorf("lists %v", m)
	}
	if _, ok := m.Int("test.string"); ok || m.Text("test.uint8") != "" || m.Strings("none") != nil {
		t.Error("a value of another type is none")
	}
}

// writer writes GGUF files for tests.
type writer struct{ data []byte }

func (w *writer) u32(n uint32) *writer {
	w.data = binary.LittleEndian.AppendUint32(w.data, n)
	return w
}
func (w *writer) u64(n uint64) *writer {
	w.data = binary.LittleEndian.AppendUint64(w.data, n)
	return w
}
func (w *writer) text(s string) *writer {
	w.u64(uint64(len(s)))
	w.data = append(w.data, s...)
	return w
}
func header(version uint32, tensors, pairs uint64) *writer {
	return (&writer{data: []byte("GGUF")}).u32(version).u64(tensors).u64(pairs)
}

// tensors is a file of float32 vectors of four numbers at these offsets.
func tensors(at ...uint64) []byte {
	w := header(3, uint64(len(at)), 0)
	for i, offset := range at {
		w.text(string(rune('a' + i))).u32(1).u64(4).u32(0).u64(offset)
	}
	return append(w.data, make([]byte, 128)...)
}

// TestRefused: what a file must not say.
func TestRefused(t *testing.T) {
	if _, err := Parse(tensors(0, 32)); err != nil {
		t.Fatal(err)
	}
	deep := header(3, 0, 1).text("k").u32(9)
	for range 9 {
		deep.u32(9).u64(1)
	}
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "not a GGUF file"},
		{"another file", []byte("GGML0000"), "not a GGUF file"},
		{"version 1", header(1, 0, 0).data, "version 1"},
		{"big-endian", header(3<<24, 0, 0).data, "big-endian"},
		{"2^63 tensors", header(3, 1<<63, 0).data, "too short"},
		{"2^63 metadata", header(3, 0, 1<<63).data, "too short"},
		{"a key of 2^63 bytes", append(header(3, 0, 1).u64(1<<63).data, make([]byte, 64)...), "cut short"},
		{"a list of 2^63", append(header(3, 0, 1).text("k").u32(9).u32(4).u64(1<<63).data, make([]byte, 64)...), "too short"},
		{"lists in lists in lists", append(deep.data, make([]byte, 64)...), "deep"},
		{"an unknown type", append(header(3, 0, 1).text("k").u32(99).data, make([]byte, 64)...), "type 99"},
		{"a key twice", append(header(3, 0, 2).text("k").u32(4).u32(1).text("k").u32(4).u32(1).data, make([]byte, 64)...), "twice"},
		{"overlap", tensors(0, 0), "belongs to the tensor before"},
		{"not aligned", tensors(8), "no multiple of 32"},
		{"behind the end", tensors(1 << 40), "cut short"},
		{"a name twice", append(header(3, 2, 0).text("a").u32(1).u64(4).u32(0).u64(0).text("a").u32(1).u64(4).u32(0).u64(32).data, make([]byte, 128)...), "twice"},
		{"a huge shape", append(header(3, 1, 0).text("a").u32(2).u64(1<<40).u64(1<<40).u32(0).u64(0).data, make([]byte, 64)...), "impossible"},
		{"half a block", append(header(3, 1, 0).text("a").u32(1).u64(33).u32(2).u64(0).data, make([]byte, 64)...), "no whole blocks"},
		{"IQ2_XS", append(header(3, 1, 0).text("a").u32(1).u64(256).u32(17).u64(0).data, make([]byte, 64)...), "IQ2_XS, which is not supported; F32, F16, Q4_0"},
		{"alignment", append(header(3, 0, 1).text("general.alignment").u32(4).u32(0).data, make([]byte, 64)...), "general.alignment"},
	} {
		if _, err := Parse(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile(formats)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(tensors(0, 32))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			return
		}
		bytes := 0
		for _, x := range file.Tensors {
			if bytes += len(x.Data); len(x.Data) > 0 {
				x.Floats()
			}
		}
		if bytes > len(data) {
			t.Errorf("%d bytes of %d", bytes, len(data))
		}
	})
}
