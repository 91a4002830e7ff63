package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/draftmill/draftmill/storage"
)

// Grouping says how acceptance depends on something.
type Grouping struct {
	By     string  `json:"by"` // "prompt length", "token class", or a column of the dataset
	Groups []Group `json:"groups"`
}

// Group is a part of the examined positions.
type Group struct {
	Name     string  `json:"name"`
	Examined int64   `json:"examined"`
	Accepted int64   `json:"accepted"`
	Rate     float64 `json:"rate"`            // accepted / examined
	Score    *Value  `json:"score,omitempty"` // of the group's rows, where the grouping is one of rows
}

// Value is a measure's mean over a group's rows.
type Value struct {
	Metric string  `json:"metric"`
	Mean   float64 `json:"mean"`
	Rows   int     `json:"rows"`
}

// Scored tells whether a group has a score.
func (g Grouping) Scored() bool {
	return slices.ContainsFunc(g.Groups, func(one Group) bool { return one.Score != nil })
}

// count is what a group adds up.
type count struct{ examined, accepted int64 }

// classes counts examined tokens by what they are.
type classes struct {
	text func(id int32) string
	of   map[int32]string
	n    map[string]*count
}

func newClasses(text func(id int32) string) *classes {
	if text == nil {
		return nil
	}
	return &classes{text: text, of: map[int32]string{}, n: map[string]*count{}}
}

func (c *classes) loop(l *storage.Loop) {
	if c == nil {
		return
	}
	for i, id := range l.Drafted[:examined(int32(len(l.Drafted)), l.Accepted)] {
		class, known := c.of[id]
		if !known {
			class = classOf(c.text(id))
			c.of[id] = class
		}
		n := c.n[class]
		if n == nil {
			n = &count{}
			c.n[class] = n
		}
		n.examined++
		if i < int(l.Accepted) {
			n.accepted++
		}
	}
}

// classOf names what a token is by its text.
func classOf(text string) string {
	body := strings.TrimLeft(text, " ")
	first, _ := utf8.DecodeRuneInString(body)
	switch {
	case text == "":
		return "special"
	case strings.Trim(body, "\n\r\t ") == "" && strings.ContainsAny(text, "\n\r"):
		return "line end"
	case strings.Trim(body, "\t ") == "":
		return "space"
	case unicode.IsDigit(first):
		return "number"
	case unicode.IsLetter(first) || first == '_':
		if body != text {
			return "word, space before"
		}
		return "word or its part"
	}
	return "punctuation"
}

func (c *classes) grouping() []Grouping {
	if c == nil || len(c.n) == 0 {
		return nil
	}
	g := Grouping{By: "token class"}
	for name, n := range c.n {
		g.Groups = append(g.Groups, Group{Name: name, Examined: n.examined, Accepted: n.accepted, Rate: ratio(float64(n.accepted), n.examined)})
	}
	slices.SortFunc(g.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Examined, a.Examined), strings.Compare(a.Name, b.Name))
	})
	return []Grouping{g}
}

// mostGroups is how many values of a column are listed; rarer ones are joined.
const mostGroups = 20

// byRows groups a mode's sequences by a name of their rows.
func (m *Mode) byRows(by string, name func(s *sequenceTime) string, s scores) Grouping {
	type part struct {
		count
		rows map[int64]bool
	}
	parts := map[string]*part{}
	for i := range m.times {
		t := &m.times[i]
		key := name(t)
		p := parts[key]
		if p == nil {
			p = &part{rows: map[int64]bool{}}
			parts[key] = p
		}
		p.rows[t.key.row] = true
		if q := m.ledger.sequences[t.key]; q != nil {
			p.examined += q.examined
			p.accepted += q.accepted
		}
	}
	g := Grouping{By: by}
	for key, p := range parts {
		group := Group{Name: key, Examined: p.examined, Accepted: p.accepted, Rate: ratio(float64(p.accepted), p.examined)}
		for _, metric := range []string{"pass", "rouge2"} {
			if v := meanOf(metric, s[metric], p.rows); v != nil {
				group.Score = v
				break
			}
		}
		g.Groups = append(g.Groups, group)
	}
	slices.SortFunc(g.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Examined, a.Examined), strings.Compare(a.Name, b.Name))
	})
	if len(g.Groups) > mostGroups {
		rest := Group{Name: fmt.Sprintf("%d others", len(g.Groups)-mostGroups)}
		for _, o := range g.Groups[mostGroups:] {
			rest.Examined += o.Examined
			rest.Accepted += o.Accepted
		}
		rest.Rate = ratio(float64(rest.Accepted), rest.Examined)
		g.Groups = append(g.Groups[:mostGroups:mostGroups], rest)
	}
	return g
}

// meanOf is the mean score of some rows; nil where none is scored.
func meanOf(metric string, byRow map[int64][]float64, rows map[int64]bool) *Value {
	v := &Value{Metric: metric}
	if metric == "pass" {
		v.Metric = "pass@1"
	}
	for row := range rows {
		if s := byRow[row]; len(s) > 0 {
			var sum float64
			for _, x := range s {
				sum += x
			}
			v.Mean += sum / float64(len(s))
			v.Rows++
		}
	}
	if v.Rows == 0 {
		return nil
	}
	v.Mean /= float64(v.Rows)
	return v
}

// byPromptLength groups by quarters of the prompts' lengths.
func (m *Mode) byPromptLength(s scores) Grouping {
	lengths := make([]int32, 0, len(m.times))
	for _, t := range m.times {
		lengths = append(lengths, t.prompt)
	}
	slices.Sort(lengths)
	var cuts []int32
	for q := 1; q < 4 && len(lengths) > 0; q++ {
		if c := lengths[q*len(lengths)/4]; len(cuts) == 0 || c > cuts[len(cuts)-1] {
			cuts = append(cuts, c)
		}
	}
	name := func(t *sequenceTime) string {
		from := int32(0)
		for _, c := range cuts {
			if t.prompt < c {
				return fmt.Sprintf("%d to %d tokens", from, c-1)
			}
			from = c
		}
		return fmt.Sprintf("%d tokens and more", from)
	}
	g := m.byRows("prompt length", name, s)
	start := func(name string) (n int) { _, _ = fmt.Sscan(name, &n); return n }
	slices.SortFunc(g.Groups, func(a, b Group) int { return start(a.Name) - start(b.Name) })
	return g
}
