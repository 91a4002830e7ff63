package report

import (
	"fmt"
	"html"
	"html/template"
	"io"
	"strings"
)

// Plots is a page of charts, of nothing that ran.
type Plots struct {
	Title, Text string
	Charts      []Chart
	Traces      []Trace // nil: none
}

// Trace is how one way of decoding takes turns between the models: so many loops of
// K draft passes and a pass of the target.
type Trace struct {
	Name         string
	Loops        float64 // the last one perhaps in part
	K            int
	Draft, Score float64 // time of a pass, in any unit that the traces share
}

var plotsTemplate = template.Must(template.New("plots").Funcs(template.FuncMap{
	"inline": func(c Chart) template.HTML { return template.HTML(c.inline()) },      //nolint:gosec // inline escapes names
	"traces": func(t []Trace) template.HTML { return template.HTML(drawTraces(t)) }, //nolint:gosec // drawTraces escapes names
}).Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{{.Title}}</title>
<style>` + style() + `.plots { grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr)); }
rect.draft { fill: var(--c1); } rect.score { fill: var(--c0); } rect.score { stroke: var(--panel); stroke-width: 0.6; }
</style>
</head>
<body>
<h1>{{.Title}}</h1>
<p class="verdict"><b>{{.Text}}</b></p>
<div class="plots">{{range .Charts}}<figure><figcaption>{{.Title}}</figcaption>{{inline .}}</figure>
{{end}}{{with .Traces}}<figure><figcaption>passes one after another: the target's, and the draft's before them</figcaption>{{traces .}}</figure>{{end}}</div>
</body>
</html>
`))

// style is the report page's style sheet.
func style() string {
	_, rest, _ := strings.Cut(pageText, "<style>\n")
	sheet, _, _ := strings.Cut(rest, "</style>")
	return sheet
}

// WriteHTML writes the page as one file that needs nothing else.
func (p *Plots) WriteHTML(w io.Writer) error {
	if err := plotsTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("write the plots: %w", err)
	}
	return nil
}

// drawTraces draws traces under each other, to one scale of time.
func drawTraces(traces []Trace) string {
	const width, row, top = 460.0, 46.0, 18.0
	longest := 0.0
	for _, t := range traces {
		longest = max(longest, t.Loops*(float64(t.K)*t.Draft+t.Score))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="traces">`, width, row*float64(len(traces)))
	for i, t := range traces {
		y, x := row*float64(i), 0.0
		total := t.Loops * (float64(t.K)*t.Draft + t.Score)
		fmt.Fprintf(&b, `<text class="axis" x="0" y="%.1f">%s: %.1f passes of the target, time %.1f</text>`, y+12, html.EscapeString(t.Name), t.Loops, total)
		pass := func(kind string, time float64) {
			if time = min(time, total-x); time <= 0 {
				return
			}
			fmt.Fprintf(&b, `<rect class="%s" x="%.2f" y="%.1f" width="%.2f" height="18"/>`, kind, x/longest*width, y+top, time/longest*width)
			x += time
		}
		for x < total-1e-9 {
			for range t.K {
				pass("draft", t.Draft)
			}
			pass("score", t.Score)
		}
	}
	b.WriteString(`</svg><div class="keys"><span><i class="k0"></i>target</span><span><i class="k1"></i>draft</span></div>`)
	return b.String()
}
