package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/ort/convert/gguf"
)

// TestPieces: the order of merges and what added tokens do, in tokenizers of
// SentencePiece's vocabularies. Where equal scores leave the order open it is that
// of the published files, Llama 2's or the others'.
func TestPieces(t *testing.T) {
	read := func(arch string, tokens []string, scores []float64, types map[string]int64) (merges string, added map[string]string) {
		t.Helper()
		kinds := make([]int64, len(tokens))
		for i, token := range tokens {
			if kinds[i] = types[token]; kinds[i] == 0 {
				kinds[i] = normalToken
			}
		}
		v, err := readVocabulary(gguf.Metadata{
			"general.architecture": arch, "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
			"tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": kinds,
		}, len(tokens))
		if err != nil {
			t.Fatal(err)
		}
		data, err := v.json()
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Added []struct {
				Content    string
				Normalized bool
				RStrip     bool
			} `json:"added_tokens"`
			Model struct{ Merges [][2]string }
		}
		if err := json.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		for _, m := range file.Model.Merges {
			merges += fmt.Sprintf("%s+%s ", m[0], m[1])
		}
		added = map[string]string{}
		for _, a := range file.Added {
			added[a.Content] = fmt.Sprintf("normalized %v, rstrip %v", a.Normalized, a.RStrip)
		}
		return strings.TrimSpace(merges), added
	}

	// The runs ▁▁, ▁▁▁▁ and ▁▁▁ have one score; ▁ comes last of all, as in the real ones.
	filler := func(more ...string) (all []string) {
		all = []string{"<unk>", "<s>", "</s>"}
		for i := range 256 {
			all = append(all, fmt.Sprintf("<0x%02X>", i))
		}
		return append(all, more...)
	}
	scores := func(tokens []string) (all []float64) {
		for i, token := range tokens {
			score := -float64(i)
			if strings.Trim(token, "▁") == "" {
				score = -1e9
			}
			all = append(all, score)
		}
		return all
	}
	special := map[string]int64{"<unk>": unknownToken, "<s>": controlToken, "</s>": controlToken}
	rest := []string{"▁▁▁▁", "▁▁▁", "t", "e", "r", "i", "n", "▁"}
	llama2 := filler(append([]string{"▁▁", "▁t", "er", "in"}, rest...)...)
	if got, _ := read("llama", llama2, scores(llama2), special); got != "▁+t e+r i+n ▁▁+▁▁ ▁▁+▁ ▁▁▁+▁ ▁+▁▁ ▁+▁▁▁ ▁+▁" {
		t.Errorf("Llama 2's merges are %s", got)
	}
	other := filler(append([]string{"▁▁", "▁t", "in", "er"}, rest...)...)
	if got, _ := read("llama", other, scores(other), special); got != "▁+t i+n e+r ▁+▁ ▁▁+▁▁ ▁▁▁+▁ ▁+▁▁▁ ▁▁+▁ ▁+▁▁" {
		t.Errorf("other merges are %s", got)
	}

	// As llama.cpp's converter writes Gemma's: a space within, and the least score.
	gemma := []string{"<unk>", "▁", "t", "▁t", "  ", "[PAD5]"}
	got, added := read("gemma2", gemma, []float64{0, -3, -2, -1, -1000, -10000}, map[string]int64{"<unk>": unknownToken, "  ": userToken, "[PAD5]": unknownToken})
	if got != "▁+▁ ▁+t" || added["▁▁"] != "normalized false, rstrip false" || len(added) != 2 {
		t.Errorf("Gemma's merges are %s, added %v", got, added)
	}

	phi3 := []string{"<unk>", "<s>", "</s>", "<|endoftext|>", "<|user|>", "a"}
	types := map[string]int64{"<unk>": controlToken, "<s>": controlToken, "</s>": userToken, "<|endoftext|>": controlToken, "<|user|>": controlToken}
	for arch, want := range map[string][]string{"phi3": {"</s>", "<|user|>"}, "llama": nil} {
		_, added := read(arch, phi3, make([]float64, len(phi3)), types)
		for token, is := range added {
			if strings.HasSuffix(is, "rstrip true") != slices.Contains(want, token) {
				t.Errorf("%s: %s is %s", arch, token, is)
			}
		}
		if len(added) != 5 {
			t.Errorf("%s: added %v", arch, added)
		}
	}
}
