package report

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/draftmill/draftmill/storage"
)

// written is a job of both modes with scores: passes says whether a sample
// passed in a mode.
func written(tb testing.TB, name string, rows, samples, loops int, margin float64, passes func(mode string, row, sample int) bool) *storage.Job {
	tb.Helper()
	spec := fmt.Sprintf(`{"k": 4, "modes": ["ars", "sps"], "samples": %d, "seed": 3, "margin": %v, "sampling": {"temperature": 0.8}, "dataset": {"sha256": "d"}}`, samples, margin)
	job, err := storage.CreateJob(tb.TempDir(), name, []byte(spec))
	if err != nil {
		tb.Fatal(err)
	}
	const perShard = 8
	for _, mode := range []string{"ars", "sps"} {
		var scores []storage.Score
		for from := 0; from < rows; from += perShard {
			w, err := job.NewShardWriter(mode, from/perShard)
			if err != nil {
				tb.Fatal(err)
			}
			for row := from; row < min(rows, from+perShard); row++ {
				for sample := range samples {
					c, ls := decoded(mode, row, sample, loops)
					if err := w.AddCompletion(c); err != nil {
						tb.Fatal(err)
					}
					for _, l := range ls {
						if err := w.AddLoop(l); err != nil {
							tb.Fatal(err)
						}
					}
					s := storage.Score{Job: name, Row: int64(row), RowID: c.RowID, Sample: int32(sample), Metric: "pass", Reason: "failed"}
					if passes(mode, row, sample) {
						s.Score, s.Reason = 1, "passed"
					}
					scores = append(scores, s)
				}
			}
			if _, err := w.Commit(tb.Context()); err != nil {
				tb.Fatal(err)
			}
		}
		if err := job.WriteScores(mode, scores); err != nil {
			tb.Fatal(err)
		}
	}
	if err := job.WritePlan((rows+perShard-1)/perShard, int64(rows), []string{"ars", "sps"}); err != nil {
		tb.Fatal(err)
	}
	if _, err := job.Finalize(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return job
}

// decoded is a completion whose loops accept 0 to 4 drafted tokens in turn;
// in ars there are three times as many loops of one token.
func decoded(mode string, row, sample, loops int) (storage.Completion, []storage.Loop) {
	c := storage.Completion{Job: "j", Row: int64(row), RowID: fmt.Sprint("row/", row), Sample: int32(sample), Completion: "text", FinishReason: storage.FinishEOS, PromptTokens: int32(20 + row%40), Worker: "w"}
	var ls []storage.Loop
	if mode == "ars" {
		loops *= 3
	}
	for n := range loops {
		l := storage.Loop{Row: c.Row, RowID: c.RowID, Sample: c.Sample, Loop: int32(n), Position: int32(n), Lanes: 1, Kind: storage.KindBonus, Token: int32(n % 50), Emitted: 1, ScoreNS: 1e6, SampleNS: 1e4}
		if mode == "sps" {
			accepted := int32(n % 5)
			l.K, l.Drafted, l.P, l.Q = 4, []int32{1, 2, 3, 4}, []float64{.5, .5, .5, .5}, []float64{.4, .4, .4, .4}
			l.Coins, l.Overlap = []float64{.1, .1, .1, .1}[:min(4, accepted+1)], []float64{.9, .8, .9, .8}
			l.Accepted, l.Emitted, l.DraftNS = accepted, accepted+1, 4e5
			if accepted < 4 {
				l.Kind = storage.KindRecovered
			}
			c.Drafted += 4
			c.Accepted += accepted
		}
		for range l.Emitted {
			c.Tokens = append(c.Tokens, int32(n%50))
		}
		c.Loops++
		c.DecodeNS += l.DraftNS + l.ScoreNS + l.SampleNS
		c.DraftNS += l.DraftNS
		c.ScoreNS += l.ScoreNS
		c.SampleNS += l.SampleNS
		ls = append(ls, l)
	}
	c.CompletionTokens = int32(len(c.Tokens))
	c.TotalNS, c.LatencyNS = c.DecodeNS, c.DecodeNS
	return c, ls
}

// drawn passes with a chance of each row's own, lifted in sps.
func drawn(lift float64) func(mode string, row, sample int) bool {
	rng := rand.New(rand.NewPCG(1, 2))
	return func(mode string, row, _ int) bool {
		p := float64(row%10) / 10
		if mode == "sps" {
			p = max(0, min(1, p+lift))
		}
		return rng.Float64() < p
	}
}

// TestFindings: a planted bias is told from none at the same size, and what is
// too small to be seen is not called equal.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		name          string
		rows, samples int
		lift, margin  float64
		finding       string
		words         []string
	}{
		{"planted bias", 164, 10, -0.15, 0.05, Differs, []string{"They differ (p ="}},
		{"no bias, many samples", 164, 20, 0, 0.05, Equivalent, []string{"Equivalent within the margin of 5.0 points (TOST p ="}},
		{"no bias, few samples", 20, 1, 0, 0.05, NotShown, []string{"No difference was shown, which does not make them the same", "equivalence within 5.0 points is not shown either", "takes about"}},
		{"no margin", 164, 5, 0, 0, NotShown, []string{"would show one of"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := written(t, "j", c.rows, c.samples, 1, c.margin, drawn(c.lift))
			got, err := Compare([]*storage.Job{job}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			q := got.Quality[0]
			if q.Finding != c.finding || q.Metric != "pass@1" || !q.MarginFixed {
				t.Errorf("%+v", q)
			}
			for _, w := range c.words {
				if !strings.Contains(q.Verdict, w) {
					t.Errorf("%q lacks %q", q.Verdict, w)
				}
			}
			if q.Finding == NotShown && (strings.Contains(q.Verdict, "equal") || strings.Contains(q.Verdict, "Equivalent")) {
				t.Errorf("says more than was shown: %s", q.Verdict)
			}
			if (q.McNemar != nil) != (c.samples == 1) {
				t.Errorf("%d samples a row, McNemar %v", c.samples, q.McNemar)
			}
		})
	}
}

// TestMarginGivenLater is marked as what it is.
func TestMarginGivenLater(t *testing.T) {
	job := written(t, "j", 40, 2, 1, 0.05, drawn(0))
	c, err := Compare([]*storage.Job{job}, Options{Margin: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if q := c.Quality[0]; q.MarginFixed || !strings.Contains(q.Verdict, "exploration") {
		t.Errorf("%+v", q)
	}
}

// TestSeveralJobs: all series are compared with the first, in every form.
func TestSeveralJobs(t *testing.T) {
	jobs := []*storage.Job{written(t, "one", 30, 2, 4, 0, drawn(0)), written(t, "two", 30, 2, 4, 0, drawn(0))}
	c, err := Compare(jobs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Series) != 4 || c.Series[3].Name != "two SpS" || len(c.Quality) != 3 {
		t.Fatalf("%d series, %d comparisons", len(c.Series), len(c.Quality))
	}
	// An ars token takes 1.01 ms; an sps loop takes 1.41 ms and brings 1 to 4
	// tokens in turn, 10 in 4 loops.
	if got, want := *c.Series[1].Speedup, 1.01/(4*1.41/10); got < want-1e-9 || got > want+1e-9 {
		t.Errorf("speed-up %v, want %v", got, want)
	}
	if got := *c.Series[1].MeanOfRatios; got < 1.79 || got > 1.8 {
		t.Errorf("mean of ratios %v", got)
	}
	for _, form := range []string{"md", "csv", "latex"} {
		var b strings.Builder
		if err := c.Export(&b, form); err != nil {
			t.Fatal(err)
		}
		if form == "csv" {
			lines, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
			if err != nil || len(lines) != 5 {
				t.Errorf("%d lines, %v", len(lines), err)
			}
		}
		for _, name := range []string{"one ArS", "two SpS"} {
			if !strings.Contains(b.String(), name) {
				t.Errorf("%s lacks %s", form, name)
			}
		}
	}
	if err := c.Export(&strings.Builder{}, "xml"); err == nil {
		t.Error("xml was written")
	}
}

// TestPage: one file without anything from elsewhere, with every token by its
// origin; hostile texts stay texts.
func TestPage(t *testing.T) {
	job := written(t, "j", 30, 2, 6, 0.05, drawn(0))
	hostile := `</script><script>alert("x")</script><img src=x onerror=alert(1)>`
	c, err := Compare([]*storage.Job{job}, Options{
		Samples: 10, Rows: 30, Prompts: map[int64]string{0: hostile},
		Token: func(id int32) string { return []string{"a", " b", "7", "\n", "+", ""}[id%6] },
		Texts: func(ids []int32) []string {
			texts := make([]string, len(ids))
			for i := range ids {
				texts[i] = hostile
			}
			return texts
		},
		Column: "parity", Values: map[int64]string{0: "even", 1: "odd"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Samples) != 10 {
		t.Fatalf("%d samples", len(c.Samples))
	}
	// Loops accept 0, 1, 2, 3, 4 and 0 tokens, each with one more behind them.
	if got, want := c.Samples[0].Sides["SpS"].Kinds, "r"+"ar"+"aar"+"aaar"+"aaaab"+"r"; got != want {
		t.Errorf("kinds %s, want %s", got, want)
	}
	var names []string
	for _, g := range c.Series[1].Acceptance {
		names = append(names, g.By)
		var n int64
		for _, one := range g.Groups {
			n += one.Examined
		}
		if a := c.Series[1].mode.Accounting; n != a.Examined {
			t.Errorf("by %s: %d examined, of %d", g.By, n, a.Examined)
		}
	}
	if fmt.Sprint(names) != "[token class prompt length parity]" {
		t.Errorf("groupings %v", names)
	}
	if c.Certificate, err = Certify([]*storage.Job{job}, false); err != nil || c.Certificate.State() != NotChecked {
		t.Fatalf("%+v, %v", c.Certificate, err)
	}
	var b strings.Builder
	if err := (&Page{Title: hostile, Comparison: c}).WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, foreign := range []string{"http://", "https://", "<link rel=\"stylesheet\"", "<img src=x", `alert("x")`} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %s", foreign)
		}
	}
	if n := strings.Count(page, "</script>"); n != 2 {
		t.Errorf("%d scripts end", n)
	}
	for _, wanted := range []string{"95% interval", "<svg", "prefers-color-scheme: dark", "@media print", "Rule rejection is lossless", "run submit verify", "x as fast as ArS", "Shown: the first sample of 10 of 30 rows"} {
		if !strings.Contains(page, wanted) {
			t.Errorf("the page lacks %q", wanted)
		}
	}
}

// BenchmarkReport reads 16,400 samples and more than a million loops of both
// modes back and writes the page, as submit report does: seconds, the most memory
// that the process held meanwhile, the size of the page.
func BenchmarkReport(b *testing.B) {
	job := written(b, "large", 164, 50, 32, 0.05, drawn(0))
	path := b.TempDir() + "/report.html"
	for b.Loop() {
		debug.FreeOSMemory() // of what the job was made with
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
			b.Skip("the peak of memory cannot be reset here: ", err)
		}
		began := time.Now()
		c, err := Compare([]*storage.Job{job}, Options{
			Samples: 164, Rows: 164,
			Token: func(int32) string { return " word" },
			Texts: func(ids []int32) []string {
				texts := make([]string, len(ids))
				for i := range texts {
					texts[i] = " word"
				}
				return texts
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join((&Page{Title: "large", Comparison: c}).WriteHTML(f), f.Close()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s")
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(c.Series[0].mode.Loops+c.Series[1].mode.Loops), "loops")
		b.ReportMetric(float64(c.Series[0].mode.Samples+c.Series[1].mode.Samples), "samples")
		b.ReportMetric(float64(info.Size())/1e6, "MB-page")
		b.ReportMetric(peakMB(b), "MB-memory")
	}
}

// peakMB is the most memory that the process has held since its peak was reset.
func peakMB(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kb float64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		b.Fatal(err)
	}
	return kb * 1024 / 1e6
}

// TestPageStaysSmall: however many rows and tokens a page is to show.
func TestPageStaysSmall(t *testing.T) {
	job := written(t, "j", 40, 1, 300, 0, drawn(0))
	c, err := Compare([]*storage.Job{job}, Options{Samples: 40, Rows: 40, Texts: func(ids []int32) []string {
		texts := make([]string, len(ids))
		for i := range texts {
			texts[i] = strings.Repeat("long ", 100)
		}
		return texts
	}})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := (&Page{Title: "long", Comparison: c}).WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	if n := len(c.Samples); b.Len() > 20e6 || n == 0 || n == 40 || !strings.Contains(b.String(), fmt.Sprintf("the first sample of %d of 40 rows", n)) {
		t.Errorf("%d bytes with %d of 40 rows", b.Len(), n)
	}
}
