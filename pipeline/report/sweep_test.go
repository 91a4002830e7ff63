package report

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/storage"
)

// swept is a job at lookahead k: every loop takes 2 ms and 0.5 ms more for each
// drafted token, and accepts all but in every second one, where it accepts one
// at most. Sequences differ in length.
func swept(t *testing.T, k, rows int) *storage.Job {
	t.Helper()
	mode := "sps"
	if k == 0 {
		mode = "ars"
	}
	return sweptAs(t, k, rows, mode, "")
}

// sweptAs has more in the job's specification.
func sweptAs(t *testing.T, k, rows int, mode, more string) *storage.Job {
	t.Helper()
	spec := fmt.Sprintf(`{"k": %d, "modes": [%q], "samples": 1, "sampling": {}%s}`, max(k, 1), mode, more)
	job, err := storage.CreateJob(t.TempDir(), fmt.Sprint("k", k), []byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	w, err := job.NewShardWriter(mode, 0)
	if err != nil {
		t.Fatal(err)
	}
	for row := range rows {
		c := storage.Completion{Job: job.Name(), Row: int64(row), RowID: fmt.Sprint(row), FinishReason: storage.FinishEOS, PromptTokens: 5}
		for n := range 10 + row%7 {
			l := storage.Loop{Row: c.Row, RowID: c.RowID, Loop: int32(n), K: int32(k), Lanes: 1, Token: 1, Kind: storage.KindBonus, ScoreNS: 2e6, DraftNS: int64(k) * 5e5}
			accepted := k
			if n%2 == 1 {
				accepted = min(k, 1)
			}
			for range k {
				l.Drafted, l.P, l.Q, l.Overlap = append(l.Drafted, 1), append(l.P, .5), append(l.Q, .5), append(l.Overlap, .8)
			}
			l.Accepted, l.Emitted = int32(accepted), int32(accepted+1)
			for range min(k, accepted+1) {
				l.Coins = append(l.Coins, .1)
			}
			if accepted < k {
				l.Kind = storage.KindRecovered
			}
			c.Loops++
			c.Drafted += int32(k)
			c.Accepted += l.Accepted
			c.CompletionTokens += l.Emitted
			c.DraftNS += l.DraftNS
			c.ScoreNS += l.ScoreNS
			c.DecodeNS += l.DraftNS + l.ScoreNS
			if err := w.AddLoop(l); err != nil {
				t.Fatal(err)
			}
		}
		c.TotalNS = c.DecodeNS
		if err := w.AddCompletion(c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return job
}

func TestSweep(t *testing.T) {
	var jobs []*storage.Job
	for _, k := range []int{4, 0, 1, 8, 2} { // in any order
		jobs = append(jobs, swept(t, k, 20))
	}
	jobs = append(jobs, sweptAs(t, 4, 20, "sps", `, "lookahead": "auto"`)) // beside the one that is always 4
	s, err := NewSweep(jobs)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s = %v, want %v", what, got, want)
		}
	}
	near("slope", s.Slope, 0.5)
	near("its error", s.SlopeSE, 0)
	near("intercept", s.Intercept, 2)
	near("c", s.C, 0.25)
	near("alpha", s.Alpha, 0.8)
	if ks := fmt.Sprint(s.Points[0].K, s.Points[1].K, s.Points[4].K); ks != "0 1 8" {
		t.Errorf("lookaheads %s", ks)
	}
	near("loop at 4", s.Points[3].LoopMS, 4)
	near("128 tokens at 0", s.Points[0].Seconds, 128*0.002)
	near("efficiency at 1", s.Points[1].Efficiency, 1)
	near("alpha at 4", s.Points[3].Alpha, 0.8)
	near("c at 4", s.Points[3].C, 0.25)
	near("speed-up of alpha 0.8 and c 0.25 at 4", *s.Points[3].Predicted, (1-math.Pow(0.8, 5))/(1-0.8)/(4*0.25+1))
	near("tokens over passes at 4", s.Points[3].Tokens/s.Points[3].Passes, s.Points[3].TokensPerLoop)
	var table strings.Builder
	if err := SweepTable(&table, []SweepLine{{"draft a", s}, {"draft b", s}}); err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(table.String(), "\n")
	if fields := strings.Fields(rows[3]); len(fields) != 7 || fields[0] != "4" || strings.Count(table.String(), "draft a ") != 1 {
		t.Errorf("table:\n%s", &table)
	}
	near("speed-up at 0", *s.Points[0].Speedup, 1)
	if len(s.Points) != 5 || s.Auto == nil {
		t.Fatalf("points %+v, auto %+v", s.Points, s.Auto)
	}
	near("speed-up of auto", *s.Auto.Speedup, *s.Points[3].Speedup)
	// Per token at K: (2 + K/2) over the mean of K+1 and 2: 1.25, 1.2, 1.14, 1.09 ms.
	if s.Best != 8 || s.BestLow != 8 || s.BestHigh != 8 || s.Share != 1 {
		t.Errorf("best %d, interval %d to %d, share %v", s.Best, s.BestLow, s.BestHigh, s.Share)
	}
	charts := s.Charts()
	if len(charts) != 3 || len(charts[0].Curves[0].Errors) != 5 {
		t.Errorf("%d charts", len(charts))
	}
	var b strings.Builder
	s.Points[0].LoopMS += 3 // a busy machine
	s.fit()
	if !strings.Contains(s.Advice(), "on a quiet machine") {
		t.Errorf("slope %v ± %v: %s", s.Slope, s.SlopeSE, s.Advice())
	}
	if err := s.Table(&b); err != nil || !strings.Contains(b.String(), "Best lookahead: K = 8") || !strings.Contains(b.String(), "\n  auto ") {
		t.Errorf("%v\n%s", err, b.String())
	}
	for _, c := range charts {
		var svg strings.Builder
		if err := c.SVG(&svg); err != nil || !strings.Contains(c.inline(), "<svg") {
			t.Errorf("%s: %v", c.Title, err)
		}
	}
	if _, err := NewSweep(jobs[:1]); err == nil {
		t.Error("one point is no sweep")
	}
	if _, err := NewSweep([]*storage.Job{jobs[0], jobs[0]}); err == nil {
		t.Error("the same lookahead twice is no sweep")
	}
}
