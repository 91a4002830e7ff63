package report

import (
	"strings"
	"testing"

	"github.com/draftmill/draftmill/storage"
)

// TestTablesFitATerminal: in 80 columns, with names as long as they may be and
// every part that a table can have.
func TestTablesFitATerminal(t *testing.T) {
	long := strings.Repeat("name", 16)
	jobs := []*storage.Job{written(t, long, 30, 2, 6, 0.05, drawn(0)), written(t, "b"+long[1:], 30, 2, 6, 0.05, drawn(-0.3))}
	var texts []string
	for _, some := range [][]*storage.Job{jobs[:1], jobs} {
		c, err := Compare(some, Options{Margin: 0.04})
		if err != nil {
			t.Fatal(err)
		}
		if c.Certificate, err = Certify(some, true); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, s := range c.Summaries {
			s.Greedy = &Greedy{Same: 1, Divergences: []Divergence{{Row: 123456, RowID: long, Token: 1234, Margin: s.Speedup}}}
			if err := s.Table(&b); err != nil {
				t.Fatal(err)
			}
			if err := s.Full(&b); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Table(&b); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, b.String())
	}
	sweep, err := NewSweep([]*storage.Job{swept(t, 0, 20), swept(t, 4, 20), swept(t, 64, 20)})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := sweep.Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, text := range append(texts, b.String()) {
		for line := range strings.Lines(text) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 && strings.Contains(strings.TrimSpace(line), " ") { // a path stands alone
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}
