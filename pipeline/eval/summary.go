package eval

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/draftmill/draftmill/pipeline/eval/passk"
	"github.com/draftmill/draftmill/pipeline/eval/sandbox"
	"github.com/draftmill/draftmill/pipeline/eval/stat"
	"github.com/draftmill/draftmill/storage"
)

// summarize sums up the scores of a mode, which are ordered by row.
func summarize(scores []storage.Score, seed uint64) *Mode {
	m := &Mode{Metrics: map[string]Value{}}
	byMetric := map[string]map[int64][]float64{} // scores by metric and row
	seen := map[[2]int64]bool{}
	rows := map[int64]bool{}
	for _, s := range scores {
		if byMetric[s.Metric] == nil {
			byMetric[s.Metric] = map[int64][]float64{}
		}
		byMetric[s.Metric][s.Row] = append(byMetric[s.Metric][s.Row], s.Score)
		seen[[2]int64{s.Row, int64(s.Sample)}], rows[s.Row] = true, true
		if s.Reason != "" {
			if m.Reasons == nil {
				m.Reasons = map[string]int{}
			}
			m.Reasons[s.Reason]++
		}
	}
	m.Rows, m.Samples = len(rows), len(seen)
	for metric, rows := range byMetric {
		for _, name := range Names(metric, rows) {
			means := Means(name, rows)
			v := Value{Interval: stat.Bootstrap(means, nil, stat.Draws, seed, IntervalLevel), Rows: len(means)}
			if name == "pass@1" && m.Samples == m.Rows {
				e := stat.ClopperPearson(int64(m.Reasons[sandbox.Passed]), int64(m.Rows), IntervalLevel)
				v.Exact = &[2]float64{e.Low, e.High}
			}
			m.Metrics[name] = v
		}
	}
	return m
}

// Names are the measures that the scores of a metric allow: of "pass" those
// pass@k, for which every row has samples enough; of others the metric itself.
func Names(metric string, rows map[int64][]float64) []string {
	if metric != "pass" {
		return []string{metric}
	}
	n := 0
	for _, s := range rows {
		if n == 0 || len(s) < n {
			n = len(s)
		}
	}
	var names []string
	for _, k := range passk.Ks(n) {
		names = append(names, fmt.Sprintf("pass@%d", k))
	}
	return names
}

// Means are a measure of every row, by ascending row.
func Means(name string, rows map[int64][]float64) []float64 {
	order := make([]int64, 0, len(rows))
	for row := range rows {
		order = append(order, row)
	}
	slices.Sort(order)
	means := make([]float64, len(order))
	for i, row := range order {
		means[i] = OfRow(name, rows[row])
	}
	return means
}

// OfRow is a measure of one row's samples.
func OfRow(name string, scores []float64) float64 {
	var sum float64
	for _, s := range scores {
		sum += s
	}
	var k int
	if n, _ := fmt.Sscanf(name, "pass@%d", &k); n == 1 {
		return passk.Estimate(len(scores), int(sum), k)
	}
	return sum / float64(len(scores))
}

// measures is the order of a summary's lines.
var measures = []string{"pass@1", "pass@10", "pass@100", "rouge1", "rouge2", "rougeL", "rougeLsum", "exact", Likelihood}

// reasons is the order of what became of programs.
var reasons = []string{sandbox.Passed, sandbox.Failed, sandbox.Error, sandbox.Timeout, sandbox.Memory, sandbox.Crashed, "none"}

// Table writes the summary for people.
func (s *Summary) Table(w io.Writer) error {
	var b strings.Builder // takes everything: no write to it fails
	fmt.Fprintf(&b, "job %s, %d rows, %s", s.Job, s.Rows, s.Kind)
	if !s.Complete {
		b.WriteString(" (not complete: only what is committed was scored)")
	}
	b.WriteString("\n")
	if s.Canonical != nil {
		fmt.Fprintf(&b, "canonical solutions: %d of %d pass, %.1f s (%s)\n", s.Canonical.Passed, s.Canonical.Of, s.Canonical.Seconds, s.Sandbox)
	}
	if s.Reference != "" {
		stemmer := ""
		if s.Stem {
			stemmer = ", with the stemmer"
		}
		fmt.Fprintf(&b, "compared with the column %s%s\n", s.Reference, stemmer)
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	var modes []*Mode
	fmt.Fprint(t, "\t")
	for _, name := range []string{"ars", "sps", GivenMode} {
		if m := s.Modes[name]; m != nil {
			modes = append(modes, m)
			fmt.Fprintf(t, "%s\t", map[string]string{"ars": "ArS", "sps": "SpS", GivenMode: GivenMode}[name])
		}
	}
	fmt.Fprintln(t)
	line := func(name string, value func(*Mode) string) {
		if !slices.ContainsFunc(modes, func(m *Mode) bool { return value(m) != "" }) {
			return
		}
		fmt.Fprintf(t, "%s\t", name)
		for _, m := range modes {
			fmt.Fprintf(t, "%s\t", value(m))
		}
		fmt.Fprintln(t)
	}
	line("samples", func(m *Mode) string { return fmt.Sprint(m.Samples) })
	for _, reason := range reasons {
		line(reason, func(m *Mode) string {
			if m.Reasons[reason] == 0 {
				return ""
			}
			return fmt.Sprintf("%d (%.1f%%)", m.Reasons[reason], 100*float64(m.Reasons[reason])/float64(m.Samples))
		})
	}
	for _, name := range measures {
		line(name, func(m *Mode) string {
			v, ok := m.Metrics[name]
			if !ok {
				return ""
			}
			return v.Text(name)
		})
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\nIn brackets: %.0f%% intervals, by resampling rows.\n", 100*IntervalLevel)
	_, err := io.WriteString(w, b.String())
	return err
}

// Text is the value of a measure for people: pass rates in percent.
func (v Value) Text(measure string) string {
	if strings.HasPrefix(measure, "rouge") || measure == Likelihood {
		return fmt.Sprintf("%.4f [%.4f, %.4f]", v.Mean, v.Low, v.High)
	}
	return fmt.Sprintf("%.1f%% [%.1f, %.1f]", 100*v.Mean, 100*v.Low, 100*v.High)
}
