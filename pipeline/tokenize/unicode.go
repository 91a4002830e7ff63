package tokenize

import (
	"sort"
	"unicode"
)

// runeRange is code points lo to hi.
type runeRange struct{ lo, hi rune }

// inRanges looks r up in sorted ranges.
func inRanges(table []runeRange, r rune) bool {
	i := sort.Search(len(table), func(i int) bool { return table[i].hi >= r })
	return i < len(table) && table[i].lo <= r
}

// standIn returns a character of the same general category (and script, for Han) for one that Go's tables are too old to know, so that
// Go's tables answer for both.
func standIn(r rune) rune {
	if r < newest[0].lo {
		return r
	}
	i := sort.Search(len(newest), func(i int) bool { return newest[i].hi >= r })
	if i < len(newest) && newest[i].lo <= r {
		return newest[i].as
	}
	return r
}

func isSpace(r rune) bool { return unicode.IsSpace(r) }

// isWord is \w: letters, marks, decimal digits, connectors, other alphabetic characters and the two joiners.
func isWord(r rune) bool {
	if r < 0x80 {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	return unicode.In(standIn(r), unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

// isNumeric is Rust's char::is_numeric: Nd, Nl and No.
func isNumeric(r rune) bool {
	return unicode.Is(unicode.N, standIn(r)) || inRanges(numericExtra, r)
}

// isPunctuation is ASCII punctuation, symbols included, and the P categories of an older Unicode.
func isPunctuation(r rune) bool {
	if r < 0x80 {
		return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
	}
	return unicode.Is(unicode.P, r) != inRanges(punctuationDiffers, r)
}

// isNonspacing is category Mn of an older Unicode.
func isNonspacing(r rune) bool { return unicode.Is(unicode.Mn, r) != inRanges(nonspacingDiffers, r) }

// isMark is category M of an older Unicode.
func isMark(r rune) bool { return unicode.Is(unicode.M, r) != inRanges(markDiffers, r) }

// isControl is what BertNormalizer takes out: Cc, Cf and Co of an older Unicode, but not tab, line feed and carriage return.
func isControl(r rune) bool {
	if r == '\t' || r == '\n' || r == '\r' {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) != inRanges(controlDiffers, r)
}

// lower appends the lower case of one character to dst, without regard to its neighbours.
func lower(dst []byte, r rune) []byte {
	if r == 'İ' {
		return append(dst, "i\u0307"...)
	}
	if l := unicode.ToLower(r); l != r {
		return append(dst, string(l)...)
	}
	for _, x := range lowerExtra {
		if x.lo <= r && r <= x.hi {
			return append(dst, string(r+x.delta)...)
		}
	}
	return append(dst, string(r)...)
}
