package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent": percent,
	"ms":      func(v float64) string { return fmt.Sprintf("%.3f ms", v) },
	"f2":      func(v float64) string { return fmt.Sprintf("%.2f", v) },
	"f3":      func(v float64) string { return fmt.Sprintf("%.3f", v) },
	"p":       pValue,
	"times": func(v *float64) string {
		if v == nil {
			return "–"
		}
		return fmt.Sprintf("%.2fx", *v)
	},
	"finishes": finishes,
	"inline":   func(c Chart) template.HTML { return template.HTML(c.inline()) }, //nolint:gosec // inline escapes names
	"width":    func(rate float64) string { return fmt.Sprintf("%.1f%%", 100*rate) },
}).Parse(pageText))

// Page is what a report in HTML shows beside the comparison.
type Page struct {
	Title  string
	Repeat []string // commands that make the jobs again
	Sweep  *Sweep   // or nil
	Live   *Status  // of a job that is watched; nil in a file

	*Comparison // nil while there is nothing to compare
}

// Figures are the series' own figures, for the page.
func (s Series) Figures() *Mode { return s.mode }

// LoopDraftMS is the time of drafting per loop.
func (m *Mode) LoopDraftMS() float64 { return ratio(float64(m.draftNS)/1e6, m.Loops) }

// Percent is a score in the measure's unit.
func (q Quality) Percent(v float64) string { return q.mean(v) }

// Signed is a difference with its sign.
func (q Quality) Signed(v float64) string { return q.signed(v) }

// Amount is the size of a difference with its unit.
func (q Quality) Amount(v float64) string { return q.amount(v) }

// Measured tells whether something can be said of quality.
func (p *Page) Measured() bool { return len(p.Quality) > 0 }

// Specs are the specifications of the jobs as indented JSON.
func (p *Page) Specs() []string {
	var all []string
	for _, s := range p.Summaries {
		all = append(all, s.spec)
	}
	return all
}

// Data are the samples for the page's script.
func (p *Page) Data() (template.JS, error) {
	if p.Comparison == nil {
		return `{"series": [], "samples": []}`, nil
	}
	names := []string{}
	for _, s := range p.Series {
		names = append(names, s.Name)
	}
	samples := p.Comparison.Samples
	if samples == nil {
		samples = []Sample{}
	}
	data, err := json.Marshal(map[string]any{"series": names, "samples": samples})
	// encoding/json writes <, > and & as escapes: nothing in it ends the script.
	return template.JS(data), err //nolint:gosec // see above
}

// WriteHTML writes the report as one file that needs nothing else.
func (p *Page) WriteHTML(w io.Writer) error {
	var b strings.Builder
	if err := pageTemplate.Execute(&b, p); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
