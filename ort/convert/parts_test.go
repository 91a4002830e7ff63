package convert_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/ort/convert"
)

// TestGGUFParts: a model in several files is the same model as in one, and has its own
// digest, whatever the files are called; without one of them it is refused.
func TestGGUFParts(t *testing.T) {
	data := func(dir string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, "model.onnx.data"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	dir, whole := importT(t, "testdata/gguf/llama-q4_0.gguf", convert.Options{})
	want, sources := data(dir), map[string]bool{whole.Source: true}
	renamed := t.TempDir()
	for i, name := range []string{"llama-00001-of-00003.gguf", "metadata-00001-of-00004.gguf"} {
		dir, r := importT(t, filepath.Join("testdata", "gguf", "parts", name), convert.Options{})
		if !bytes.Equal(data(dir), want) || !maps.Equal(r.Kept, whole.Kept) {
			t.Errorf("%s: another model than in one file; kept %v", name, r.Kept)
		}
		if sources[r.Source] {
			t.Errorf("%s has a digest of others, %s", name, r.Source)
		}
		sources[r.Source] = true
		base, of := strings.SplitAfter(name, "-")[0], 3+i
		for no := 1; no <= of; no++ {
			suffix := fmt.Sprintf("%05d-of-%05d.gguf", no, of)
			content, err := os.ReadFile(filepath.Join("testdata", "gguf", "parts", base+suffix))
			if err == nil {
				err = os.WriteFile(filepath.Join(renamed, "b-"+suffix), content, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		first := filepath.Join(renamed, fmt.Sprintf("b-00001-of-%05d.gguf", of))
		again, err := convert.Digest(t.Context(), first, nil)
		if err != nil || again != r.Source {
			t.Errorf("renamed: digest %s, %v, want %s", again, err, r.Source)
		}
		if err := os.Remove(filepath.Join(renamed, fmt.Sprintf("b-%05d-of-%05d.gguf", of, of))); err != nil {
			t.Fatal(err)
		}
		missing := fmt.Sprintf("model %s: part %d of %d is missing", first, of, of)
		if _, err := convert.Import(t.Context(), first, filepath.Join(renamed, "out"), convert.Options{}); err == nil || !strings.HasPrefix(err.Error(), missing) {
			t.Errorf("got %v, want %q", err, missing)
		}
	}
}
