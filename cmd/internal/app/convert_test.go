package app

import (
	"compress/gzip"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort/convert"
	"github.com/draftmill/draftmill/pipeline/tokenize"
)

// TestTokenizersOfGGUF: a tokenizer made from a GGUF file gives the ids, and the
// text of ids, that the tokenizer.json gives which the file was made from, on
// 20,000 strings.
func TestTokenizersOfGGUF(t *testing.T) {
	const tokenizers, files = "../../../testdata/tokenizers", "../../../ort/convert/testdata/vocabularies"
	f, err := os.Open(filepath.Join(tokenizers, "texts.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	if err := json.NewDecoder(z).Decode(&texts); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for n := len(texts); len(texts) < 20000; {
		texts = append(texts, texts[rng.IntN(n)]+[]string{"", " ", "\n", "  "}[rng.IntN(4)]+texts[rng.IntN(n)])
	}
	for _, name := range []string{"gpt2", "qwen2", "llama3", "llama2"} {
		t.Run(name, func(t *testing.T) {
			want, err := tokenize.Load(filepath.Join(tokenizers, name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			data, err := convert.Tokenizer(filepath.Join(files, name+".gguf"))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "tokenizer.json")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := tokenize.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			compareTokenizers(t, got, want, texts)
		})
	}
}

func compareTokenizers(t *testing.T, got, want *tokenize.Tokenizer, texts []string) {
	t.Helper()
	differ := 0
	for _, text := range texts {
		a, err := got.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		b, err := want.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a, b) || got.Decode(a, true) != want.Decode(b, true) {
			if differ++; differ < 5 {
				t.Errorf("%q: %v, want %v", text, a, b)
			}
		}
	}
	if differ > 0 {
		t.Errorf("%d of %d texts differ", differ, len(texts))
	}
}

// TestPairOfFormats: a Hugging Face folder and a GGUF file of one family have the
// same tokens, also where one names rows of the embeddings that are none.
func TestPairOfFormats(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const checkpoints = "../../../ort/convert/testdata/"
	models := NewModels(configs.Config{}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	defer models.Close()
	if err := models.CheckPair(checkpoints+"llama", checkpoints+"gguf/llama-q4_0.gguf"); err != nil {
		t.Error(err)
	}
}
