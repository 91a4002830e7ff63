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
	fmt.Fprintln(t, "tokens\tby\tn\tchi²/df\tp\tTV\t95%\tfound\tholds\t")
	for _, x := range c.Tests {
		holds := "yes"
		if x.Rejected {
			holds = "NO"
		}
		fmt.Fprintf(t, "%s %s\t%s\t%d\t%.1f/%d\t%.2g\t%.4f\t%.4f\t%.4f\t%s\t\n",
			x.Mode, strings.TrimSuffix(x.where(), " tokens"), x.Partition, x.N, x.ChiSquare, x.DF, x.P, x.TV, x.TVUpper, x.Detectable, holds)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	if _, err := fmt.Fprintf(w, `
TV: total variation from the target's law, as measured; 95%%: its upper bound;
found: the one that would be found with a chance of %g.

%s: %s.
`, c.Power, strings.ToUpper(c.Verdict), c.Reason); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	if c.Drawn > 0 {
		_, err := fmt.Fprintf(w, "%d completions of another system for %d prompts, joint level %g.\n", c.Drawn, c.Prompts, c.Level)
		return err
	}
	lossy := ""
	if c.Lossy {
		lossy = " (LOSSY by definition)"
	}
	_, err := fmt.Fprintf(w, "rule %s%s, K %d, %d prompts, %d samples each, joint level %g.\n", c.Rule, lossy, c.K, c.Prompts, c.Samples, c.Level)
	return err
}
