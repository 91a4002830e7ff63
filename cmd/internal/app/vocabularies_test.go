//go:build python

package app

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/ort/convert"
	"github.com/draftmill/draftmill/pipeline/tokenize"
)

// TestRealVocabularies: tokenizers made of GGUF files with the vocabularies of
// well-known models give the ids that the models' own tokenizers give.
// VOCABULARIES names the folder that .ci/vocabularies.sh makes.
func TestRealVocabularies(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(os.Getenv("VOCABULARIES"), "*.gguf"))
	if err != nil || len(files) < 10 {
		t.Fatalf("VOCABULARIES has %q: %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data, err := convert.Tokenizer(file)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "tokenizer.json")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			tokenizer, err := tokenize.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			golden, err := os.Open(strings.TrimSuffix(file, ".gguf") + ".jsonl.gz")
			if err != nil {
				t.Fatal(err)
			}
			defer golden.Close()
			z, err := gzip.NewReader(golden)
			if err != nil {
				t.Fatal(err)
			}
			texts, differ := 0, 0
			for dec := json.NewDecoder(z); ; texts++ {
				var want struct {
					Text string
					IDs  []int32
				}
				if err := dec.Decode(&want); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				got, err := tokenizer.Encode(want.Text)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, want.IDs) {
					if differ++; differ < 5 {
						t.Errorf("%q: %v, want %v", want.Text, got, want.IDs)
					}
				}
			}
			if differ > 0 || texts < 20000 {
				t.Errorf("%d of %d texts differ", differ, texts)
			}
		})
	}
}
