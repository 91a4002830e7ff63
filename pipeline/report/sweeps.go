package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// SweepLine is one of several sweeps, of another draft, temperature or rule.
type SweepLine struct {
	Name  string
	Sweep *Sweep
}

// SweepTable writes several sweeps below each other, a line for each speculative
// point: alpha, as in Table 3 of Leviathan et al. 2022 by draft and temperature and
// in Table 5 by lenience, c and the speed-up measured and predicted of both, as in
// Table 4, and the target's passes for a completion, as under their Figure 1.
func SweepTable(w io.Writer, lines []SweepLine) error {
	var b strings.Builder // takes everything: no write to it fails
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "sweep\tK\talpha\tc\tspeed-up\ttheory\ttokens\tpasses")
	for _, l := range lines {
		name := l.Name
		for _, p := range l.Sweep.Points {
			if p.K == 0 {
				continue
			}
			speedup, predicted := "-", "-"
			if p.Speedup != nil {
				speedup, predicted = fmt.Sprintf("%.2fx", *p.Speedup), factorOr(p.Predicted)
			}
			fmt.Fprintf(t, "%s\t%d\t%.3f\t%.3f\t%s\t%s\t%.1f\t%.1f\n", name, p.K, p.Alpha, p.C, speedup, predicted, p.Tokens, p.Passes)
			name = ""
		}
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\n%s\n", Wrap("alpha: chance that a drafted token is accepted (under a lossy rule, as counted). c: time of drafting a token over that of a pass of the target. theory: the speed-up that alpha and c predict. tokens, passes: of a completion, and of the target one after the other for it.", TextWidth))
	_, err := io.WriteString(w, b.String())
	return err
}
