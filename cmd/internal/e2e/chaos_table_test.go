package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	full      = flag.Bool("full", false, "the fault suite in full: minutes, not seconds")
	tableFile = flag.String("table", "", "write the fault suite's table to `FILE`")
)

// fault is one kind of disturbance and what became of the jobs under it: a line
// of the table.
type fault struct {
	Name      string // what happened
	Where     string // to whom, or at which points
	Runs      int    // jobs
	Disturbed int    // times that the fault was there
	Rows      int    // completions asked for
	Lost      int    // of them not there
	Doubled   int    // keys that are there more than once
	Different int    // keys that differ from an undisturbed run's
	Strays    int    // files that nobody asked for
	Counts    int    // counts of attempts left on the queue; they expire
	failed    bool
}

// fullOnly leaves a test to make chaos.
func fullOnly(t *testing.T, why string) {
	t.Helper()
	if !*full {
		t.Skip("a part of make chaos: " + why)
	}
}

// table collects faults in the order of the tests.
type table struct {
	mu   sync.Mutex
	rows []*fault
}

var faults table

// begin adds the first line of a test to the table. Tests of faults run side by side.
func (tb *table) begin(t *testing.T, name, where string) *fault {
	t.Helper()
	f := tb.line(t, name, where)
	t.Parallel()
	return f
}

// line adds a line to the table.
func (tb *table) line(t *testing.T, name, where string) *fault {
	t.Helper()
	f := &fault{Name: name, Where: where}
	tb.mu.Lock()
	tb.rows = append(tb.rows, f)
	tb.mu.Unlock()
	t.Cleanup(func() { f.failed = t.Failed() })
	return f
}

// markdown is the table.
func (tb *table) markdown() string {
	var b strings.Builder
	fmt.Fprintln(&b, "| fault | where | jobs | times | completions | lost | doubled | different | stray files | result |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|---|---|---|")
	sum := fault{}
	for _, f := range tb.rows {
		result := "holds"
		if f.failed {
			result = "FAILS"
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d | %d | %d | %s |\n", f.Name, f.Where, f.Runs, f.Disturbed, f.Rows, f.Lost, f.Doubled, f.Different, f.Strays, result)
		sum.Runs, sum.Disturbed, sum.Rows = sum.Runs+f.Runs, sum.Disturbed+f.Disturbed, sum.Rows+f.Rows
		sum.Lost, sum.Doubled, sum.Different, sum.Strays = sum.Lost+f.Lost, sum.Doubled+f.Doubled, sum.Different+f.Different, sum.Strays+f.Strays
		sum.Counts += f.Counts
	}
	fmt.Fprintf(&b, "| **all** | | %d | %d | %d | %d | %d | %d | %d | |\n\n", sum.Runs, sum.Disturbed, sum.Rows, sum.Lost, sum.Doubled, sum.Different, sum.Strays)
	fmt.Fprintf(&b, "Counts of attempts left on the queue by workers and servers that were killed: %d. The server forgets each a week after it was written.\n", sum.Counts)
	return b.String()
}

// Where the table stands in the document.
const (
	tableBegin = "<!-- the table of make chaos begins -->\n"
	tableEnd   = "<!-- the table of make chaos ends -->\n"
)

// write prints the table, if faults were tested, and puts it into the document
// that -table names when all holds.
func (tb *table) write(holds bool) error {
	if len(tb.rows) == 0 || !testing.Verbose() && *tableFile == "" {
		return nil
	}
	text := fmt.Sprintf("%s, %s, %s.\n\n%s", time.Now().UTC().Format("2 January 2006"), processor(), runtime.Version(), tb.markdown())
	fmt.Print("\n", text, "\n")
	if *tableFile == "" || !holds {
		return nil
	}
	document, err := os.ReadFile(*tableFile)
	if err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	before, rest, ok := bytes.Cut(document, []byte(tableBegin))
	_, after, ok2 := bytes.Cut(rest, []byte(tableEnd))
	if !ok || !ok2 {
		return fmt.Errorf("write the table: %s has no place for it", *tableFile)
	}
	return os.WriteFile(*tableFile, bytes.Join([][]byte{before, []byte(tableBegin), []byte(text), []byte(tableEnd), after}, nil), 0o644)
}

// processor is the machine's, with the number of its cores.
func processor() string {
	name := runtime.GOARCH
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				name = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores", name, runtime.NumCPU())
}
