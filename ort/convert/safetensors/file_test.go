package safetensors

import (
	"encoding/binary"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/ort/convert/tensor"
)

const formats = "../testdata/formats/formats.safetensors"

// goldenT reads the numbers that the Python package reads.
func goldenT(t *testing.T, path string) []float32 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]float32, len(data)/4)
	for i := range all {
		all[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return all
}

// TestFormats: every type reads as the Python package reads it, to the bit.
func TestFormats(t *testing.T) {
	f, err := Open(formats)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := goldenT(t, formats+".f32")
	for _, name := range slices.Sorted(maps.Keys(f.Tensors)) {
		got := f.Tensors[name].Floats()
		for i, x := range got {
			if math.Float32bits(x) != math.Float32bits(want[i]) && !(x != x && want[i] != want[i]) {
				t.Errorf("%s: number %d is %g, want %g", name, i, x, want[i])
				break
			}
		}
		want = want[len(got):]
	}
	if len(want) > 0 || f.Unread["mask"] != "BOOL" || f.Metadata["format"] != "pt" {
		t.Errorf("%d numbers more, unread %v, metadata %v", len(want), f.Unread, f.Metadata)
	}
	if !f.Tensors["f8"].Is(16, 16) || f.Tensors["one"].Rows()*f.Tensors["one"].Cols() != 1 {
		t.Error("shapes", f.Tensors["f8"].Shape, f.Tensors["one"].Shape)
	}
}

// bytesOf is a file with this header in front of so many bytes.
func bytesOf(header string, body int) []byte {
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(data, header...), make([]byte, body)...)
}

// TestRefused: what a header must not say.
func TestRefused(t *testing.T) {
	long := bytesOf("{}", 0)
	binary.LittleEndian.PutUint64(long, 1<<63)
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "shorter than"},
		{"a header of 2^63 bytes", long, "100000000 are the most"},
		{"cut short", bytesOf("{}", 0)[:9], "cut short"},
		{"no object", bytesOf("[]", 0), "no JSON object"},
		{"broken JSON", bytesOf(`{"a":`, 0), "header"},
		{"more behind it", bytesOf(`{} x`, 0), "more behind"},
		{"twice", bytesOf(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), "twice"},
		{"behind the end", bytesOf(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4), "bytes 0 to 8 of 4"},
		{"backwards", bytesOf(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4), "bytes 4 to 0"},
		{"another size", bytesOf(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), "takes 8 bytes"},
		{"a huge shape", bytesOf(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0), "impossible"},
		{"a negative shape", bytesOf(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4), "impossible"},
		{"many dimensions", bytesOf(`{"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}}`, 4), "dimensions"},
		{"overlap", bytesOf(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`, 6), "overlap"},
		{"a hole", bytesOf(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "hole"},
		{"a tail", bytesOf(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 8), "behind the last"},
		{"unknown type", bytesOf(`{"a":{"dtype":"F7","shape":[1],"data_offsets":[0,4]}}`, 4), "not known"},
	} {
		if _, err := Parse(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestIndexRefused: an index names files of its own folder.
func TestIndexRefused(t *testing.T) {
	for _, c := range []struct{ index, want string }{
		{`{"weight_map":{"a":"../x.safetensors"}}`, "no safetensors file of this folder"},
		{`{"weight_map":{"a":"/etc/passwd"}}`, "no safetensors file of this folder"},
		{`{"weight_map":{"a":"sub/x.safetensors"}}`, "no safetensors file of this folder"},
		{`{"weight_map":{"a":"model.bin"}}`, "no safetensors file of this folder"},
		{`{}`, "no weight_map"},
		{`{"weight_map":{"a":"x.safetensors"}}`, "no such file"},
		{`{"weight_map":{"absent":"model.safetensors"}}`, "which the index places here, is missing"},
	} {
		dir := t.TempDir()
		err := os.WriteFile(filepath.Join(dir, index), []byte(c.index), 0o644)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, single), bytesOf(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if f, err := OpenFolder(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v, want %q", c.index, f, err, c.want)
		}
	}
}

// use reads everything of a file.
func use(f *File) (numbers int) {
	for _, x := range f.Tensors {
		if n := x.Rows() * x.Cols(); n > 0 {
			numbers += len(x.Floats())
		}
	}
	return numbers
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile(formats)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(bytesOf(`{"a":{"dtype":"F8_E4M3","shape":[0,3],"data_offsets":[0,0]}}`, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			return
		}
		if n := use(file); n > len(data) {
			t.Errorf("%d numbers of %d bytes", n, len(data))
		}
		for _, x := range file.Tensors {
			if size, err := tensor.Size(x.Format, x.Shape); err != nil || size != len(x.Data) {
				t.Errorf("%v: %d bytes, %v", x, len(x.Data), err)
			}
		}
	})
}
