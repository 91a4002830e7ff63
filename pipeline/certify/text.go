package certify

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Text writes the certificate for people.
func (c *Certificate) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "mode\twhere\tpartition\tn\tchi-square\tdf\tp\ttotal variation\t95% bound\twould be found\t\t")
	for _, x := range c.Tests {
		mark := ""
		if x.Rejected {
			mark = "REJECTED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.1f\t%d\t%.3g\t%.4f\t%.4f\t%.4f\t%s\t\n",
			x.Mode, x.where(), x.Partition, x.N, x.ChiSquare, x.DF, x.P, x.TV, x.TVUpper, x.Detectable, mark)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	lossy := ""
	if c.Lossy {
		lossy = " (LOSSY by definition)"
	}
	_, err := fmt.Fprintf(w, "\n%s: %s.\nrule %s%s, K %d, %d prompts, %d samples each, joint level %g; power %g for the bias in the column \"would be found\".\n",
		strings.ToUpper(c.Verdict), c.Reason, c.Rule, lossy, c.K, c.Prompts, c.Samples, c.Level, c.Power)
	return err
}
