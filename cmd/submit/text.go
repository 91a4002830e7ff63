package main

import (
	"strings"

	"github.com/draftmill/draftmill/pipeline/report"
)

// narrow breaks the lines of prose that a terminal of 80 columns has no room for.
// Lines of tables begin with a space and stay as they are.
func narrow(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if body := strings.TrimSuffix(line, "\n"); len([]rune(body)) > report.TextWidth && !strings.HasPrefix(body, " ") {
			line = report.Wrap(body, report.TextWidth) + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}
