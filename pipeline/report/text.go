package report

import (
	"strings"
	"unicode/utf8"
)

// TextWidth is how wide texts and tables for terminals are at most.
const TextWidth = 79

// Wrap breaks a text into lines of at most width characters. A longer word has
// a line of its own.
func Wrap(text string, width int) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > width:
			b.WriteString("\n")
			at = 0
		default:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// maxName is how much of a series' name a table for terminals shows.
const maxName = 18

// short is a name without its middle where it is too long for a table.
func short(name string) string {
	if r := []rune(name); len(r) > maxName {
		return string(r[:maxName/2]) + "…" + string(r[len(r)-(maxName-maxName/2-1):])
	}
	return name
}
