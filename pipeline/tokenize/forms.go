package tokenize

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// composition is one of Unicode's normalization forms. x/text knows the characters; the algorithm (Unicode Standard Annex 15) is done
// here because x/text puts a U+034F into long runs of marks (the Stream-Safe Text Format) and because its tables are newer: the code
// points in inert are unknown to the Rust implementation, so they neither decompose nor move nor compose.
type composition struct {
	decompose norm.Form // NFD or NFKD
	compose   bool
	form      norm.Form
	inert     []runeRange
}

var compositions = map[string]normalizer{
	"NFC":  composition{norm.NFD, true, norm.NFC, canonicalInert},
	"NFD":  composition{norm.NFD, false, norm.NFD, canonicalInert},
	"NFKC": composition{norm.NFKD, true, norm.NFKC, compatibilityInert},
	"NFKD": composition{norm.NFKD, false, norm.NFKD, compatibilityInert},
}

func (c composition) normalize(s span) span {
	if c.form.IsNormalString(s.text) && !strings.ContainsFunc(s.text, c.isInert) {
		return s
	}
	text := c.apply(s.text)
	if s.head > 0 {
		// Exact enough: the text's first character stems from the input's first one, and the first character of anything else does not.
		s.head = min(len(text), max(1, len(c.apply(s.text[:s.head]))))
	}
	return span{text, s.head}
}

func (c composition) isInert(r rune) bool { return inRanges(c.inert, r) }

// mark is a character with its canonical combining class.
type mark struct {
	r     rune
	class uint8
}

func (c composition) apply(text string) string {
	marks := make([]mark, 0, len(text))
	for _, r := range text {
		if r < utf8.RuneSelf || c.isInert(r) {
			marks = append(marks, mark{r: r})
			continue
		}
		for _, d := range c.decompose.String(string(r)) {
			marks = append(marks, mark{d, norm.NFD.PropertiesString(string(d)).CCC()})
		}
	}
	for from := 0; from < len(marks); from++ {
		to := from
		for to < len(marks) && marks[to].class > 0 {
			to++
		}
		if to-from > 1 {
			slices.SortStableFunc(marks[from:to], func(a, b mark) int { return int(a.class) - int(b.class) })
		}
		from = to
	}
	if c.compose {
		marks = c.composed(marks)
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for _, m := range marks {
		out = utf8.AppendRune(out, m.r)
	}
	return string(out)
}

// composed joins each starter with the characters after it that compose with it and are not blocked by one between.
func (c composition) composed(marks []mark) []mark {
	out := marks[:0]
	starter := -1
	for _, m := range marks {
		if starter >= 0 {
			// Between the starter and m, only marks of a lower class; none blocks.
			adjacent := len(out) == starter+1
			if last := out[len(out)-1].class; adjacent || last < m.class && last > 0 {
				if r, ok := c.pair(out[starter].r, m.r); ok {
					out[starter].r = r
					continue
				}
			}
		}
		if m.class == 0 {
			starter = len(out)
		}
		out = append(out, m)
	}
	return out
}

// pair returns the character that a and b compose to.
func (c composition) pair(a, b rune) (rune, bool) {
	if b < 0x300 || c.isInert(a) || c.isInert(b) || norm.NFC.PropertiesString(string(b)).BoundaryBefore() {
		return 0, false
	}
	joined := norm.NFC.String(string(a) + string(b))
	r, n := utf8.DecodeRuneInString(joined)
	return r, n == len(joined)
}
