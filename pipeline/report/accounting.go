package report

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/draftmill/draftmill/storage"
)

// Accounting is what a mode's loops did, by every denominator in use, side by
// side: "acceptance" alone means too many things. storage/FORMAT.md defines
// each figure. Rows that could not be decoded are left out, as they are of
// every other figure.
type Accounting struct {
	Loops    int64 `json:"loops"`
	Drafted  int64 `json:"drafted"`
	Examined int64 `json:"examined"` // of the drafted: the accepted ones and, of each loop, the rejected one
	Accepted int64 `json:"accepted"`

	// Tokens of the completions by origin; their sum is completion_tokens.
	// Dropped are those that loops decided behind the end of a completion.
	KeptAccepted int64 `json:"kept_accepted"`
	Recovered    int64 `json:"recovered"`
	Bonus        int64 `json:"bonus"`
	Dropped      int64 `json:"dropped"`

	AcceptedPerDrafted  float64 `json:"accepted_per_drafted"`
	AcceptedPerExamined float64 `json:"accepted_per_examined"`
	TokensPerLoop       float64 `json:"tokens_per_loop"`
	WithoutBonus        float64 `json:"tokens_per_loop_without_bonus"`
	BlockEfficiency     float64 `json:"block_efficiency"` // tokens decided per loop, before any cut

	Alpha       Estimate     `json:"alpha"`       // mean of sum min(p, q) over the examined positions
	AlphaCount  Estimate     `json:"alpha_count"` // share of the examined positions that were accepted
	PerSequence PerSequence  `json:"per_sequence"`
	Positions   []Position   `json:"positions"`        // by place in the draft, from 1
	Lengths     []int64      `json:"accepted_lengths"` // [a]: loops that accepted a tokens; they sum to loops
	Costs       []Cost       `json:"costs"`            // measured, by tokens scored
	Smaller     []Prediction `json:"counterfactual"`   // lookaheads from 0 to the largest drafted
}

// Estimate is a mean and how far it may be off.
type Estimate struct {
	Mean        float64 `json:"mean"`
	SE          float64 `json:"se"`           // standard error, positions taken as independent
	ClusteredSE float64 `json:"clustered_se"` // sequences taken as independent, positions within one not
	N           int64   `json:"n"`            // positions
}

// PerSequence has means over sequences, each counting alike, where the other
// figures weigh a sequence by its tokens, loops or positions.
type PerSequence struct {
	Sequences           int64   `json:"sequences"`
	AcceptedPerDrafted  float64 `json:"accepted_per_drafted"`
	AcceptedPerExamined float64 `json:"accepted_per_examined"`
	TokensPerLoop       float64 `json:"tokens_per_loop"`
	Alpha               float64 `json:"alpha"`
	TokenMS             float64 `json:"token_ms"`
}

// Position is one place of the draft, t = 1 .. K.
type Position struct {
	T             int     `json:"t"`
	Drafted       int64   `json:"drafted"`  // loops that drafted at least t tokens
	Examined      int64   `json:"examined"` // of them, those that accepted all before
	Accepted      int64   `json:"accepted"` // of them, those that accepted this one too
	Conditional   float64 `json:"conditional"`
	Unconditional float64 `json:"unconditional"` // accepted / drafted
}

// shape is all of a loop that the counts are made of.
type shape struct{ drafted, accepted, emitted int32 }

// ledger gathers a mode's loops. It holds a few numbers for every sequence.
type ledger struct {
	shapes    map[shape]int64
	times     map[int32]*times // by tokens drafted
	sequences map[sampleKey]*sequence
	failed    map[sampleKey]bool
	overlap2  float64 // sum of squares
	mean      PerSequence
	speculate int64 // sequences in which something was drafted
}

type times struct {
	loops                 int64
	draft, score, sampled int64 // nanoseconds
}

// sequence is what the log says of one sample.
type sequence struct {
	overlap            float64
	examined, accepted int64
}

func newLedger() *ledger {
	return &ledger{shapes: map[shape]int64{}, times: map[int32]*times{}, sequences: map[sampleKey]*sequence{}, failed: map[sampleKey]bool{}}
}

func (g *ledger) completion(c *storage.Completion) {
	if c.FinishReason == storage.FinishError {
		g.failed[sampleKey{c.Row, c.Sample}] = true
		return
	}
	g.mean.Sequences++
	g.mean.TokensPerLoop += ratio(float64(c.CompletionTokens), int64(c.Loops))
	g.mean.TokenMS += ratio(float64(c.DecodeNS)/1e6, int64(c.CompletionTokens))
	if c.Drafted > 0 {
		g.speculate++
		g.mean.AcceptedPerDrafted += ratio(float64(c.Accepted), int64(c.Drafted))
	}
}

// loop takes a loop; the completions come before.
func (g *ledger) loop(l *storage.Loop) {
	key := sampleKey{l.Row, l.Sample}
	if g.failed[key] {
		return
	}
	n := int32(len(l.Drafted))
	g.shapes[shape{n, l.Accepted, l.Emitted}]++
	t := g.times[n]
	if t == nil {
		t = &times{}
		g.times[n] = t
	}
	t.loops++
	t.draft += l.DraftNS
	t.score += l.ScoreNS
	t.sampled += l.SampleNS
	if n == 0 {
		return
	}
	s := g.sequences[key]
	if s == nil {
		s = &sequence{}
		g.sequences[key] = s
	}
	s.examined += int64(examined(n, l.Accepted))
	s.accepted += int64(l.Accepted)
	for _, o := range l.Overlap[:min(int(examined(n, l.Accepted)), len(l.Overlap))] {
		s.overlap += o
		g.overlap2 += o * o
	}
}

// examined is how many drafted tokens were decided over: the accepted ones
// and, unless all were, the rejected one. What was drafted behind it was never
// looked at, and says nothing of acceptance.
func examined(drafted, accepted int32) int32 { return min(accepted+1, drafted) }

// accounting adds up.
func (g *ledger) accounting() *Accounting {
	a := &Accounting{Lengths: []int64{}, Positions: []Position{}, Smaller: []Prediction{}, PerSequence: g.mean}
	var kept int64
	for s, n := range g.shapes {
		a.Loops += n
		a.Drafted += n * int64(s.drafted)
		a.Examined += n * int64(examined(s.drafted, s.accepted))
		a.Accepted += n * int64(s.accepted)
		kept += n * int64(s.emitted)
		a.KeptAccepted += n * int64(min(s.emitted, s.accepted))
		a.Dropped += n * int64(s.accepted+1-s.emitted)
		if s.emitted > s.accepted {
			if s.accepted == s.drafted {
				a.Bonus += n
			} else {
				a.Recovered += n
			}
		}
		for len(a.Lengths) <= int(s.accepted) {
			a.Lengths = append(a.Lengths, 0)
		}
		a.Lengths[s.accepted] += n
		for len(a.Positions) < int(s.drafted) {
			a.Positions = append(a.Positions, Position{T: len(a.Positions) + 1})
		}
		for t := range s.drafted {
			p := &a.Positions[t]
			p.Drafted += n
			if t <= s.accepted {
				p.Examined += n
			}
			if t < s.accepted {
				p.Accepted += n
			}
		}
	}
	for i := range a.Positions {
		p := &a.Positions[i]
		p.Conditional = ratio(float64(p.Accepted), p.Examined)
		p.Unconditional = ratio(float64(p.Accepted), p.Drafted)
	}
	a.AcceptedPerDrafted = ratio(float64(a.Accepted), a.Drafted)
	a.AcceptedPerExamined = ratio(float64(a.Accepted), a.Examined)
	a.TokensPerLoop = ratio(float64(kept), a.Loops)
	a.WithoutBonus = ratio(float64(kept-a.Bonus), a.Loops)
	a.BlockEfficiency = ratio(float64(a.Accepted+a.Loops), a.Loops)
	g.estimate(a)
	a.Costs = g.costs()
	return a
}

// estimate fills in alpha, both ways, and the means over sequences.
//
// The clustered error is that of a ratio of sums over independent sequences
// (Cochran 1977, "Sampling Techniques", section 6.4): easy and hard texts make
// the positions of one sequence alike, and the independent error too small.
func (g *ledger) estimate(a *Accounting) {
	var overlap, accepted, n, m float64
	mean := &a.PerSequence
	sequences := ordered(g.sequences, func(a, b sampleKey) int {
		return cmp.Or(cmp.Compare(a.row, b.row), cmp.Compare(a.sample, b.sample))
	})
	for _, s := range sequences {
		overlap += s.overlap
		accepted += float64(s.accepted)
		n += float64(s.examined)
		m++
		mean.Alpha += s.overlap / float64(s.examined)
		mean.AcceptedPerExamined += float64(s.accepted) / float64(s.examined)
	}
	mean.TokensPerLoop = ratio(mean.TokensPerLoop, mean.Sequences)
	mean.TokenMS = ratio(mean.TokenMS, mean.Sequences)
	mean.AcceptedPerDrafted = ratio(mean.AcceptedPerDrafted, g.speculate)
	mean.Alpha = ratio(mean.Alpha, int64(m))
	mean.AcceptedPerExamined = ratio(mean.AcceptedPerExamined, int64(m))
	if n == 0 {
		return
	}
	a.Alpha = estimate(overlap, g.overlap2, n)
	a.AlphaCount = estimate(accepted, accepted, n) // the square of 0 or 1 is itself
	if m < 2 {
		return
	}
	var between, counted float64
	for _, s := range sequences {
		between += square(s.overlap - a.Alpha.Mean*float64(s.examined))
		counted += square(float64(s.accepted) - a.AlphaCount.Mean*float64(s.examined))
	}
	a.Alpha.ClusteredSE = math.Sqrt(m/(m-1)*between) / n
	a.AlphaCount.ClusteredSE = math.Sqrt(m/(m-1)*counted) / n
}

// estimate is the mean of n numbers by their sum and sum of squares.
func estimate(sum, squares, n float64) Estimate {
	e := Estimate{Mean: sum / n, N: int64(n)}
	if n > 1 {
		e.SE = math.Sqrt(max(0, squares/n-e.Mean*e.Mean) / (n - 1))
	}
	return e
}

// ordered lists a map's values by their keys: sums of floats depend on their
// order, and a report is to say the same each time.
func ordered[K comparable, V any](m map[K]V, compare func(a, b K) int) iter.Seq2[K, V] {
	keys := slices.SortedFunc(maps.Keys(m), compare)
	return func(yield func(K, V) bool) {
		for _, k := range keys {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

func square(x float64) float64 { return x * x }
