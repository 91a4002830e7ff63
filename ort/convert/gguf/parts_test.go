package gguf

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParts(t *testing.T) {
	for name, want := range map[string][]string{
		"a.gguf":                         {"a.gguf"},
		"b/a-00001-of-00001.gguf":        {"b/a-00001-of-00001.gguf"},
		"b/a-00001-of-00003.gguf":        {"b/a-00001-of-00003.gguf", "b/a-00002-of-00003.gguf", "b/a-00003-of-00003.gguf"},
		"../a-1-of-3.gguf":               {"../a-1-of-3.gguf"},
		"a-00001-of-00002.gguf/a-b.gguf": {"a-00001-of-00002.gguf/a-b.gguf"},
	} {
		if got, err := Parts(name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{
		"b/a-00002-of-00003.gguf": "part 2 of 3 of a model; name its first part, a-00001-of-00003.gguf",
		"a-00000-of-00003.gguf":   "part 0 of 3 cannot be",
		"a-00004-of-00003.gguf":   "part 4 of 3 cannot be",
	} {
		if got, err := Parts(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestOpenParts: the parts that the Python package writes have the tensors of the
// whole file, whether the first of them has any or not.
func TestOpenParts(t *testing.T) {
	whole, err := Open("../testdata/gguf/llama-q4_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	for _, name := range []string{"llama-00001-of-00003.gguf", "metadata-00001-of-00004.gguf"} {
		f, err := Open("../testdata/gguf/parts/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if f.Metadata.Text("general.architecture") != "llama" || len(f.Tensors) != len(whole.Tensors) || len(f.Tensors) < 10 {
			t.Fatalf("%s: %d tensors, %d in the whole file", name, len(f.Tensors), len(whole.Tensors))
		}
		for key, x := range whole.Tensors {
			if y := f.Tensors[key]; y == nil || x.Format != y.Format || !slices.Equal(x.Shape, y.Shape) || !bytes.Equal(x.Data, y.Data) {
				t.Errorf("%s: tensor %s is not that of the whole file", name, key)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPartsRefused: parts that are missing, in another's place, of another model, or
// named as they are not.
func TestPartsRefused(t *testing.T) {
	part := func(no int) string { return "llama-0000" + string(rune('0'+no)) + "-of-00003.gguf" }
	data := map[string][]byte{}
	for no := 1; no <= 3; no++ {
		var err error
		if data[part(no)], err = os.ReadFile("../testdata/gguf/parts/" + part(no)); err != nil {
			t.Fatal(err)
		}
	}
	// change sets the first byte of a number of the metadata.
	change := func(data []byte, key string, to byte) []byte {
		data = slices.Clone(data)
		data[bytes.Index(data, []byte(key))+len(key)+4] = to
		return data
	}
	one, two, three := data[part(1)], data[part(2)], data[part(3)]
	for _, c := range []struct {
		name  string
		files map[string][]byte // beside the three; nil: none
		open  string
		want  string
	}{
		{"one is missing", map[string][]byte{part(2): nil}, part(1), "part 2 of 3 is missing: llama-00002-of-00003.gguf belongs in the same folder"},
		{"all are missing", map[string][]byte{part(1): nil}, part(1), "part 1 of 3 is missing"},
		{"the second", nil, part(2), "name its first part, llama-00001-of-00003.gguf"},
		{"one twice", map[string][]byte{part(3): two}, part(1), "its metadata say part 2 of 3, its name part 3 of 3"},
		{"exchanged", map[string][]byte{part(1): two, part(2): one}, part(1), "its metadata say part 2 of 3, its name part 1 of 3"},
		{"of another number", map[string][]byte{part(2): change(two, "split.count", 5)}, part(1), "its metadata say part 2 of 5, its name part 2 of 3"},
		{"the same tensors", map[string][]byte{part(3): change(two, "split.no", 2)}, part(1), "is in another part, too"},
		{"too few tensors", map[string][]byte{part(1): change(one, "split.tensors.count", 99)}, part(1), "it says that the model has 99 tensors, its 3 files have"},
		{"another name", map[string][]byte{"a.gguf": one}, "a.gguf", "one of 3 parts of a model, which are to be named as they were, NAME-00001-of-00003.gguf"},
		{"a name of two parts", map[string][]byte{"a-00001-of-00002.gguf": one, "a-00002-of-00002.gguf": two}, "a-00001-of-00002.gguf", "its metadata say part 1 of 3, its name part 1 of 2"},
		{"a whole file", map[string][]byte{"a-00001-of-00002.gguf": tensors(0), "a-00002-of-00002.gguf": tensors(0)}, "a-00001-of-00002.gguf", "part 1 of 2 by its name alone"},
		{"a part cut short", map[string][]byte{part(3): three[:len(three)-1]}, part(1), part(3) + ": tensor"},
	} {
		dir := t.TempDir()
		for _, files := range []map[string][]byte{data, c.files} {
			for name, content := range files {
				var err error
				if content == nil {
					err = os.Remove(filepath.Join(dir, name))
				} else {
					err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		f, err := Open(filepath.Join(dir, c.open))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if f != nil {
			t.Errorf("%s: a file beside an error", c.name)
		}
	}
}
