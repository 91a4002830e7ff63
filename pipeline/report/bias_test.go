package report

import (
	"strings"
	"testing"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// law is a distribution over two tokens; the first one passes.
func law(pass float64) spec.Dist {
	var d spec.Dist
	d.Reset(2)
	d.W[0], d.W[1], d.Sum = float32(pass), float32(1-pass), 1
	return d
}

// speculated draws one token by the rule, as engine and verification do: drafted
// from one law, verified as if it had been drafted from another. Rows differ in
// how often the target passes.
func speculated(t *testing.T, rule spec.Rule, lean, recorded float64) func(mode string, row, sample int) bool {
	return func(mode string, row, sample int) bool {
		target := 0.2 + 0.5*float64(row%7)/6
		q, p, said := law(target), law(target+lean), law(target+recorded)
		coins := spec.Coins{Seed: 5, Row: uint64(row), Sample: uint32(sample)}
		var out spec.Outcome
		var drafted []int32
		drafts, rows := []spec.Dist{}, []spec.Dist{q}
		if mode == "sps" {
			drafted = []int32{rule.Draft(&p, coins, 0)}
			drafts, rows = []spec.Dist{said}, []spec.Dist{q, q}
		}
		if err := spec.Verify(rule, drafted, drafts, rows, coins, 0, &out); err != nil {
			t.Fatal(err)
		}
		if out.Accepted > 0 {
			return drafted[0] == 0
		}
		return out.Token == 0
	}
}

// TestPlantedBias: speculative sampling that bends the law, by a lenient rule or
// by a draft that is not what the log says, is told from autoregressive sampling
// by the scores; where it is too small for that, the report says how many rows it
// would take. The same drafts under the rule of the papers pass.
func TestPlantedBias(t *testing.T) {
	lenient, err := spec.ParseRule("lenient:0.5")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name           string
		rule           spec.Rule
		lean, recorded float64
		samples        int
		margin         float64
		finding        string
	}{
		{"no bias", spec.Rule{}, 0.25, 0.25, 20, 0.05, Equivalent},
		{"lenient rule", lenient, 0.25, 0.25, 5, 0.05, Differs},
		{"wrong draft distribution", spec.Rule{}, 0.15, 0, 5, 0.05, Differs},
		{"a bias of two points, one sample a row", spec.Rule{}, 0.02, 0, 1, 0.02, NotShown},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := written(t, "biased", 164, c.samples, 1, c.margin, speculated(t, c.rule, c.lean, c.recorded))
			got, err := Compare([]*storage.Job{job}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			q := got.Quality[0]
			if q.Finding != c.finding {
				t.Errorf("found %q: %s", q.Finding, q.Verdict)
			}
			if c.finding == NotShown && (q.RowsNeeded <= q.Rows || !strings.Contains(q.Verdict, "rows to see") || !strings.Contains(got.Verdict(), "not settled")) {
				t.Errorf("%d rows are needed: %s %s", q.RowsNeeded, q.Verdict, got.Verdict())
			}
			if c.finding == Differs && (!strings.Contains(got.Verdict(), "differs by") || got.Mood() != "bad") {
				t.Error(got.Verdict())
			}
			if c.finding == Equivalent && (!strings.Contains(got.Verdict(), "as good within") || got.Mood() != "good") {
				t.Error(got.Verdict())
			}
		})
	}
}
