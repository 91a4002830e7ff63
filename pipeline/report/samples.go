package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/storage"
)

// Sample is one row's completion in every series, for reading side by side.
type Sample struct {
	Row    int64           `json:"row"`
	ID     string          `json:"id"`
	Sample int32           `json:"sample"`
	Prompt string          `json:"prompt,omitempty"`
	Sides  map[string]Side `json:"sides"` // by name of the series
}

// Side is a completion as tokens. Kinds has one letter for each: a accepted, r
// recovered, b bonus, t drawn from the target alone.
type Side struct {
	Tokens []string `json:"tokens"`
	Kinds  string   `json:"kinds"`
	Finish string   `json:"finish"`
	Reason string   `json:"reason,omitempty"` // what became of it as a program
}

// maxSampleTokens bounds what is shown of one completion.
const maxSampleTokens = 1024

// collector keeps the completions of chosen samples with their loops.
type collector struct {
	rows  map[int64]bool // chosen; sample 0 of them
	text  func(ids []int32) []string
	done  map[sampleKey]*storage.Completion
	loops map[sampleKey][]loopEnd
}

// loopEnd is what a loop says of the tokens that it brought.
type loopEnd struct {
	loop, accepted, emitted int32
	bonus                   bool
}

func newCollector(rows map[int64]bool, text func(ids []int32) []string) *collector {
	return &collector{rows: rows, text: text, done: map[sampleKey]*storage.Completion{}, loops: map[sampleKey][]loopEnd{}}
}

func (c *collector) completion(v *storage.Completion) {
	if c != nil && v.Sample == 0 && c.rows[v.Row] {
		kept := *v
		c.done[sampleKey{v.Row, v.Sample}] = &kept
	}
}

func (c *collector) loop(l *storage.Loop) {
	if c == nil || l.Sample != 0 || !c.rows[l.Row] {
		return
	}
	key := sampleKey{l.Row, l.Sample}
	c.loops[key] = append(c.loops[key], loopEnd{l.Loop, l.Accepted, l.Emitted, l.Kind == storage.KindBonus})
}

// side is one completion with the origin of its tokens.
func (c *collector) side(key sampleKey, speculative bool) (Side, bool) {
	v := c.done[key]
	if v == nil {
		return Side{}, false
	}
	ids := v.Tokens[:min(len(v.Tokens), maxSampleTokens)]
	s := Side{Finish: v.FinishReason}
	if c.text == nil {
		s.Tokens, s.Kinds = []string{v.Completion}, "t"
		return s, true
	}
	s.Tokens = c.text(ids)
	loops := c.loops[key]
	slices.SortFunc(loops, func(a, b loopEnd) int { return cmp.Compare(a.loop, b.loop) })
	var kinds strings.Builder
	for _, l := range loops {
		for t := range l.emitted {
			switch {
			case !speculative:
				kinds.WriteByte('t')
			case t < l.accepted:
				kinds.WriteByte('a')
			case l.bonus:
				kinds.WriteByte('b')
			default:
				kinds.WriteByte('r')
			}
		}
	}
	s.Kinds = kinds.String()
	s.Kinds = s.Kinds[:min(len(s.Kinds), len(ids))]
	return s, true
}

// bytes is about what the side takes on a page.
func (s *Side) bytes() int {
	n := len(s.Kinds)
	for _, t := range s.Tokens {
		n += len(t) + 4
	}
	return n
}

// chosen are up to n of the rows, at even distances.
func chosen(rows []int64, n int) map[int64]bool {
	slices.Sort(rows)
	rows = slices.Compact(rows)
	keep := map[int64]bool{}
	for i := range min(n, len(rows)) {
		keep[rows[i*len(rows)/min(n, len(rows))]] = true
	}
	return keep
}
