package storage

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
)

// documented lists the columns that FORMAT.md gives a table, as "name type",
// with "?" behind those that may be null.
func documented(t *testing.T, table string) []string {
	t.Helper()
	text := string(must(os.ReadFile("FORMAT.md")))
	_, section, found := strings.Cut(text, "\n### "+table+"\n")
	if !found {
		t.Fatalf("FORMAT.md has no section %s", table)
	}
	section, _, _ = strings.Cut(section, "\n#")
	var columns []string
	for _, m := range regexp.MustCompile(`(?m)^\| (\w+) \| ([^|]+) \| ([^|]*)\| \S`).FindAllStringSubmatch(section, -1) {
		if m[1] == "column" {
			continue
		}
		c := m[1] + " " + strings.TrimSpace(m[2])
		if strings.TrimSpace(m[3]) != "" {
			c += "?"
		}
		columns = append(columns, c)
	}
	return columns
}

func written[T any](tab *table[T]) []string {
	var columns []string
	name := func(dt arrow.DataType) string {
		return strings.NewReplacer("utf8", "string", "float64", "double").Replace(dt.Name())
	}
	for _, c := range tab.cols {
		typ := name(c.typ)
		if l, ok := c.typ.(*arrow.ListType); ok {
			typ = fmt.Sprintf("list<%s>", name(l.Elem()))
		}
		s := c.name + " " + typ
		if c.nullable {
			s += "?"
		}
		columns = append(columns, s)
	}
	return columns
}

func TestFormatIsDocumented(t *testing.T) {
	for table, want := range map[string][]string{"completions": written(completionTable), "loops": written(loopTable), "scores": written(scoreTable)} {
		if got := documented(t, table); !slices.Equal(got, want) {
			t.Errorf("%s\nFORMAT.md %q\nwritten   %q", table, got, want)
		}
	}
	if text := string(must(os.ReadFile("FORMAT.md"))); !strings.Contains(text, fmt.Sprintf("What draftmill writes, format %d", Format)) {
		t.Errorf("FORMAT.md is not of format %d", Format)
	}
}

// Two major versions of Arrow's Parquet in one binary register the same names
// and panic as it starts.
func TestOneVersionOfArrow(t *testing.T) {
	for line := range strings.Lines(string(must(os.ReadFile("../go.mod")))) {
		if strings.Contains(line, "github.com/apache/arrow") && !strings.Contains(line, "github.com/apache/arrow/go/v17 ") {
			t.Errorf("go.mod: %s", line)
		}
	}
}
