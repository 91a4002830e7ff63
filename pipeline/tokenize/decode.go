package tokenize

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// stage is one step of a decoder. It is given tokens, each in one part or in several (end marks the last part), and gives tokens to the
// stage after it: as soon as they are certain, and never anything that a later token could change.
type stage interface {
	write(text string, end bool, next sink)
	// flush is called once, after the last token.
	flush(next sink)
}

// sink takes part of a token.
type sink func(text string, end bool)

const decoders = "Sequence, ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, WordPiece and BPEDecoder are"

// newDecoder returns constructors for the stages of a decoder.
func newDecoder(section string, raw json.RawMessage) ([]func() stage, error) {
	if absent(raw) {
		return []func() stage{func() stage { return &spaced{} }}, nil
	}
	kind, err := typeOf(section, raw)
	if err != nil {
		return nil, err
	}
	section = section + " " + kind
	var c struct {
		Decoders []json.RawMessage `json:"decoders"`
		Content  string            `json:"content"`
		Start    int               `json:"start"`
		Stop     int               `json:"stop"`
		Pattern  pattern           `json:"pattern"`
		Prefix   string            `json:"prefix"`
		Cleanup  bool              `json:"cleanup"`
		Suffix   string            `json:"suffix"`
	}
	if err := read(section, raw, &c); err != nil {
		return nil, err
	}
	one := func(f func() stage) []func() stage { return []func() stage{f} }
	switch kind {
	case "Sequence":
		var all []func() stage
		for _, r := range c.Decoders {
			if absent(r) {
				return nil, fmt.Errorf("%s: an empty entry", section)
			}
			d, err := newDecoder("decoder", r)
			if err != nil {
				return nil, err
			}
			all = append(all, d...)
		}
		return all, nil
	case "ByteLevel":
		return one(func() stage { return &byteLevelStage{} }), nil
	case "ByteFallback":
		return one(func() stage { return &byteFallbackStage{} }), nil
	case "Fuse":
		return one(func() stage { return fuse{} }), nil
	case "Strip":
		r, n := utf8.DecodeRuneInString(c.Content)
		if n == 0 || n != len(c.Content) || c.Start < 0 || c.Stop < 0 {
			return nil, unsupported(section, fmt.Sprintf("content %q, start %d, stop %d", c.Content, c.Start, c.Stop), "one character and counts from 0 are")
		}
		return one(func() stage { return &stripStage{char: r, start: c.Start, stop: c.Stop} }), require(section, raw, "content", "start", "stop")
	case "Replace":
		m, err := c.Pattern.matcher(section)
		if err != nil {
			return nil, err
		}
		if l, ok := m.(literal); ok {
			return one(func() stage { return &replaceStage{old: string(l), new: c.Content} }), require(section, raw, "content")
		}
		r := replace{m, c.Content}
		return one(func() stage {
			return &wholeToken{f: func(_ int, token string) string { return r.normalize(span{text: token}).text }}
		}), require(section, raw, "content")
	case "Metaspace":
		m, err := readMetaspace(section, raw)
		return one(func() stage { return &metaspaceStage{mark: rune(m.Replacement), dropFirst: m.Scheme != "never"} }), err
	case "WordPiece":
		return one(func() stage {
			return &wholeToken{f: func(i int, token string) string { return joinWordPiece(i, token, c.Prefix, c.Cleanup) }}
		}), require(section, raw, "prefix", "cleanup")
	case "BPEDecoder":
		return one(func() stage { return &bpeStage{suffix: c.Suffix} }), require(section, raw, "suffix")
	}
	return nil, unsupported("decoder", fmt.Sprintf("type %q", kind), decoders)
}

// whole puts the parts of a token together, for stages that must see all of it.
type whole []byte

// add returns the token once its last part is there.
func (w *whole) add(text string, end bool) (token string, ok bool) {
	if end && len(*w) == 0 {
		return text, true
	}
	*w = append(*w, text...)
	if !end {
		return "", false
	}
	token = string(*w)
	*w = (*w)[:0]
	return token, true
}

// spaced stands for no decoder at all: tokens with a space between.
type spaced struct{ inside, any bool }

func (d *spaced) write(text string, end bool, next sink) {
	if d.any && !d.inside {
		next(" ", false)
	}
	d.any, d.inside = true, !end
	next(text, end)
}

func (d *spaced) flush(sink) {}

// fuse makes all tokens one.
type fuse struct{}

func (fuse) write(text string, _ bool, next sink) { next(text, false) }
func (fuse) flush(next sink)                      { next("", true) }

// wholeToken rewrites each token on its own; f is also given its number.
type wholeToken struct {
	f    func(i int, token string) string
	i    int
	part whole
}

func (d *wholeToken) write(text string, end bool, next sink) {
	if token, ok := d.part.add(text, end); ok {
		next(d.f(d.i, token), true)
		d.i++
	}
}

func (d *wholeToken) flush(sink) {}

// cleanups are the artefacts that WordPiece's cleanup takes out, in this order.
var cleanups = [][2]string{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
	{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}

func joinWordPiece(i int, token, prefix string, cleanup bool) string {
	if i > 0 {
		if rest, ok := strings.CutPrefix(token, prefix); ok {
			token = rest
		} else {
			token = " " + token
		}
	}
	if cleanup {
		for _, c := range cleanups {
			token = strings.ReplaceAll(token, c[0], c[1])
		}
	}
	return token
}

// metaspaceStage makes the visible space a space, and takes those of the first token out if one was put before the text.
type metaspaceStage struct {
	mark      rune
	dropFirst bool
	past      bool // the first token is done
}

func (d *metaspaceStage) write(text string, end bool, next sink) {
	to := " "
	if d.dropFirst && !d.past {
		to = ""
	}
	next(strings.ReplaceAll(text, string(d.mark), to), end)
	d.past = d.past || end
}

func (d *metaspaceStage) flush(sink) {}

// bpeStage makes the end-of-word suffix a space, and nothing in the last token.
type bpeStage struct {
	suffix string
	held   string // the last token so far
	some   bool   // there is one
	part   whole
}

func (d *bpeStage) write(text string, end bool, next sink) {
	token, ok := d.part.add(text, end)
	if !ok {
		return
	}
	if d.some {
		next(d.replaced(" "), true)
	}
	d.held, d.some = token, true
}

// replaced is the held token with the suffix as to. (An empty suffix stands between all characters, as in Rust.)
func (d *bpeStage) replaced(to string) string { return strings.ReplaceAll(d.held, d.suffix, to) }

func (d *bpeStage) flush(next sink) {
	if d.some {
		next(d.replaced(""), true)
	}
}

// replaceStage replaces a string inside of tokens. held may be the beginning of a match.
type replaceStage struct{ old, new, held string }

func (d *replaceStage) write(text string, end bool, next sink) {
	text = d.held + text
	d.held = ""
	var out strings.Builder
	for {
		before, after, ok := strings.Cut(text, d.old)
		if !ok {
			break
		}
		out.WriteString(before)
		out.WriteString(d.new)
		text = after
	}
	keep := 0
	if !end {
		for keep = min(len(text), len(d.old)-1); !strings.HasPrefix(d.old, text[len(text)-keep:]); keep-- {
		}
	}
	out.WriteString(text[:len(text)-keep])
	d.held = text[len(text)-keep:]
	next(out.String(), end)
}

func (d *replaceStage) flush(sink) {}

// stripStage takes up to start and stop copies of a character off the two ends of each token.
type stripStage struct {
	char        rune
	start, stop int
	cut         int  // taken off the front of this token
	inside      bool // past the front
	held        int  // copies that may be the end
}

func (d *stripStage) write(text string, end bool, next sink) {
	var out strings.Builder
	for _, r := range text {
		if !d.inside && d.cut < d.start && r == d.char {
			d.cut++
			continue
		}
		d.inside = true
		if r == d.char && d.held < d.stop {
			d.held++
			continue
		}
		if r == d.char { // one more than can be taken off: the first of those held stays
			out.WriteRune(r)
			continue
		}
		for ; d.held > 0; d.held-- {
			out.WriteRune(d.char)
		}
		out.WriteRune(r)
	}
	if end {
		d.cut, d.inside, d.held = 0, false, 0
	}
	next(out.String(), end)
}

func (d *stripStage) flush(sink) {}

// byteFallbackStage makes tokens such as <0x0A> the bytes they stand for. A run of them that is not UTF-8 becomes one U+FFFD for each
// byte: what a run becomes is known when it ends, not before.
type byteFallbackStage struct {
	part whole
	run  []byte
}

func (d *byteFallbackStage) write(text string, end bool, next sink) {
	token, ok := d.part.add(text, end)
	if !ok {
		return
	}
	if b, ok := hexByte(token); ok {
		d.run = append(d.run, b)
		return
	}
	d.flush(next)
	next(token, true)
}

func (d *byteFallbackStage) flush(next sink) {
	if len(d.run) == 0 {
		return
	}
	if utf8.Valid(d.run) {
		next(string(d.run), true)
	} else {
		for range d.run {
			next("\uFFFD", true)
		}
	}
	d.run = d.run[:0]
}

// hexByte reads a token of byte fallback. Rust's parser takes <0x+A> too.
func hexByte(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	digits := token[3:5]
	if digits[0] == '+' {
		digits = digits[1:]
	}
	v, err := strconv.ParseUint(digits, 16, 8)
	return byte(v), err == nil
}

// byteLevelStage makes the visible characters bytes again and joins all tokens. pending is the beginning of a character.
type byteLevelStage struct {
	part    whole
	pending []byte
}

func (d *byteLevelStage) write(text string, end bool, next sink) {
	token, ok := d.part.add(text, end)
	if !ok {
		return
	}
	d.pending = unmapBytes(d.pending, token)
	out, n := lossy(d.pending, false)
	d.pending = append(d.pending[:0], d.pending[n:]...)
	if out != "" {
		next(out, false)
	}
}

func (d *byteLevelStage) flush(next sink) {
	out, _ := lossy(d.pending, true)
	d.pending = d.pending[:0]
	next(out, true)
}

// lossy decodes UTF-8 with one U+FFFD for each maximal ill-formed part. Unless last is set, it leaves the beginning of a character at the
// end of b alone; n is the number of bytes that it used.
func lossy(b []byte, last bool) (text string, n int) {
	var out []byte
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r != utf8.RuneError || size > 1 {
			out = append(out, b[n:n+size]...)
			n += size
			continue
		}
		size = prefixLen(b[n:])
		if n+size == len(b) && !last && !utf8.FullRune(b[n:]) {
			break
		}
		out = append(out, "\uFFFD"...)
		n += size
	}
	return string(out), n
}

// prefixLen is the length of the maximal ill-formed part at the start of b: the longest beginning of a well-formed sequence, or one byte.
func prefixLen(b []byte) int {
	for n := min(3, len(b)); n > 1; n-- {
		if !utf8.FullRune(b[:n]) {
			return n
		}
	}
	return 1
}
