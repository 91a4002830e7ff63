package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/pipeline/eval"
	"github.com/draftmill/draftmill/pipeline/eval/stat"
	"github.com/draftmill/draftmill/storage"
)

// power is the chance of finding a difference at which smallest differences
// and needed rows are stated.
const power = 0.8

// Quality compares one measure of two ways of decoding, paired by row.
// Differences are other minus base.
type Quality struct {
	Base        string            `json:"base"`
	Other       string            `json:"other"`
	Metric      string            `json:"metric"`
	Rows        int               `json:"rows"`
	BaseMean    stat.Interval     `json:"base_mean"`
	OtherMean   stat.Interval     `json:"other_mean"`
	Difference  stat.Interval     `json:"difference"`    // 95%, paired bootstrap over rows
	Permutation float64           `json:"permutation_p"` // that the difference is 0
	McNemar     *McNemar          `json:"mcnemar,omitempty"`
	Equivalence *stat.Equivalence `json:"equivalence,omitempty"` // nil without a margin
	MarginFixed bool              `json:"margin_fixed"`          // in the job, before there were scores
	Detectable  float64           `json:"smallest_difference"`   // that these rows would show with a chance of 80%
	RowsNeeded  int               `json:"rows_needed,omitempty"` // to show one of the size of the margin
	Verdict     string            `json:"verdict"`               // in words
	Finding     string            `json:"finding"`               // Equivalent, Differs or NotShown
}

// Findings of a comparison.
const (
	Equivalent = "equivalent" // differences of the margin or more are refuted
	Differs    = "differs"    // no difference is refuted
	NotShown   = "not shown"  // neither: no statement about equality
)

// McNemar is about rows with one sample that passes or does not.
type McNemar struct {
	OnlyBase  int64   `json:"only_base"` // rows that base alone passed
	OnlyOther int64   `json:"only_other"`
	P         float64 `json:"p"`
}

// scores are those of one mode of one job: by metric and row.
type scores map[string]map[int64][]float64

func (s *Series) readScores(job *storage.Job) error {
	s.scores, s.names = scores{}, map[sampleKey]string{}
	return job.ReadScores(s.Mode, func(v storage.Score) error {
		if s.scores[v.Metric] == nil {
			s.scores[v.Metric] = map[int64][]float64{}
		}
		s.scores[v.Metric][v.Row] = append(s.scores[v.Metric][v.Row], v.Score)
		if v.Reason != "" {
			s.names[sampleKey{v.Row, v.Sample}] = v.Reason
		}
		return nil
	})
}

// shown is the order of metrics.
var shown = []string{"pass", "rouge1", "rouge2", "rougeL", "rougeLsum", "exact", eval.Likelihood}

// compareScores compares what both have scores of, over the rows in both.
func compareScores(base, other string, x, y scores, margin float64, fixed bool, seed uint64) []Quality {
	var all []Quality
	for _, metric := range shown {
		a, b := map[int64][]float64{}, map[int64][]float64{}
		for row, s := range x[metric] {
			if t, both := y[metric][row]; both {
				a[row], b[row] = s, t
			}
		}
		if len(a) < 2 {
			continue
		}
		names := eval.Names(metric, a)
		for _, name := range eval.Names(metric, b) {
			if slices.Contains(names, name) {
				q := compare(name, eval.Means(name, b), eval.Means(name, a), margin, seed)
				q.Base, q.Other, q.MarginFixed = base, other, fixed
				q.conclude()
				all = append(all, q)
			}
		}
	}
	return all
}

// compare takes the means of rows, other first.
func compare(name string, other, base []float64, margin float64, seed uint64) Quality {
	const level = eval.IntervalLevel
	q := Quality{
		Metric: name, Rows: len(base),
		BaseMean:    stat.Bootstrap(base, nil, stat.Draws, seed, level),
		OtherMean:   stat.Bootstrap(other, nil, stat.Draws, seed, level),
		Difference:  stat.Bootstrap(other, base, stat.Draws, seed, level),
		Permutation: stat.Permutation(other, base, stat.Draws, seed),
		Detectable:  stat.MinimalDetectable(other, base, level, power),
	}
	binary := name == "pass@1" || name == "exact"
	m := &McNemar{}
	for i := range base {
		binary = binary && (base[i] == 0 || base[i] == 1) && (other[i] == 0 || other[i] == 1)
		if base[i] > other[i] {
			m.OnlyBase++
		} else if other[i] > base[i] {
			m.OnlyOther++
		}
	}
	if binary {
		m.P = stat.McNemar(m.OnlyBase, m.OnlyOther)
		q.McNemar = m
	}
	if margin > 0 {
		e := stat.TOST(other, base, margin)
		q.Equivalence = &e
		q.RowsNeeded = stat.RowsFor(other, base, margin, level, power)
	}
	return q
}

// conclude puts the finding into words. What was not shown is never called
// equal.
func (q *Quality) conclude() {
	by := func(d float64) string { return q.amount(d) }
	d := q.Difference
	said := fmt.Sprintf("%s of %s minus %s: %s, 95%% interval [%s, %s] over %d rows", q.Metric, q.Other, q.Base, q.signed(d.Mean), q.signed(d.Low), q.signed(d.High), q.Rows)
	differs := q.Permutation < 0.05 && (d.Low > 0 || d.High < 0)
	if q.McNemar != nil {
		differs = q.McNemar.P < 0.05
	}
	within := q.Equivalence != nil && q.Equivalence.Within()
	switch {
	case differs && within:
		q.Finding = Differs
		q.Verdict = fmt.Sprintf("%s. They differ, by less than the margin of %s (TOST p = %s).", said, by(q.Equivalence.Margin), pValue(q.Equivalence.P))
	case differs:
		q.Finding = Differs
		q.Verdict = fmt.Sprintf("%s. They differ (p = %s).", said, pValue(q.p()))
	case within:
		q.Finding = Equivalent
		q.Verdict = fmt.Sprintf("%s. Equivalent within the margin of %s (TOST p = %s).", said, by(q.Equivalence.Margin), pValue(q.Equivalence.P))
	default:
		q.Finding = NotShown
		q.Verdict = said + ". No difference was shown, which does not make them the same: "
		if q.Detectable > 0 {
			q.Verdict += fmt.Sprintf("these rows would show one of %s in 8 of 10 runs", by(q.Detectable))
		} else {
			q.Verdict += "no row differs, and how large a difference would be seen cannot be said"
		}
		if q.Equivalence != nil {
			q.Verdict += fmt.Sprintf("; equivalence within %s is not shown either (TOST p = %s)", by(q.Equivalence.Margin), pValue(q.Equivalence.P))
			if q.RowsNeeded > q.Rows {
				q.Verdict += fmt.Sprintf(", a difference of that size takes about %d rows to see", q.RowsNeeded)
			}
		}
		q.Verdict += "."
	}
	if q.Equivalence != nil && !q.MarginFixed {
		q.Verdict += " The margin was given after the run: this is exploration, not evidence."
	}
}

// p is the test that decides about a difference.
func (q *Quality) p() float64 {
	if q.McNemar != nil {
		return q.McNemar.P
	}
	return q.Permutation
}

// amount is a difference in the measure's unit.
func (q *Quality) amount(d float64) string {
	if q.fraction() {
		return fmt.Sprintf("%.4f", d)
	}
	return fmt.Sprintf("%.1f points", 100*d)
}

func (q *Quality) signed(d float64) string {
	if q.fraction() {
		return fmt.Sprintf("%+.4f", d)
	}
	return fmt.Sprintf("%+.1f", 100*d)
}

func pValue(p float64) string {
	if p < 0.001 {
		return fmt.Sprintf("%.1e", p)
	}
	return fmt.Sprintf("%.3f", p)
}

// fraction reports whether the measure is printed as a number, not in percent.
func (q *Quality) fraction() bool {
	return strings.HasPrefix(q.Metric, "rouge") || q.Metric == eval.Likelihood
}
