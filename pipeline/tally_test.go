package pipeline

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// TestTally: each way in which completion and log can disagree is an error
// that says so, and agreement is none.
func TestTally(t *testing.T) {
	loops := []engine.Loop{
		{Drafted: make([]int32, 3), Outcome: &spec.Outcome{Accepted: 3}, Emitted: 4}, // bonus
		{Drafted: make([]int32, 3), Outcome: &spec.Outcome{Accepted: 1}, Emitted: 2}, // recovered
		{Drafted: make([]int32, 3), Outcome: &spec.Outcome{Accepted: 2}, Emitted: 1}, // cut
	}
	for want, change := range map[string]func(*storage.Completion){
		"":                     func(*storage.Completion) {},
		"completion's 8":       func(c *storage.Completion) { c.Tokens = append(c.Tokens, 1) },
		"completion's 6":       func(c *storage.Completion) { c.Tokens = c.Tokens[1:] },
		"(6 counted)":          func(c *storage.Completion) { c.CompletionTokens-- },
		"counts 4":             func(c *storage.Completion) { c.Loops++ },
		"6 accepted tokens":    func(c *storage.Completion) { c.Accepted-- },
		"the completion count": func(c *storage.Completion) { c.Accepted++ },
	} {
		var n tally
		for i := range loops {
			n.add(&loops[i])
		}
		if n.accepted != 5 || n.recovered != 1 || n.bonus != 1 || !slices.Equal(n.lengths, []int{0, 1, 1, 1}) {
			t.Fatalf("%+v", n)
		}
		c := storage.Completion{Tokens: make([]int32, 7), CompletionTokens: 7, Loops: 3, Accepted: 6}
		change(&c)
		err := n.check(&c, false)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestFailedRowsKeepWhatWasDecided: a row that fails inside a loop keeps the
// tokens of the loops before, and none that was only drafted.
func TestFailedRowsKeepWhatWasDecided(t *testing.T) {
	for _, broken := range []string{"target", "draft"} {
		e, models := testEngine(t, SpS)
		defer e.Close()
		m := models.target
		if broken == "draft" {
			m = models.draft
		}
		good := m.Logits
		m.Logits = func(prefix []int32) []float32 {
			l := slices.Clone(good(prefix))
			if len(prefix) > 5 {
				l[0] = float32(math.NaN())
			}
			return l
		}
		var log shardLog
		var rows []storage.ShardRow
		for row, prompt := range []string{"ba", "abb", "aa", "bab", "b", "ab"} {
			rows = append(rows, storage.ShardRow{Row: int64(row), Prompt: []byte(prompt)})
		}
		if err := decodeShard(t.Context(), e, newShardRun(testTask(SpS, rows...), "w", &log, nil)); err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, c := range log.completions {
			emitted := 0
			for _, l := range log.loops {
				if l.Row == c.Row && l.Sample == c.Sample {
					emitted += int(l.Emitted)
				}
			}
			if emitted != len(c.Tokens) || int(c.CompletionTokens) != emitted {
				t.Errorf("%s: row %d sample %d has %d tokens, its loops kept %d", broken, c.Row, c.Sample, len(c.Tokens), emitted)
			}
			if c.FinishReason == storage.FinishError && emitted > 0 {
				failed++
			}
		}
		if failed == 0 {
			t.Errorf("%s: no row failed on its way", broken)
		}
	}
}
