package report

import (
	"fmt"
	"slices"
	"strings"
)

// headlines are the measures that the verdict is about, the first that was scored.
var headlines = []string{"pass@1", "rouge2", "exact"}

// Verdict is the comparison in one sentence: how fast the fastest series is
// beside the first, and whether it is as good.
func (c *Comparison) Verdict() string {
	base := c.Series[0].Name
	best := c.fastest()
	if best == nil {
		return fmt.Sprintf("There is nothing to compare %s with yet.", base)
	}
	text := fmt.Sprintf("%s is %.2fx as fast as %s", best.Name, *best.Speedup, base)
	if len(c.Series) > 2 {
		text = fmt.Sprintf("Fastest of %d: %s, %.2fx as fast as %s", len(c.Series), best.Name, *best.Speedup, base)
	}
	q := c.headline(best.Name)
	switch {
	case q == nil:
		return text + "; nothing is said about quality: submit score has not scored both."
	case q.Finding == Equivalent:
		return fmt.Sprintf("%s, and as good within the margin of %s (%s %s).", text, q.amount(q.Equivalence.Margin), q.Metric, q.signed(q.Difference.Mean))
	case q.Finding == Differs:
		return fmt.Sprintf("%s, and its %s differs by %s, 95%% interval [%s, %s].", text, q.Metric, q.signed(q.Difference.Mean), q.signed(q.Difference.Low), q.signed(q.Difference.High))
	}
	return fmt.Sprintf("%s; whether it is as good is not settled: no difference of %s was shown, and one below %s may be there.", text, q.Metric, q.amount(q.Detectable))
}

// Mood is good where the verdict finds the fastest as good as the first, bad
// where they differ, and empty otherwise.
func (c *Comparison) Mood() string {
	if best := c.fastest(); best != nil {
		if q := c.headline(best.Name); q != nil {
			return map[string]string{Equivalent: "good", Differs: "bad"}[q.Finding]
		}
	}
	return ""
}

// Details are what the verdict rests on, a sentence each.
func (c *Comparison) Details() []string {
	var lines []string
	for _, q := range c.Quality {
		if c.Headline(q) {
			lines = append(lines, q.Verdict)
		}
	}
	for _, s := range c.Summaries {
		if s.TheorySpeedup == nil {
			continue
		}
		line := fmt.Sprintf("Theory expects %.2fx from alpha %.3f, c %.3f and K %d", *s.TheorySpeedup, *s.Alpha, *s.C, s.K)
		if s.CostSpeedup != nil {
			line += fmt.Sprintf(", and %.2fx with what scoring %d tokens takes here", *s.CostSpeedup, s.K+1)
		}
		if len(c.Summaries) > 1 {
			line = "Job " + s.Job + ": " + line
		}
		lines = append(lines, line+".")
	}
	for _, s := range c.Summaries {
		same, what := s.Greedy, "greedy"
		if same == nil {
			same, what = s.Identical, "under this rule"
		}
		if same != nil {
			lines = append(lines, fmt.Sprintf("Job %s: %d of %d completions are the same tokens in both modes (%s).", s.Job, same.Same, same.Same+int64(len(same.Divergences)), what))
		}
	}
	return lines
}

// Subtitle says what the jobs are.
func (c *Comparison) Subtitle() string {
	var parts []string
	for _, s := range c.Summaries {
		k := fmt.Sprintf("K %d", s.K)
		switch {
		case s.Modes["sps"] == nil:
			k = "autoregressive"
		case s.Lookahead != "":
			k += " (" + s.Lookahead + ")"
		}
		parts = append(parts, fmt.Sprintf("job %s, %s, rule %s", s.Job, k, s.Rule))
	}
	if len(parts) > 3 {
		return fmt.Sprintf("%s; and %d more jobs", parts[0], len(parts)-1)
	}
	return strings.Join(parts, " · ")
}

// fastest is the series of the largest speed-up over the first; nil where none
// has one.
func (c *Comparison) fastest() *Series {
	var best *Series
	for i := range c.Series {
		if s := &c.Series[i]; s.Speedup != nil && (best == nil || *s.Speedup > *best.Speedup) {
			best = s
		}
	}
	return best
}

// headline is a series' comparison by the first of headlines that was scored.
func (c *Comparison) headline(series string) *Quality {
	for _, metric := range headlines {
		if i := slices.IndexFunc(c.Quality, func(q Quality) bool { return q.Other == series && q.Metric == metric }); i >= 0 {
			return &c.Quality[i]
		}
	}
	return nil
}

// Ceiling is one of the series' ceilings, or nil where none is known.
func (c *Comparison) Ceiling() *Ceiling {
	for _, s := range c.Series {
		if s.Ceiling != nil {
			return s.Ceiling
		}
	}
	return nil
}

// Headline tells whether the details above the table have this comparison.
func (c *Comparison) Headline(q Quality) bool {
	h := c.headline(q.Other)
	return h != nil && h.Metric == q.Metric
}
