package report

import (
	"slices"
)

// Charts are the plots of a comparison.
func (c *Comparison) Charts() []Chart {
	var all []Chart
	add := func(chart Chart) {
		for _, curve := range chart.Curves {
			if len(curve.Points) > 0 {
				all = append(all, chart)
				return
			}
		}
	}
	times := Chart{Title: "time of a sequence", X: "seconds, prefill included", Y: "share that took no longer"}
	positions := Chart{Title: "acceptance by position in the draft", X: "position in the draft", Y: "accepted / examined"}
	lengths := Chart{Title: "accepted tokens of a loop", X: "accepted tokens", Y: "share of loops"}
	tokens := Chart{Title: "tokens per loop", X: "lookahead capped at K", Y: "tokens per loop"}
	speed := Chart{Title: "speed-up by lookahead", X: "lookahead capped at K", Y: "speed-up over ArS"}
	measured := Curve{Name: "measured", Style: Dots}
	for _, s := range c.Series {
		var seconds []float64
		for _, t := range s.mode.times {
			if !t.failed {
				seconds = append(seconds, t.seconds)
			}
		}
		slices.Sort(seconds)
		curve := Curve{Name: s.Name}
		const steps = 100
		for i := range min(steps, len(seconds)) {
			at := (i + 1) * len(seconds) / min(steps, len(seconds))
			curve.Points = append(curve.Points, [2]float64{seconds[at-1], float64(at) / float64(len(seconds))})
		}
		times.Curves = append(times.Curves, curve)
		a := s.mode.Accounting
		if s.mode.Drafted == 0 {
			continue
		}
		position, length := Curve{Name: s.Name}, Curve{Name: s.Name}
		for _, p := range a.Positions {
			if p.Examined > 0 {
				position.Points = append(position.Points, [2]float64{float64(p.T), p.Conditional})
			}
		}
		for n, loops := range a.Lengths {
			length.Points = append(length.Points, [2]float64{float64(n), ratio(float64(loops), a.Loops)})
		}
		positions.Curves, lengths.Curves = append(positions.Curves, position), append(lengths.Curves, length)
		yields, predicted := Curve{Name: s.Name}, Curve{Name: "predicted from the log of " + s.Name, Style: Dashes}
		for _, p := range a.Smaller {
			yields.Points = append(yields.Points, [2]float64{float64(p.K), p.TokensPerLoop})
			if p.Speedup != nil {
				predicted.Points = append(predicted.Points, [2]float64{float64(p.K), *p.Speedup})
			}
		}
		tokens.Curves = append(tokens.Curves, yields)
		if len(predicted.Points) > 0 {
			speed.Curves = append(speed.Curves, predicted)
		}
		if s.Speedup != nil && s.summary.K > 0 {
			measured.Points = append(measured.Points, [2]float64{float64(s.summary.K), *s.Speedup})
		}
	}
	if len(measured.Points) > 0 {
		speed.Curves = append(speed.Curves, measured)
	}
	for _, chart := range []Chart{positions, lengths, tokens, speed, times} {
		add(chart)
	}
	return all
}
