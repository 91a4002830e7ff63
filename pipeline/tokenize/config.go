package tokenize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// file is a tokenizer.json: every section is read by the file of this package that implements it.
type file struct {
	Version       string          `json:"version"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// ErrUnsupported is wrapped by the errors of Load for a section, an option or a pattern that this package does not implement.
var ErrUnsupported = errors.New("not supported")

// unsupported says which part of the file cannot be honoured and what could stand there instead.
func unsupported(section, what, instead string) error {
	return fmt.Errorf("%s: %s is %w (%s)", section, what, ErrUnsupported, instead)
}

// absent reports whether a section is missing or null.
func absent(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// typeOf reads the "type" of a section; it is empty in very old files.
func typeOf(section string, raw json.RawMessage) (string, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return "", fmt.Errorf("%s: %w", section, err)
	}
	return head.Type, nil
}

// read fills dst from a section.
func read(section string, raw json.RawMessage, dst any) error {
	if err := json.Unmarshal(raw, dst); err != nil {
		return fmt.Errorf("%s: %w", section, err)
	}
	return nil
}

// require fails when one of the named keys is not in the section: the defaults of the Rust implementation differ from file format
// version to file format version, so none is guessed.
func require(section string, raw json.RawMessage, keys ...string) error {
	var have map[string]json.RawMessage
	if err := json.Unmarshal(raw, &have); err != nil {
		return fmt.Errorf("%s: %w", section, err)
	}
	for _, k := range keys {
		if _, ok := have[k]; !ok {
			return fmt.Errorf("%s: the key %q is missing", section, k)
		}
	}
	return nil
}

// pattern is {"String": "..."} or {"Regex": "..."}.
type pattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

// matcher compiles the pattern.
func (p pattern) matcher(section string) (matcher, error) {
	switch {
	case p.String != nil && *p.String == "":
		return nil, unsupported(section, "an empty pattern", "give it at least one character")
	case p.String != nil:
		return literal(*p.String), nil
	case p.Regex != nil:
		re, err := compileRegex(*p.Regex)
		if err != nil {
			return nil, fmt.Errorf("%s: pattern %q: %w", section, *p.Regex, err)
		}
		return re, nil
	}
	return nil, unsupported(section, "this pattern", `it must be {"String": ...} or {"Regex": ...}`)
}

// char is a JSON string of exactly one character.
type char rune

func (c *char) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 || n != len(s) {
		return fmt.Errorf("%q is not a single character", s)
	}
	*c = char(r)
	return nil
}

// scored is one entry of a Unigram vocabulary: [token, log probability].
type scored struct {
	token string
	score float64
}

func (s *scored) UnmarshalJSON(b []byte) error {
	var score json.Number
	pair := [2]any{&s.token, &score}
	err := json.Unmarshal(b, &pair)
	if err == nil {
		s.score, err = number(score)
	}
	return err
}

// tokenID is a ["token", id] pair of a post-processor.
type tokenID struct {
	token string
	id    int32
}

func (t *tokenID) UnmarshalJSON(b []byte) error {
	pair := [2]any{&t.token, &t.id}
	return json.Unmarshal(b, &pair)
}

// mergeList is a BPE model's merges, written as "a b" or as ["a", "b"].
type mergeList [][2]string

func (m *mergeList) UnmarshalJSON(b []byte) error {
	var pairs [][2]string
	if json.Unmarshal(b, &pairs) == nil {
		*m = pairs
		return nil
	}
	var lines []string
	if err := json.Unmarshal(b, &lines); err != nil {
		return err
	}
	for i, line := range lines {
		if len(line) >= 8 && line[:8] == "#version" {
			continue
		}
		a, rest, ok := bytes.Cut([]byte(line), []byte(" "))
		if !ok || bytes.IndexByte(rest, ' ') >= 0 {
			return fmt.Errorf("merge %d, %q, is not two tokens with a space between", i, line)
		}
		*m = append(*m, [2]string{string(a), string(rest)})
	}
	return nil
}
