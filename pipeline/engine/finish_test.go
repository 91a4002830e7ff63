package engine

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
)

// TestStopsAgreeWithTheNaiveSearch pushes random texts token by token and
// compares with a search of the whole text after every token.
func TestStopsAgreeWithTheNaiveSearch(t *testing.T) {
	tok, eos := enginetest.Letters(t, "ab\n")
	r := rand.New(rand.NewPCG(1, 1))
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab\n"[r.IntN(3)]
		}
		return string(b)
	}
	stopped := 0
	for range 3000 {
		stops := make([]string, r.IntN(4))
		for i := range stops {
			stops[i] = text(1 + r.IntN(5))
		}
		full := text(30)
		end := newEnding(tok, []int32{eos}, stops, 25)
		n, want, reason := 0, "", ""
		for reason == "" {
			n++
			if want, reason = full[:n], ""; n == 25 {
				reason = FinishLength
			}
			for _, s := range stops {
				if i := strings.Index(full[:n], s); i >= 0 && i < len(want) {
					want, reason = full[:i], FinishStop
				}
			}
		}
		ids, err := tok.EncodePlain(full)
		if err != nil {
			t.Fatal(err)
		}
		pushed := 0
		for _, id := range ids {
			if pushed++; end.push(id) {
				break
			}
		}
		if pushed != n || end.reason != reason || end.completion() != want {
			t.Fatalf("%q with stops %q: after %d tokens %s, %q; want %d, %s, %q", full, stops, pushed, end.reason, end.completion(), n, reason, want)
		}
		if reason == FinishStop {
			stopped++
		}
	}
	if stopped < 100 {
		t.Errorf("only %d texts met a stop", stopped)
	}
}
