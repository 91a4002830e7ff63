package tokenize

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// preTokenizer cuts a span into pieces that the model sees one at a time, and appends them to dst. Empty pieces do not count.
type preTokenizer interface {
	split(dst []span, s span) []span
}

const preTokenizers = "Sequence, ByteLevel, Split, Metaspace, Whitespace, WhitespaceSplit, Digits, Punctuation and BertPreTokenizer are"

func newPreTokenizer(section string, raw json.RawMessage) (preTokenizer, error) {
	if absent(raw) {
		return nil, nil
	}
	kind, err := typeOf(section, raw)
	if err != nil {
		return nil, err
	}
	section = section + " " + kind
	switch kind {
	case "Sequence":
		return newSplitSequence(section, raw)
	case "ByteLevel":
		b := byteLevel{UseRegex: true, mapBytes: true}
		if err := require(section, raw, "add_prefix_space"); err != nil {
			return nil, err
		}
		return b, read(section, raw, &b)
	case "Split":
		return newSplit(section, raw)
	case "Metaspace":
		return newMetaspace(section, raw)
	case "Whitespace":
		return splitter{wordOrNot{}, "Removed", true}, nil
	case "WhitespaceSplit":
		return splitter{each(unicode.IsSpace), "Removed", false}, nil
	case "Digits":
		d := struct {
			Individual bool `json:"individual_digits"`
		}{}
		behavior := "Contiguous"
		if err := read(section, raw, &d); err != nil {
			return nil, err
		}
		if d.Individual {
			behavior = "Isolated"
		}
		return splitter{each(isNumeric), behavior, false}, nil
	case "Punctuation":
		p := struct {
			Behavior string `json:"behavior"`
		}{"Isolated"}
		if err := read(section, raw, &p); err != nil {
			return nil, err
		}
		return newSplitter(section, each(isPunctuation), p.Behavior, false)
	case "BertPreTokenizer":
		return splitSequence{
			splitter{each(unicode.IsSpace), "Removed", false},
			splitter{each(isPunctuation), "Isolated", false},
		}, nil
	}
	return nil, unsupported("pre_tokenizer", fmt.Sprintf("type %q", kind), preTokenizers)
}

// splitSequence applies each pre-tokenizer to the pieces of the one before.
type splitSequence []preTokenizer

func newSplitSequence(section string, raw json.RawMessage) (preTokenizer, error) {
	var list struct {
		PreTokenizers []json.RawMessage `json:"pretokenizers"`
	}
	if err := read(section, raw, &list); err != nil {
		return nil, err
	}
	var seq splitSequence
	for _, r := range list.PreTokenizers {
		p, err := newPreTokenizer("pre_tokenizer", r)
		if err != nil {
			return nil, err
		}
		if p != nil {
			seq = append(seq, p)
		}
	}
	return seq, nil
}

func (q splitSequence) split(dst []span, s span) []span {
	pieces := []span{s}
	for i, p := range q {
		var next []span
		if i == len(q)-1 {
			next = dst
		} else {
			next = make([]span, 0, 2*len(pieces))
		}
		for _, piece := range pieces {
			if piece.text != "" {
				next = p.split(next, piece)
			}
		}
		pieces = next
	}
	if len(q) == 0 {
		return append(dst, s)
	}
	return pieces
}

// byteLevel is GPT-2's pre-tokenizer: the pattern of its words, then every byte as a visible character.
type byteLevel struct {
	AddPrefixSpace bool `json:"add_prefix_space"`
	UseRegex       bool `json:"use_regex"`
	mapBytes       bool // unset where the model maps the bytes itself
}

// gpt2 is the pattern of ByteLevel.
var gpt2 = mustCompileRegex(`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`)

func (b byteLevel) split(dst []span, s span) []span {
	if b.AddPrefixSpace && !strings.HasPrefix(s.text, " ") {
		s = s.prepend(" ")
	}
	from := len(dst)
	if b.UseRegex {
		dst = splitter{gpt2, "Isolated", false}.split(dst, s)
	} else {
		dst = append(dst, s)
	}
	if b.mapBytes {
		for i := from; i < len(dst); i++ {
			dst[i] = dst[i].mapBytes()
		}
	}
	return dst
}

// withoutByteMapping takes the byte mapping off the end of a pre-tokenizer, for a model that maps the bytes itself (and can remember
// the ids of a piece under its raw text).
func withoutByteMapping(p preTokenizer) (preTokenizer, bool) {
	switch p := p.(type) {
	case byteLevel:
		p.mapBytes = false
		return p, true
	case splitSequence:
		if len(p) > 0 {
			last, ok := withoutByteMapping(p[len(p)-1])
			return append(p[:len(p)-1:len(p)-1], last), ok
		}
	}
	return p, false
}

// prepend puts text before the span; it counts as part of the span's first character.
func (s span) prepend(text string) span {
	if s.head > 0 {
		s.head += len(text)
	}
	s.text = text + s.text
	return s
}

// mapBytes writes every byte of the span as its visible character.
func (s span) mapBytes() span {
	head := 0
	for i := 0; i < s.head; i++ {
		head += utf8.RuneLen(byteToChar[s.text[i]])
	}
	return span{mapBytes(s.text), head}
}

func newSplit(section string, raw json.RawMessage) (preTokenizer, error) {
	var p struct {
		Pattern  pattern `json:"pattern"`
		Behavior string  `json:"behavior"`
		Invert   bool    `json:"invert"`
	}
	if err := require(section, raw, "pattern", "behavior", "invert"); err != nil {
		return nil, err
	}
	if err := read(section, raw, &p); err != nil {
		return nil, err
	}
	m, err := p.Pattern.matcher(section)
	if err != nil {
		return nil, err
	}
	return newSplitter(section, m, p.Behavior, p.Invert)
}

// metaspace writes spaces as a visible character, often with one more before the text, and cuts before each of them.
type metaspace struct {
	Replacement char   `json:"replacement"`
	Scheme      string `json:"prepend_scheme"`
	Split       *bool  `json:"split"`
	AddPrefix   *bool  `json:"add_prefix_space"` // of older files
}

func newMetaspace(section string, raw json.RawMessage) (preTokenizer, error) {
	m, err := readMetaspace(section, raw)
	return m, err
}

// readMetaspace reads the section for the pre-tokenizer and the decoder alike.
func readMetaspace(section string, raw json.RawMessage) (metaspace, error) {
	m := metaspace{Scheme: "always"}
	if err := require(section, raw, "replacement"); err != nil {
		return m, err
	}
	if err := read(section, raw, &m); err != nil {
		return m, err
	}
	switch m.Scheme {
	case "always", "first":
		if m.AddPrefix != nil && !*m.AddPrefix {
			return m, fmt.Errorf("%s: add_prefix_space is false but prepend_scheme is %q; set prepend_scheme to \"never\"", section, m.Scheme)
		}
	case "never":
	default:
		return m, unsupported(section, fmt.Sprintf("prepend_scheme %q", m.Scheme), "always, first and never are")
	}
	return m, nil
}

func (m metaspace) split(dst []span, s span) []span {
	mark := string(rune(m.Replacement))
	if spaces := strings.Count(s.text[:s.head], " "); spaces > 0 {
		s.head += spaces * (len(mark) - 1)
	}
	s.text = strings.ReplaceAll(s.text, " ", mark)
	if !strings.HasPrefix(s.text, mark) && (m.Scheme == "always" || m.Scheme == "first" && s.head > 0) {
		s = s.prepend(mark)
	}
	if m.Split != nil && !*m.Split {
		return append(dst, s)
	}
	return splitter{literal(mark), "MergedWithNext", false}.split(dst, s)
}

// splitter cuts a span at the matches of a pattern; behavior says what becomes of them, invert makes the text between them the matches.
type splitter struct {
	m        matcher
	behavior string
	invert   bool
}

func newSplitter(section string, m matcher, behavior string, invert bool) (preTokenizer, error) {
	switch behavior {
	case "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous":
		return splitter{m, behavior, invert}, nil
	}
	return nil, unsupported(section, fmt.Sprintf("behavior %q", behavior), "Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous are")
}

func (p splitter) split(dst []span, s span) []span {
	parts := p.m.find(make([]part, 0, len(s.text)/4+4), s.text)
	if p.invert {
		for i := range parts {
			parts[i].hit = !parts[i].hit
		}
	}
	switch p.behavior {
	case "Removed":
		for _, x := range parts {
			if !x.hit {
				dst = append(dst, s.slice(x.from, x.to))
			}
		}
		return dst
	case "Contiguous": // equal neighbours become one
		parts = join(parts, func(previous, hit bool) bool { return previous == hit })
	case "MergedWithPrevious":
		parts = join(parts, func(previous, hit bool) bool { return hit && !previous })
	case "MergedWithNext":
		parts = joinBackwards(parts)
	}
	for _, x := range parts {
		dst = append(dst, s.slice(x.from, x.to))
	}
	return dst
}

// join merges a part into the one before where glue says so. The part before the first counts as no match.
func join(parts []part, glue func(previous, hit bool) bool) []part {
	out := parts[:0]
	previous := false
	for _, x := range parts {
		if glue(previous, x.hit) && len(out) > 0 {
			out[len(out)-1].to = x.to
		} else {
			out = append(out, x)
		}
		previous = x.hit
	}
	return out
}

// joinBackwards merges a match into the part after it, unless that is a match too.
func joinBackwards(parts []part) []part {
	out := parts
	n := len(parts) // out[n:] is done
	next := false
	for i := len(parts) - 1; i >= 0; i-- {
		x := parts[i]
		if x.hit && !next && n < len(parts) {
			out[n].from = x.from
		} else {
			n--
			out[n] = x
		}
		next = x.hit
	}
	return out[n:]
}
