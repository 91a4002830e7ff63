package storage

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"go.uber.org/goleak"

	"github.com/draftmill/draftmill/storage/bucket"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(helperEnv); what != "" {
		os.Exit(helper(what))
	}
	goleak.VerifyTestMain(m)
}

// path is a file of a job that lies in a folder.
func (j *Job) path(elem ...string) string {
	return filepath.Join(append([]string{j.Dir()}, elem...)...)
}

// createFile writes a table to a path.
func createFile[T any](t *table[T], path string) (*tableWriter[T], error) {
	b, err := bucket.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return createTable(b, filepath.Base(path), t, nil)
}

// readFile reads a table by its path.
func readFile[T any](t *table[T], path, digest string, fn func(T) error) error {
	b, err := bucket.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return readTable(t, b, filepath.Base(path), digest, fn)
}

// checkAlloc makes the package allocate from a checked allocator until the
// test ends, and fails the test if anything was not released.
func checkAlloc(t *testing.T) {
	t.Helper()
	checked := memory.NewCheckedAllocator(memory.NewGoAllocator())
	was := allocator
	allocator = checked
	t.Cleanup(func() {
		allocator = was
		checked.AssertSize(t, 0)
	})
}

// fakeCompletion and fakeLoop make rows with every column filled, empty and
// extreme in turn, the same for the same number.
func fakeCompletion(n int64) Completion {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	c := Completion{
		Job: "job-a", Row: n, RowID: "Demo/" + string(rune('a'+n%26)), Sample: int32(n % 3),
		Completion: "    return \"größer\"\n", FinishReason: []string{FinishEOS, FinishLength, FinishStop}[n%3],
		PromptTokens: r.Int32N(512), CompletionTokens: r.Int32N(512), Loops: r.Int32N(100), Drafted: r.Int32N(500), Accepted: r.Int32N(400),
		PrefillNS: r.Int64(), DecodeNS: r.Int64(), DraftNS: r.Int64(), ScoreNS: r.Int64(), SampleNS: r.Int64(), TotalNS: r.Int64(),
		Seed: r.Uint64(), Worker: "host-1",
	}
	if n%3 == 2 {
		c.StopReason = "\ndef"
	}
	if n%5 == 4 {
		c.FinishReason, c.StopReason, c.Error, c.Completion = FinishError, "", "the prompt is empty", ""
		return c
	}
	for range r.IntN(40) {
		c.Tokens = append(c.Tokens, r.Int32())
	}
	return c
}

func fakeLoop(n int64) Loop {
	r := rand.New(rand.NewPCG(2, uint64(n)))
	l := Loop{Row: n / 7, RowID: "Demo/x", Sample: int32(n % 2), Loop: int32(n % 7), Position: r.Int32N(2000), K: r.Int32N(9),
		DraftNS: r.Int64(), ScoreNS: r.Int64(), SampleNS: r.Int64()}
	for range l.K {
		l.Drafted = append(l.Drafted, r.Int32N(50000))
		l.P = append(l.P, r.Float64())
		l.Q = append(l.Q, r.Float64())
		l.Overlap = append(l.Overlap, r.Float64())
		if n%4 == 3 {
			l.Below = append(l.Below, r.Float64())
		}
	}
	l.Accepted = int32(r.IntN(int(l.K) + 1))
	for range min(l.Accepted+1, l.K) {
		l.Coins = append(l.Coins, r.Float64())
	}
	switch {
	case n%11 == 10:
		l.Kind, l.Token = KindNone, -1
	case l.Accepted == l.K:
		l.Kind, l.Token, l.Emitted = KindBonus, r.Int32N(50000), l.Accepted+1
	default:
		l.Kind, l.Token, l.Emitted = KindRecovered, r.Int32N(50000), l.Accepted+1
	}
	if n%2 == 0 {
		for range l.Accepted + 1 {
			l.Margins = append(l.Margins, r.Float64())
			l.Chance = l.P
		}
		if n%6 == 0 {
			l.Margins[r.IntN(len(l.Margins))] = math.Inf(1) // nothing else was possible
		}
		m := l.Margins[l.Accepted]
		l.Margin = &m
	}
	return l
}
