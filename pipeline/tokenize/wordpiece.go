package tokenize

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// wordPiece takes the longest token that a piece begins with, again and again; a piece that cannot be covered is unknown as a whole.
type wordPiece struct {
	vocabulary
	unk      string
	prefix   string // of tokens that continue a word
	maxChars int    // longer pieces are unknown
}

func newWordPiece(raw json.RawMessage) (model, error) {
	var c struct {
		Vocab    vocabulary `json:"vocab"`
		Unk      string     `json:"unk_token"`
		Prefix   string     `json:"continuing_subword_prefix"`
		MaxChars int        `json:"max_input_chars_per_word"`
	}
	if err := require("model WordPiece", raw, "vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"); err != nil {
		return nil, err
	}
	if err := read("model WordPiece", raw, &c); err != nil {
		return nil, err
	}
	return &wordPiece{c.Vocab, c.Unk, c.Prefix, c.MaxChars}, nil
}

func (m *wordPiece) tokenize(dst []int32, piece string) ([]int32, error) {
	if utf8.RuneCountInString(piece) > m.maxChars {
		return m.unknown(dst)
	}
	n := len(dst)
	for from := 0; from < len(piece); {
		id, to := m.longest(piece, from)
		if to == from {
			return m.unknown(dst[:n])
		}
		dst = append(dst, id)
		from = to
	}
	return dst, nil
}

// longest returns the longest token at from and where it ends; to == from: none.
func (m *wordPiece) longest(piece string, from int) (id int32, to int) {
	for to = len(piece); to > from; {
		token := piece[from:to]
		if from > 0 {
			token = m.prefix + token
		}
		if id, ok := m.vocabulary[token]; ok {
			return id, to
		}
		_, n := utf8.DecodeLastRuneInString(piece[from:to])
		to -= n
	}
	return 0, from
}

func (m *wordPiece) unknown(dst []int32) ([]int32, error) {
	id, ok := m.vocabulary[m.unk]
	if !ok {
		return nil, fmt.Errorf("model WordPiece: the text has an unknown word, and unk_token %q is not in the vocabulary", m.unk)
	}
	return append(dst, id), nil
}
