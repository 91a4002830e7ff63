package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is curves over one axis. Points that are not finite are left out.
type Chart struct {
	Title  string  `json:"title"`
	X      string  `json:"x"` // what the axes show
	Y      string  `json:"y"`
	Curves []Curve `json:"curves"`
}

// Curve is a line of a chart, or points.
type Curve struct {
	Name   string       `json:"name"`
	Style  string       `json:"style,omitempty"`  // Dots, Dashes, or empty for a line
	Points [][2]float64 `json:"points"`           // x, y
	Errors []float64    `json:"errors,omitempty"` // of y, both ways, as many as points; may be nil
}

// Styles of curves. A curve of one point is dots in any.
const (
	Dots   = "dots"   // what was measured where a line beside it says what was expected
	Dashes = "dashes" // what theory expects
)

// marks tell the curves of a chart apart where there is no colour.
var marks = []rune("●○■□▲△◆◇")

// Text draws the chart in characters, width by height without the axes, and
// lists the curves under it. Where curves meet, the first one's mark is seen.
func (c *Chart) Text(w io.Writer, width, height int) error {
	x0, x1, y0, y1 := c.bounds()
	cells := make([][]rune, height)
	for i := range cells {
		cells[i] = []rune(strings.Repeat(" ", width))
	}
	at := func(v, lo, hi float64, n int) int { return int(math.Round((v - lo) / (hi - lo) * float64(n-1))) }
	for i := len(c.Curves) - 1; i >= 0; i-- {
		for _, p := range c.Curves[i].Points {
			if finite(p) {
				cells[height-1-at(p[1], y0, y1, height)][at(p[0], x0, x1, width)] = marks[i%len(marks)]
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", c.Title)
	for i, row := range cells {
		label := ""
		if i%4 == (height-1)%4 {
			label = fmt.Sprintf("%.2f", y1-(y1-y0)*float64(i)/float64(height-1))
		}
		fmt.Fprintf(&b, "%8s ┤%s\n", label, strings.TrimRight(string(row), " "))
	}
	right := fmt.Sprintf("%.4g", x1)
	fmt.Fprintf(&b, "%8s └%s\n%10s%-*.4g%s  %s\n", "", strings.Repeat("─", width), "", width-len(right), x0, right, c.X)
	for i, curve := range c.Curves {
		fmt.Fprintf(&b, "%10s%c %s\n", "", marks[i%len(marks)], curve.Name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// SVG draws the chart as an SVG image.
func (c *Chart) SVG(w io.Writer) error {
	canvas := vgsvg.New(16*vg.Centimeter, 10*vg.Centimeter)
	return c.draw(canvas, canvas, w)
}

// PNG draws the chart as a PNG image.
func (c *Chart) PNG(w io.Writer) error {
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(16*vg.Centimeter, 10*vg.Centimeter), vgimg.UseDPI(150))}
	return c.draw(canvas, canvas, w)
}

func (c *Chart) draw(canvas vg.CanvasSizer, image io.WriterTo, w io.Writer) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, curve := range c.Curves {
		var points plotter.XYs
		for _, q := range curve.Points {
			if finite(q) {
				points = append(points, plotter.XY{X: q[0], Y: q[1]})
			}
		}
		if curve.dots() {
			dot, err := plotter.NewScatter(points)
			if err != nil {
				return fmt.Errorf("draw the curve %s: %w", curve.Name, err)
			}
			dot.Color, dot.Radius = plotutil.Color(i), vg.Points(3)
			p.Add(dot)
			p.Legend.Add(curve.Name, dot)
			if len(curve.Errors) == len(points) {
				deviations := make(plotter.YErrors, len(points))
				for n, e := range curve.Errors {
					deviations[n].Low, deviations[n].High = e, e
				}
				bars, err := plotter.NewYErrorBars(struct {
					plotter.XYs
					plotter.YErrors
				}{points, deviations})
				if err != nil {
					return fmt.Errorf("draw the curve %s: %w", curve.Name, err)
				}
				bars.Color = plotutil.Color(i)
				p.Add(bars)
			}
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("draw the curve %s: %w", curve.Name, err)
		}
		line.Color, line.Dashes, line.Width = plotutil.Color(i), plotutil.Dashes(i), vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(curve.Name, line)
	}
	p.Draw(draw.New(canvas))
	if _, err := image.WriteTo(w); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	return nil
}

// dots tells whether the curve is points without a line.
func (c *Curve) dots() bool { return c.Style == Dots || len(c.Points) == 1 }

// bounds are the ranges of the axes; never empty.
func (c *Chart) bounds() (x0, x1, y0, y1 float64) {
	x0, x1, y0, y1 = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, curve := range c.Curves {
		for i, p := range curve.Points {
			if finite(p) {
				e := 0.0
				if len(curve.Errors) == len(curve.Points) {
					e = curve.Errors[i]
				}
				x0, x1 = min(x0, p[0]), max(x1, p[0])
				y0, y1 = min(y0, p[1]-e), max(y1, p[1]+e)
			}
		}
	}
	if x0 > x1 {
		x0, x1, y0, y1 = 0, 1, 0, 1
	}
	if x0 == x1 {
		x1++
	}
	if y0 == y1 {
		y1++
	}
	return x0, x1, y0, y1
}

func finite(p [2]float64) bool {
	return !math.IsInf(p[0], 0) && !math.IsInf(p[1], 0) && !math.IsNaN(p[0]) && !math.IsNaN(p[1])
}
