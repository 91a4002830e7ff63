package tokenize

import (
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// normalizer rewrites a span and keeps its head: the bytes that the new text owes to the first character of the input.
type normalizer interface {
	normalize(s span) span
}

const normalizers = "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, BertNormalizer, Nmt, Precompiled and ByteLevel are"

func newNormalizer(section string, raw json.RawMessage) (normalizer, error) {
	if absent(raw) {
		return nil, nil
	}
	kind, err := typeOf(section, raw)
	if err != nil {
		return nil, err
	}
	section = section + " " + kind
	var c struct {
		Normalizers []json.RawMessage `json:"normalizers"`
		StripLeft   bool              `json:"strip_left"`
		StripRight  bool              `json:"strip_right"`
		Prepend     string            `json:"prepend"`
		Pattern     pattern           `json:"pattern"`
		Content     string            `json:"content"`
		Clean       bool              `json:"clean_text"`
		Chinese     bool              `json:"handle_chinese_chars"`
		Accents     *bool             `json:"strip_accents"`
		Lowercase   bool              `json:"lowercase"`
		CharsMap    []byte            `json:"precompiled_charsmap"`
	}
	if err := read(section, raw, &c); err != nil {
		return nil, err
	}
	switch kind {
	case "Sequence":
		return newNormalizerSequence(c.Normalizers)
	case "NFC", "NFD", "NFKC", "NFKD":
		return compositions[kind], nil
	case "Lowercase":
		return runes(lower), nil
	case "StripAccents":
		return without(isMark), nil
	case "Nmt":
		return runes(nmt), nil
	case "ByteLevel":
		return runes(appendMapped), nil
	case "Strip":
		return strip{c.StripLeft, c.StripRight}, require(section, raw, "strip_left", "strip_right")
	case "Prepend":
		return prepend(c.Prepend), require(section, raw, "prepend")
	case "Replace":
		m, err := c.Pattern.matcher(section)
		if err != nil {
			return nil, err
		}
		return replace{m, c.Content}, require(section, raw, "content")
	case "BertNormalizer", "Bert":
		if c.Accents == nil {
			c.Accents = &c.Lowercase
		}
		return newBert(c.Clean, c.Chinese, *c.Accents, c.Lowercase), require(section, raw, "clean_text", "handle_chinese_chars", "lowercase")
	case "Precompiled":
		return newPrecompiled(section, c.CharsMap)
	}
	return nil, unsupported("normalizer", fmt.Sprintf("type %q", kind), normalizers)
}

// normalizerSequence applies one normalizer after the other.
type normalizerSequence []normalizer

func newNormalizerSequence(list []json.RawMessage) (normalizer, error) {
	var q normalizerSequence
	for _, raw := range list {
		n, err := newNormalizer("normalizer", raw)
		if err != nil {
			return nil, err
		}
		if n != nil {
			q = append(q, n)
		}
	}
	return q, nil
}

func (q normalizerSequence) normalize(s span) span {
	for _, n := range q {
		s = n.normalize(s)
	}
	return s
}

// runes rewrites every character on its own: the function appends what becomes of r to dst.
type runes func(dst []byte, r rune) []byte

func (f runes) normalize(s span) span {
	out := make([]byte, 0, len(s.text)+len(s.text)/8)
	head := 0
	for i, r := range s.text {
		out = f(out, r)
		if i < s.head {
			head = len(out)
		}
	}
	return span{string(out), head}
}

// without takes out the characters of a class.
func without(class func(rune) bool) normalizer {
	return runes(func(dst []byte, r rune) []byte {
		if class(r) {
			return dst
		}
		return utf8.AppendRune(dst, r)
	})
}

// appendMapped appends the visible characters of a character's bytes.
func appendMapped(dst []byte, r rune) []byte {
	var buf [utf8.UTFMax]byte
	for _, b := range buf[:utf8.EncodeRune(buf[:], r)] {
		dst = utf8.AppendRune(dst, byteToChar[b])
	}
	return dst
}

// nmt drops control characters and makes white space of several kinds plain spaces (as SentencePiece's nmt rules do).
func nmt(dst []byte, r rune) []byte {
	switch {
	case 0x01 <= r && r <= 0x08, r == 0x0B, 0x0E <= r && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		return dst
	case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, 0x200B <= r && r <= 0x200F, r == 0x2028, r == 0x2029, r == 0x2581,
		r == 0xFEFF, r == 0xFFFD:
		return append(dst, ' ')
	}
	return utf8.AppendRune(dst, r)
}

// strip takes white space off the ends.
type strip struct{ left, right bool }

func (n strip) normalize(s span) span {
	from, to := 0, len(s.text)
	if n.left {
		from = spacesAfter(s.text, 0)
	}
	if n.right {
		to = max(from, spacesBefore(s.text, to))
	}
	return s.slice(from, to)
}

// prepend puts a text before one that is not empty.
type prepend string

func (p prepend) normalize(s span) span {
	if s.text == "" {
		return s
	}
	return s.prepend(string(p))
}

// replace writes content for every match. What it writes belongs to the last character of the match.
type replace struct {
	m       matcher
	content string
}

func (p replace) normalize(s span) span {
	parts := p.m.find(nil, s.text)
	if len(parts) == 0 || len(parts) == 1 && !parts[0].hit {
		return s
	}
	out := make([]byte, 0, len(s.text)+len(p.content))
	head := 0
	for _, x := range parts {
		if x.hit {
			out = append(out, p.content...)
			if x.to <= s.head {
				head = len(out)
			}
			continue
		}
		if x.from < s.head {
			head = len(out) + min(s.head, x.to) - x.from
		}
		out = append(out, s.text[x.from:x.to]...)
	}
	return span{string(out), head}
}

// newBert is BertNormalizer: cleaning, spaces around Chinese characters, accents, lower case.
func newBert(clean, chinese, accents, lowercase bool) normalizer {
	var q normalizerSequence
	if clean {
		q = append(q, runes(cleanText))
	}
	if chinese {
		q = append(q, runes(spaceChinese))
	}
	if accents {
		q = append(q, compositions["NFD"], without(isNonspacing))
	}
	if lowercase {
		q = append(q, runes(lower))
	}
	return q
}

func cleanText(dst []byte, r rune) []byte {
	switch {
	case r == 0, r == utf8.RuneError, isControl(r):
		return dst
	case unicode.IsSpace(r):
		return append(dst, ' ')
	}
	return utf8.AppendRune(dst, r)
}

// chinese are the CJK ideographs, as BERT lists them.
var chinese = []runeRange{{0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFAFF}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
	{0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}}

func spaceChinese(dst []byte, r rune) []byte {
	if !inRanges(chinese, r) {
		return utf8.AppendRune(dst, r)
	}
	return append(utf8.AppendRune(append(dst, ' '), r), ' ')
}
