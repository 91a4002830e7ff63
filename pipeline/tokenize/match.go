package tokenize

import "strings"

// part is a stretch of a text that a pattern matches (hit) or not.
type part struct {
	from, to int
	hit      bool
}

// matcher cuts a whole text into matches and what lies between them, in order, and appends them to dst.
type matcher interface {
	find(dst []part, text string) []part
}

// between appends the text before a match that begins at to, if there is any.
func between(dst []part, from, to int) []part {
	if from == to {
		return dst
	}
	return append(dst, part{from, to, false})
}

// literal matches a string, not empty.
type literal string

func (l literal) find(dst []part, text string) []part {
	done := 0
	for {
		i := strings.Index(text[done:], string(l))
		if i < 0 {
			return between(dst, done, len(text))
		}
		dst = between(dst, done, done+i)
		dst = append(dst, part{done + i, done + i + len(l), true})
		done += i + len(l)
	}
}

// each matches every single character of a class.
type each func(rune) bool

func (in each) find(dst []part, text string) []part {
	done := 0
	for i, r := range text {
		if in(r) {
			to := i + len(string(r))
			dst = between(dst, done, i)
			dst = append(dst, part{i, to, true})
			done = to
		}
	}
	return between(dst, done, len(text))
}

// wordOrNot matches runs of word characters and runs of what is neither word nor space: \w+|[^\w\s]+.
type wordOrNot struct{}

func (wordOrNot) find(dst []part, text string) []part {
	const space, word, other = 0, 1, 2
	from, state := 0, space
	for i, r := range text {
		now := other
		if isWord(r) {
			now = word
		} else if isSpace(r) {
			now = space
		}
		if now != state {
			if from < i {
				dst = append(dst, part{from, i, state != space})
			}
			from, state = i, now
		}
	}
	if from < len(text) {
		dst = append(dst, part{from, len(text), state != space})
	}
	return dst
}
