package main

import (
	"fmt"

	"github.com/draftmill/draftmill/pipeline/report"
	"github.com/draftmill/draftmill/spec/theory"
)

// tracedTokens is how many tokens the traces decode.
const tracedTokens = 24

// plots are the pictures of a plan: what it says by lookahead, and Figures 3 to 5 of
// Leviathan et al. 2022 with its alpha, c and c-hat.
func (p *plan) plots(costs theory.Costs) *report.Plots {
	return &report.Plots{
		Title:  fmt.Sprintf("Speculative sampling at alpha %g, c %g", p.Alpha, p.C),
		Text:   p.advice(),
		Charts: []report.Chart{p.workChart(costs), optimalChart(p.C), p.Chart, operationsChart(p.CHat, costs.MaxK(), p.Best)},
		Traces: p.traces(costs),
	}
}

// workChart is wall time and arithmetic operations by lookahead, both over those of
// autoregressive sampling.
func (p *plan) workChart(costs theory.Costs) report.Chart {
	time, work := report.Curve{Name: fmt.Sprintf("wall time, c = %g", p.C)}, report.Curve{Name: fmt.Sprintf("operations, c-hat = %g", p.CHat)}
	for k := range costs.MaxK() + 1 {
		time.Points = append(time.Points, [2]float64{float64(k), 1 / costs.Speedup(p.Alpha, k)})
		work.Points = append(work.Points, [2]float64{float64(k), theory.Operations(p.Alpha, p.CHat, k)})
	}
	return report.Chart{
		Title: fmt.Sprintf("wall time and operations by lookahead, at alpha %g", p.Alpha), X: "lookahead K", Y: "over autoregressive sampling",
		Curves: []report.Curve{time, work},
	}
}

// optimalChart is the best lookahead over alpha for several c (Figure 3), where the
// target scores any number of tokens in the time of one.
func optimalChart(c float64) report.Chart {
	chart := report.Chart{Title: "best lookahead by alpha", X: "alpha", Y: "best K"}
	cs := []float64{c}
	for _, other := range []float64{0.01, 0.02, 0.05, 0.1} {
		if other != c {
			cs = append(cs, other)
		}
	}
	for _, c := range cs {
		curve := report.Curve{Name: fmt.Sprintf("c = %g", c), Style: report.Dashes}
		if len(chart.Curves) == 0 {
			curve.Style = ""
		}
		for i := range 46 {
			alpha := 0.5 + float64(i)/100
			curve.Points = append(curve.Points, [2]float64{alpha, float64(theory.OptimalK(alpha, c, maxPlannedK))})
		}
		chart.Curves = append(chart.Curves, curve)
	}
	return chart
}

// operationsChart is the growth of arithmetic operations over alpha, beside which the
// speed-up is to be seen (Figure 4).
func operationsChart(cHat float64, most, best int) report.Chart {
	chart := report.Chart{Title: fmt.Sprintf("operations by alpha, c-hat %g", cHat), X: "alpha", Y: "operations, growth"}
	for _, k := range chartedKs(most, best) {
		chart.Curves = append(chart.Curves, overAlpha(k, best, func(alpha float64) float64 { return theory.Operations(alpha, cHat, k) }))
	}
	return chart
}

// traces are the passes of the best lookahead, of one half as large, and of
// autoregressive sampling, as long as the same tokens take on average (Figure 5).
func (p *plan) traces(costs theory.Costs) []report.Trace {
	var all []report.Trace
	last := -1
	for _, k := range []int{p.Best, p.Best / 2, 0} {
		if k == last {
			continue
		}
		name := "autoregressive"
		if last = k; k > 0 {
			name = fmt.Sprintf("K = %d", k)
		}
		all = append(all, report.Trace{
			Name: fmt.Sprintf("%s, %d tokens", name, tracedTokens), K: k, Loops: tracedTokens / theory.TokensPerLoop(p.Alpha, k),
			Draft: costs.Draft, Score: costs.Score[k],
		})
	}
	return all
}
