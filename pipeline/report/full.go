package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Full writes the accounting of the SpS mode for people, every denominator
// beside the others, and what smaller lookaheads would have yielded. It writes
// nothing for a job without that mode.
func (s *Summary) Full(w io.Writer) error {
	m := s.Modes["sps"]
	if m == nil || m.Accounting.Loops == 0 {
		return nil
	}
	a := m.Accounting
	var b strings.Builder // takes everything: no write to it fails
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "SpS, by denominator\tover all\tmean of sequences\t\n")
	for _, l := range []struct {
		name      string
		all, mean string
	}{
		{"accepted / drafted", percent(a.AcceptedPerDrafted), percent(a.PerSequence.AcceptedPerDrafted)},
		{"accepted / examined", percent(a.AcceptedPerExamined), percent(a.PerSequence.AcceptedPerExamined)},
		{"alpha, mean of sum min(p, q)", fmt.Sprintf("%.4f", a.Alpha.Mean), fmt.Sprintf("%.4f", a.PerSequence.Alpha)},
		{"its standard error", fmt.Sprintf("%.4f", a.Alpha.SE), ""},
		{"the same, clustered by sequence", fmt.Sprintf("%.4f", a.Alpha.ClusteredSE), ""},
		{"alpha, as a count", fmt.Sprintf("%.4f", a.AlphaCount.Mean), fmt.Sprintf("%.4f", a.PerSequence.AcceptedPerExamined)},
		{"its standard error", fmt.Sprintf("%.4f", a.AlphaCount.SE), ""},
		{"the same, clustered by sequence", fmt.Sprintf("%.4f", a.AlphaCount.ClusteredSE), ""},
		{"tokens per loop", fmt.Sprintf("%.3f", a.TokensPerLoop), fmt.Sprintf("%.3f", a.PerSequence.TokensPerLoop)},
		{"without bonus tokens", fmt.Sprintf("%.3f", a.WithoutBonus), ""},
		{"block efficiency", fmt.Sprintf("%.3f", a.BlockEfficiency), ""},
		{"token time", fmt.Sprintf("%.3f ms", m.MeanTokenMS), fmt.Sprintf("%.3f ms", a.PerSequence.TokenMS)},
	} {
		fmt.Fprintf(t, "%s\t%s\t%s\t\n", l.name, l.all, l.mean)
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\n%s\n", Wrap(fmt.Sprintf("%d drafted, %d examined, %d accepted in %d loops of %d sequences.", a.Drafted, a.Examined, a.Accepted, a.Loops, a.PerSequence.Sequences), TextWidth))
	fmt.Fprintf(&b, "%s\n\n", Wrap(fmt.Sprintf("%d tokens are %d accepted, %d recovered and %d bonus; %d more were decided behind the end of a completion.",
		a.KeptAccepted+a.Recovered+a.Bonus, a.KeptAccepted, a.Recovered, a.Bonus, a.Dropped), TextWidth))

	fmt.Fprintf(t, "position\tdrafted\texamined\taccepted\tof examined\tof drafted\t\n")
	for _, p := range a.Positions {
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%s\t%s\t\n", p.T, p.Drafted, p.Examined, p.Accepted, percent(p.Conditional), percent(p.Unconditional))
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\n")
	fmt.Fprintf(t, "accepted in a loop\tloops\t\t\n")
	for n, loops := range a.Lengths {
		fmt.Fprintf(t, "%d\t%d\t%s\t\n", n, loops, percent(ratio(float64(loops), a.Loops)))
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\nWhat this log says of a lookahead capped at K\n")
	fmt.Fprintf(t, "K\ttokens per loop\tpredicted speed-up\tcost of scoring\t\n")
	for _, p := range a.Smaller {
		speedup, cost := "-", "interpolated"
		if p.Speedup != nil {
			speedup = fmt.Sprintf("%.3fx", *p.Speedup)
		}
		if p.Measured {
			cost = "measured"
		}
		fmt.Fprintf(t, "%d\t%.3f\t%s\t%s\t\n", p.K, p.TokensPerLoop, speedup, cost)
	}
	_ = t.Flush()
	_, err := io.WriteString(w, b.String())
	return err
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }
