package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/draftmill/draftmill/pipeline/eval"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// titles of the modes, in the order of their columns.
var titles = []struct{ mode, title string }{{"ars", "ArS"}, {"sps", "SpS"}, {eval.GivenMode, eval.GivenMode}}

// line is one row of the table: the same figure of every mode.
type line struct {
	name  string
	value func(*Mode) string
}

// Table writes the comparison for people.
func (s *Summary) Table(w io.Writer) error {
	if m := s.Modes[eval.GivenMode]; m != nil { // no times, no loops
		_, err := fmt.Fprintf(w, "%d completions of another system\n", m.Samples)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\t")
	var modes []*Mode
	for _, c := range titles {
		if m := s.Modes[c.mode]; m != nil {
			fmt.Fprintf(t, "%s\t", c.title)
			modes = append(modes, m)
		}
	}
	fmt.Fprintln(t)
	lines := []line{{"completions", func(m *Mode) string { return fmt.Sprint(m.Samples) }}}
	for _, reason := range []string{storage.FinishEOS, storage.FinishStop, storage.FinishLength, storage.FinishError} {
		if slices.ContainsFunc(modes, func(m *Mode) bool { return m.Finish[reason] > 0 }) {
			lines = append(lines, line{"ended by " + reason, func(m *Mode) string { return fmt.Sprint(m.Finish[reason]) }})
		}
	}
	for _, l := range append(lines, []line{
		{"tokens", func(m *Mode) string { return fmt.Sprint(m.CompletionTokens) }},
		{"mean token time", func(m *Mode) string { return fmt.Sprintf("%.3f ms", m.MeanTokenMS) }},
		{"tokens/s per worker", func(m *Mode) string { return fmt.Sprintf("%.0f", m.TokensPerSecond) }},
		{"sequences per pass", func(m *Mode) string { return fmt.Sprintf("%.1f", m.Lanes) }},
		{"tokens per loop", func(m *Mode) string { return fmt.Sprintf("%.2f", m.TokensPerLoop) }},
		{"accepted / drafted", func(m *Mode) string {
			return drafted(m, fmt.Sprintf("%d / %d (%.1f%%)", m.Accepted, m.Drafted, 100*m.AcceptanceRate))
		}},
		{"alpha", func(m *Mode) string { return drafted(m, fmt.Sprintf("%.3f ± %.3f", m.Alpha, m.AlphaSE)) }},
		{"draft, per token", func(m *Mode) string { return drafted(m, fmt.Sprintf("%.3f ms", m.DraftMS)) }},
		{"score, per loop", func(m *Mode) string { return fmt.Sprintf("%.3f ms", m.ScoreMS) }},
		{"sample, per loop", func(m *Mode) string { return fmt.Sprintf("%.3f ms", m.SampleMS) }},
		{"prefill / decode", func(m *Mode) string { return fmt.Sprintf("%.2f / %.2f s", m.PrefillSeconds, m.DecodeSeconds) }},
	}...) {
		fmt.Fprintf(t, "%s\t", l.name)
		for _, m := range modes {
			fmt.Fprintf(t, "%s\t", l.value(m))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	var b strings.Builder
	if s.Speedup != nil {
		text := fmt.Sprintf("SpS is %.2fx as fast as ArS (mean token time).", *s.Speedup)
		if s.TheorySpeedup != nil {
			text += fmt.Sprintf(" Theory: %.2fx from alpha %.3f, c %.3f, K %d; measured / theory %.2f.", *s.TheorySpeedup, *s.Alpha, *s.C, s.K, *s.OfTheory)
		}
		if s.CostSpeedup != nil {
			text += fmt.Sprintf(" With what scoring %d tokens takes here: %.2fx; measured / that %.2f.", s.K+1, *s.CostSpeedup, *s.OfCost)
		}
		fmt.Fprintf(&b, "\n%s\n", Wrap(text, TextWidth))
	}
	if s.Beams != nil {
		fmt.Fprintf(&b, "%s\n", Wrap(s.beamText(), TextWidth))
	}
	if s.Lossy || s.Rule != spec.Rejection.String() {
		fmt.Fprintf(&b, "%s\n", Wrap(fmt.Sprintf("Rule %s is %s.", s.Rule, s.Bound), TextWidth))
	}
	if g := s.Greedy; g != nil {
		name := "Greedy"
		if s.Beams != nil {
			name = "Beam search"
		}
		fmt.Fprintf(&b, "%s: %d of %d completions are the same tokens in both modes.\n", name, g.Same, g.Same+int64(len(g.Divergences)))
		g.list(&b)
	} else if g := s.Identical; g != nil {
		fmt.Fprintf(&b, "%s\n", Wrap(fmt.Sprintf("Identical in %d of %d rows: ArS and SpS draw the same tokens under this rule.", g.Same, g.Same+int64(len(g.Divergences))), TextWidth))
		g.list(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// beamText says what passes over beams brought.
func (s *Summary) beamText() string {
	text := fmt.Sprintf("Beam search, %d wide", s.Beams.Width)
	ars, sps := s.Modes["ars"], s.Modes["sps"]
	if ars != nil {
		text += fmt.Sprintf(": a step is a pass of the target, which scores %.1f beams", ars.ScoredPerLoop)
	}
	if sps != nil {
		text += fmt.Sprintf("; with drafts of %d steps, %d wide, a pass scores %.1f beams and brings %.2f steps", s.K, s.Beams.DraftWidth, sps.ScoredPerLoop, sps.TokensPerLoop)
	}
	return text + "."
}

// list names the first samples that differ.
func (g *Greedy) list(b *strings.Builder) {
	for _, d := range g.Divergences[:min(len(g.Divergences), 10)] {
		text := fmt.Sprintf("row %d (%s) sample %d differs from token %d on", d.Row, d.RowID, d.Sample, d.Token)
		if d.Margin != nil {
			text += fmt.Sprintf(", where the target's two best are %.2g apart", *d.Margin)
		}
		fmt.Fprintf(b, "  %s\n", strings.ReplaceAll(Wrap(text, TextWidth-4), "\n", "\n    "))
	}
	if more := len(g.Divergences) - 10; more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
}

// drafted shows a figure of drafting, or a dash where nothing was drafted.
func drafted(m *Mode, figure string) string {
	if m.Drafted == 0 {
		return "-"
	}
	return figure
}

// finishes lists how many completions ended for which reason, most first.
func finishes(m *Mode) string {
	reasons := make([]string, 0, len(m.Finish))
	for r := range m.Finish {
		reasons = append(reasons, r)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		if d := m.Finish[b] - m.Finish[a]; d != 0 {
			return int(d)
		}
		return strings.Compare(a, b)
	})
	for i, r := range reasons {
		reasons[i] = fmt.Sprintf("%s %d", r, m.Finish[r])
	}
	return strings.Join(reasons, ", ")
}
