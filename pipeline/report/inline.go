package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Size of an inline chart and its margins, in SVG units.
const (
	inlineWidth, inlineHeight = 400, 250
	inlineLeft, inlineTop     = 56, 10
	inlineRight, inlineBottom = 12, 42
)

// inlineColours is how many the page has; more curves begin with the first again.
const inlineColours = 10

// inline draws the chart as SVG for a page: colours and letters are the
// page's, so that they follow its light or dark theme.
func (c *Chart) inline() string {
	var b strings.Builder
	x0, x1, y0, y1 := c.bounds()
	if y0 > 0 && y0 < y1/2 || len(c.Curves) == 0 {
		y0 = 0
	}
	xs, ys := ticks(x0, x1), ticks(y0, y1)
	if c.whole() { // no ticks between whole numbers
		xs = slices.DeleteFunc(xs, func(x float64) bool { return x != math.Trunc(x) })
	}
	x1, y1 = max(x1, xs[len(xs)-1]), max(y1, ys[len(ys)-1])
	px := func(x float64) float64 {
		return inlineLeft + (x-x0)/(x1-x0)*(inlineWidth-inlineLeft-inlineRight)
	}
	py := func(y float64) float64 {
		return inlineHeight - inlineBottom - (y-y0)/(y1-y0)*(inlineHeight-inlineTop-inlineBottom)
	}
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, inlineWidth, inlineHeight, html.EscapeString(c.Title))
	for _, y := range ys {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`,
			inlineLeft, inlineWidth-inlineRight, py(y), py(y), inlineLeft-6, py(y)+4, number(y))
	}
	for _, x := range xs {
		at, anchor := px(x), "middle"
		if at > inlineWidth-2*inlineRight { // its half would leave the image
			at, anchor = inlineWidth, "end"
		}
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%d" text-anchor="%s">%s</text>`, at, inlineHeight-inlineBottom+16, anchor, number(x))
	}
	fmt.Fprintf(&b, `<text class="axis" x="%d" y="%d" text-anchor="middle">%s</text>`, (inlineLeft+inlineWidth-inlineRight)/2, inlineHeight-12, html.EscapeString(c.X))
	fmt.Fprintf(&b, `<text class="axis" transform="translate(13 %d) rotate(-90)" text-anchor="middle">%s</text>`, (inlineTop+inlineHeight-inlineBottom)/2, html.EscapeString(c.Y))
	for i, curve := range c.Curves {
		var path []string
		dots := len(curve.Points) <= 40 && curve.Style != Dashes
		for _, p := range curve.Points {
			if !finite(p) {
				continue
			}
			path = append(path, fmt.Sprintf("%.1f,%.1f", px(p[0]), py(p[1])))
			if dots {
				fmt.Fprintf(&b, `<circle class="c%d" cx="%.1f" cy="%.1f" r="3"><title>%s: %s, %s</title></circle>`, i%inlineColours, px(p[0]), py(p[1]), html.EscapeString(curve.Name), number(p[0]), number(p[1]))
			}
		}
		if len(curve.Errors) == len(curve.Points) {
			for n, p := range curve.Points {
				fmt.Fprintf(&b, `<line class="c%d" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, i%inlineColours, px(p[0]), px(p[0]), py(p[1]-curve.Errors[n]), py(p[1]+curve.Errors[n]))
			}
		}
		if !curve.dots() {
			fmt.Fprintf(&b, `<polyline class="c%d %s" points="%s"/>`, i%inlineColours, curve.style(), strings.Join(path, " "))
		}
	}
	b.WriteString(`</svg>`)
	if len(c.Curves) > 1 { // under the plot, where it hides no point
		b.WriteString(`<div class="keys">`)
		for i, curve := range c.Curves {
			fmt.Fprintf(&b, `<span><i class="k%d %s"></i>%s</span>`, i%inlineColours, curve.style(), html.EscapeString(curve.Name))
		}
		b.WriteString(`</div>`)
	}
	return b.String()
}

// style is the curve's style as the page's style sheet names it.
func (c *Curve) style() string {
	switch {
	case c.dots():
		return Dots
	case c.Style == "":
		return "line"
	}
	return c.Style
}

// whole tells whether all points stand at whole numbers.
func (c *Chart) whole() bool {
	for _, curve := range c.Curves {
		for _, p := range curve.Points {
			if p[0] != math.Trunc(p[0]) {
				return false
			}
		}
	}
	return true
}

// ticks are round numbers that cover a range.
func ticks(lo, hi float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/4)))
	for _, f := range []float64{1, 2, 2.5, 5, 10} {
		if (hi-lo)/(f*step) <= 6 {
			step *= f
			break
		}
	}
	var all []float64
	for i := math.Floor(lo/step + 1e-9); ; i++ {
		t := i * step
		if t >= lo-1e-9*step {
			all = append(all, t)
		}
		if t >= hi-1e-9*step {
			return all
		}
	}
}

func number(v float64) string {
	if math.Abs(v) < 1e-12 {
		return "0"
	}
	return fmt.Sprintf("%.4g", v)
}
