package tokenize

import (
	"encoding/json"
	"fmt"
)

func newModel(raw json.RawMessage) (model, error) {
	kind, err := typeOf("model", raw)
	if err != nil {
		return nil, err
	}
	if kind == "" {
		kind = guessModel(raw)
	}
	switch kind {
	case "BPE":
		return newBPE(raw)
	case "Unigram":
		return newUnigram(raw)
	case "WordPiece":
		return newWordPiece(raw)
	}
	return nil, unsupported("model", fmt.Sprintf("type %q", kind), "BPE, Unigram and WordPiece are")
}

// guessModel names the type of a model section of before it had one.
func guessModel(raw json.RawMessage) string {
	switch {
	case require("", raw, "vocab", "merges") == nil:
		return "BPE"
	case require("", raw, "vocab", "max_input_chars_per_word") == nil:
		return "WordPiece"
	case require("", raw, "vocab", "unk_id") == nil:
		return "Unigram"
	}
	return ""
}

// vocabulary maps tokens to ids.
type vocabulary map[string]int32

func (v vocabulary) id(token string) (int32, bool) {
	id, ok := v[token]
	return id, ok
}

func (v vocabulary) list() map[string]int32 { return v }
func (v vocabulary) size() int              { return len(v) }

// fallback returns the ids of byte fallback, or false if the vocabulary lacks a byte of text.
func (v vocabulary) fallback(dst []int32, text string) ([]int32, bool) {
	n := len(dst)
	for i := 0; i < len(text); i++ {
		id, ok := v[hexToken(text[i])]
		if !ok {
			return dst[:n], false
		}
		dst = append(dst, id)
	}
	return dst, true
}
