package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline/report"
	"github.com/draftmill/draftmill/spec/theory"
)

// maxPlannedK bounds --k-max; configurations take no larger lookahead.
const maxPlannedK = 64

// planFlags are what submit plan is asked.
type planFlags struct {
	alpha, c, cHat float64
	kMax           int
	score          []float64
	json           bool
	svg, plot      string
}

// planCommand prints what theory predicts.
func planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan --alpha A --c C [flags]",
		Short: "predict speed-up and work from acceptance and cost",
		Long: `plan prints what Leviathan et al. 2022 predict of speculative sampling from alpha,
the chance that a drafted token is accepted, and c, the time of drafting one token
over the target's time for one: for every lookahead the tokens per loop, the
speed-up, the growth of arithmetic operations and the reduction of reads of the
target's weights, and which lookahead is best.

The paper takes the target to score K+1 tokens in the time of one. Where it does
not, --score names its times for 1, 2, .. tokens, in any unit.`,
		Example: `  submit plan --alpha 0.8 --c 0.05
  submit plan --alpha 0.8 --c 0.02 --score 5.9,7.4,8.8,10.3,11.7
  submit plan --alpha 0.7 --c 0.1 --c-hat 0.02 --k-max 16 --svg speedup.svg
  submit plan --alpha 0.75 --c 0.02 --plot plan.html`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"alpha", "c"} {
				if !cmd.Flags().Changed(name) {
					return configs.Usagef("--%s is missing; see %s --help", name, cmd.CommandPath())
				}
			}
			if !cmd.Flags().Changed("c-hat") {
				f.cHat = f.c
			}
			p, err := f.plan(cmd.Flags().Changed("k-max"))
			if err != nil {
				return err
			}
			if f.plot != "" {
				if err := saveChart(f.plot, p.pictures.WriteHTML); err != nil {
					return err
				}
			}
			if f.svg != "" {
				if err := saveChart(f.svg, p.Chart.SVG); err != nil {
					return err
				}
			}
			if f.json {
				return printJSON(cmd.OutOrStdout(), p)
			}
			return p.table(cmd.OutOrStdout())
		},
	}
	cmd.Flags().Float64Var(&f.alpha, "alpha", 0, "acceptance rate `A`: 0 to 1")
	cmd.Flags().Float64Var(&f.c, "c", 0, "cost ratio `C`: time of drafting one token / of one token of the target")
	cmd.Flags().Float64Var(&f.cHat, "c-hat", 0, "the same ratio `H` in arithmetic operations (default: c)")
	cmd.Flags().IntVar(&f.kMax, "k-max", 10, "largest lookahead `N` of the tables: 1 to 64")
	cmd.Flags().Float64SliceVar(&f.score, "score", nil, "the target's `TIMES` for scoring 1, 2, .. tokens (default: all alike)")
	cmd.Flags().BoolVar(&f.json, "json", false, "print tables and curves as JSON")
	cmd.Flags().StringVar(&f.plot, "plot", "", "also write a page of pictures into `FILE`: wall time and operations by lookahead and by alpha, the best lookahead, passes as they follow each other")
	cmd.Flags().StringVar(&f.svg, "svg", "", "also draw the curves into the SVG `FILE`")
	return cmd
}

// plan is what is printed.
type plan struct {
	Alpha    float64      `json:"alpha"`
	C        float64      `json:"c"`
	CHat     float64      `json:"c_hat"`
	Score    []float64    `json:"score,omitempty"` // in units of the first
	Rows     []planRow    `json:"lookaheads"`
	Best     int          `json:"best_k"`
	Speedup  float64      `json:"best_speedup"`
	PaysFrom *float64     `json:"pays_above_alpha"` // null: no acceptance pays
	Oracle   *float64     `json:"oracle_speedup"`   // null: not bounded, or the target's times were given
	Chart    report.Chart `json:"chart"`

	pictures *report.Plots
}

// planRow is one lookahead.
type planRow struct {
	K               int      `json:"k"`
	TokensPerLoop   float64  `json:"tokens_per_loop"`
	Speedup         float64  `json:"speedup"`
	Operations      float64  `json:"operations"`
	MemoryReduction float64  `json:"memory_reduction"`
	BreakEven       *float64 `json:"break_even_alpha"` // null: no acceptance pays
}

// plan checks the flags and computes. The times of the target bound the
// lookahead where kGiven is false.
func (f *planFlags) plan(kGiven bool) (*plan, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	costs := theory.Uniform(f.c, f.kMax)
	if len(f.score) > 0 {
		costs.Score = make([]float64, len(f.score))
		for i, t := range f.score {
			costs.Score[i] = t / f.score[0]
		}
		if costs.MaxK() < f.kMax {
			if kGiven {
				return nil, configs.Usagef("--score: %d times are enough for lookaheads of up to %d, not for --k-max %d", len(f.score), costs.MaxK(), f.kMax)
			}
			f.kMax = costs.MaxK()
		}
		costs.Score = costs.Score[:f.kMax+1]
	}
	p := &plan{Alpha: f.alpha, C: f.c, CHat: f.cHat, Best: costs.OptimalK(f.alpha)}
	p.Speedup = costs.Speedup(f.alpha, p.Best)
	for k := range f.kMax + 1 {
		row := planRow{
			K: k, TokensPerLoop: theory.TokensPerLoop(f.alpha, k), Speedup: costs.Speedup(f.alpha, k),
			Operations: theory.Operations(f.alpha, f.cHat, k), MemoryReduction: theory.MemoryReduction(f.alpha, k),
		}
		if alpha, ok := costs.BreakEven(k); ok {
			row.BreakEven = &alpha
			if p.PaysFrom == nil || alpha < *p.PaysFrom {
				p.PaysFrom = &alpha
			}
		}
		p.Rows = append(p.Rows, row)
	}
	if len(f.score) > 0 {
		p.Score = costs.Score
	} else if o := theory.Oracle(f.alpha, f.c); !math.IsInf(o, 1) {
		p.Oracle = &o
	}
	p.Chart = speedupChart(costs, p.Best)
	p.pictures = p.plots(costs)
	return p, nil
}

func (f *planFlags) check() error {
	switch {
	case !(f.alpha >= 0 && f.alpha <= 1):
		return configs.Usagef("--alpha: %v is not between 0 and 1", f.alpha)
	case !(f.c >= 0) || math.IsInf(f.c, 1):
		return configs.Usagef("--c: %v is not a finite number of at least 0", f.c)
	case !(f.cHat >= 0) || math.IsInf(f.cHat, 1):
		return configs.Usagef("--c-hat: %v is not a finite number of at least 0", f.cHat)
	case f.kMax < 1 || f.kMax > maxPlannedK:
		return configs.Usagef("--k-max: %d is not between 1 and %d", f.kMax, maxPlannedK)
	case len(f.score) == 1:
		return configs.Usagef("--score: one time says nothing of a lookahead; give those for 1, 2, .. tokens")
	}
	for _, t := range f.score {
		if !(t > 0) || math.IsInf(t, 1) {
			return configs.Usagef("--score: %v is not a positive time", t)
		}
	}
	return nil
}

// speedupChart draws the speed-up over alpha for a few lookaheads, the best
// one among them.
func speedupChart(costs theory.Costs, best int) report.Chart {
	chart := report.Chart{Title: "speed-up by alpha", X: "alpha", Y: "speed-up"}
	for _, k := range chartedKs(costs.MaxK(), best) {
		chart.Curves = append(chart.Curves, overAlpha(k, best, func(alpha float64) float64 { return costs.Speedup(alpha, k) }))
	}
	return chart
}

// chartedKs are a few lookaheads up to the largest, the best one first.
func chartedKs(most, best int) []int {
	var ks []int
	if best > 0 {
		ks = append(ks, best)
	}
	for k := 1; k <= most; k *= 2 {
		if k != best {
			ks = append(ks, k)
		}
	}
	return ks
}

// overAlpha is the curve of a lookahead over alpha.
func overAlpha(k, best int, value func(alpha float64) float64) report.Curve {
	curve := report.Curve{Name: fmt.Sprintf("K = %d", k)}
	if k == best {
		curve.Name += " (best)"
	}
	for i := range 61 {
		alpha := float64(i) / 60
		curve.Points = append(curve.Points, [2]float64{alpha, value(alpha)})
	}
	return curve
}

// table prints the plan for people.
func (p *plan) table(w io.Writer) error {
	fmt.Fprintf(w, "alpha %g, c %g, c-hat %g\n\n", p.Alpha, p.C, p.CHat)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "K\tper loop\tspeed-up\toperations\treads\tpays above alpha\t\t")
	for _, r := range p.Rows {
		pays, best := "-", ""
		if r.BreakEven != nil {
			pays = fmt.Sprintf("%.3f", *r.BreakEven)
		}
		if r.K == p.Best {
			best = "best"
		}
		fmt.Fprintf(t, "%d\t%.3f\t%.3fx\t%.3fx\t1/%.3f\t%s\t%s\t\n", r.K, r.TokensPerLoop, r.Speedup, r.Operations, r.MemoryReduction, pays, best)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	fmt.Fprintf(w, "\nper loop: tokens; operations: arithmetic; reads: of the target's weights\n\n%s\n", report.Wrap(p.advice(), report.TextWidth))
	if p.Oracle != nil {
		fmt.Fprintf(w, "No choice of K can gain more than an oracle's %.2fx.\n", *p.Oracle)
	}
	fmt.Fprintln(w)
	return p.Chart.Text(w, 61, 17)
}

// advice is the plan in a sentence or two.
func (p *plan) advice() string {
	switch {
	case p.PaysFrom == nil:
		return "At this cost speculative sampling pays for no acceptance rate: use autoregressive sampling."
	case p.Best == 0:
		return fmt.Sprintf("Speculative sampling does not pay: at this cost it takes an alpha above %.3f.", *p.PaysFrom)
	}
	return fmt.Sprintf("Best lookahead: K = %d, %.2fx as fast as autoregressive sampling. Speculation pays above alpha %.3f.", p.Best, p.Speedup, *p.PaysFrom)
}

func saveChart(path string, draw func(io.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("save the chart: %w", err)
	}
	defer closing(&err, f.Close)
	return draw(f)
}
