package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"
)

// Export writes the comparison's figures as one table in the form md, csv or
// latex: a line for each series.
func (c *Comparison) Export(w io.Writer, form string) error {
	head := []string{"series", "completions", "tokens", "mean token time (ms)", "over sequences (ms)", "deviation (ms)", "tokens per loop", "acceptance", "alpha", "speed-up", "theory"}
	var metrics []string
	for _, q := range c.Quality {
		if q.Other == c.Quality[0].Other {
			metrics = append(metrics, q.Metric)
			head = append(head, q.Metric, q.Metric+" low", q.Metric+" high")
		}
	}
	lines := [][]string{}
	for i, s := range c.Series {
		m := s.mode
		optional := func(v *float64) string {
			if v == nil {
				return ""
			}
			return fmt.Sprintf("%.3f", *v)
		}
		line := []string{s.Name, fmt.Sprint(m.Samples), fmt.Sprint(m.CompletionTokens), fmt.Sprintf("%.3f", m.MeanTokenMS), "", "", fmt.Sprintf("%.3f", m.TokensPerLoop), "", "", optional(s.Speedup), optional(s.Theory)}
		if s.Timing != nil {
			line[4], line[5] = fmt.Sprintf("%.3f", s.Timing.TokenMS), fmt.Sprintf("%.3f", s.Timing.TokenMSDev)
		}
		if m.Drafted > 0 {
			line[7], line[8] = fmt.Sprintf("%.4f", m.AcceptanceRate), fmt.Sprintf("%.4f", m.Alpha)
		}
		for _, metric := range metrics {
			cells := []string{"", "", ""}
			for _, q := range c.Quality {
				v := q.OtherMean
				if i == 0 {
					v = q.BaseMean
				}
				if q.Metric == metric && (i == 0 && q.Other == c.Quality[0].Other || q.Other == s.Name) {
					cells = []string{fmt.Sprintf("%.4f", v.Mean), fmt.Sprintf("%.4f", v.Low), fmt.Sprintf("%.4f", v.High)}
				}
			}
			line = append(line, cells...)
		}
		lines = append(lines, line)
	}
	var b strings.Builder
	switch form {
	case "md":
		row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
		row(head)
		row(append([]string{"---"}, strings.Split(strings.Repeat("---:,", len(head)-2)+"---:", ",")...))
		for _, l := range lines {
			row(l)
		}
	case "csv":
		out := csv.NewWriter(&b)
		_ = out.WriteAll(append([][]string{head}, lines...)) // takes everything
	case "latex":
		escape := strings.NewReplacer(`\`, `\textbackslash{}`, "_", `\_`, "%", `\%`, "&", `\&`, "#", `\#`, "$", `\$`)
		row := func(cells []string) {
			for i, c := range cells {
				cells[i] = escape.Replace(c)
			}
			fmt.Fprintf(&b, "%s \\\\\n", strings.Join(cells, " & "))
		}
		fmt.Fprintf(&b, "\\begin{tabular}{l%s}\n\\hline\n", strings.Repeat("r", len(head)-1))
		row(head)
		b.WriteString("\\hline\n")
		for _, l := range lines {
			row(l)
		}
		b.WriteString("\\hline\n\\end{tabular}\n")
	default:
		return fmt.Errorf("no table as %q: want md, csv or latex", form)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
