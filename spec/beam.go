package spec

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// MaxBeams bounds the widths of a beam search.
const MaxBeams = 64

// Early stopping, as transformers names it: when a search ends that has found as
// many sequences as it is wide.
const (
	StopHeuristic = "false" // when the best running beam, as long as it is now, scores no better than they do
	StopEarly     = "true"  // at once
	StopNever     = "never" // when no running beam can score better any more, as far as lengths tell
)

// Beams are the settings of a beam search with drafts (Leviathan et al., A.4).
// A search is a function of these, the ends of sequence, the limit and the
// target's log-probabilities: what drafts it changes nothing of it.
type Beams struct {
	Width         int     `json:"width"`                    // w: beams that run, and sequences that are found
	DraftWidth    int     `json:"draft_width,omitempty"`    // u: beams that the draft searches with, at least w
	LengthPenalty float64 `json:"length_penalty"`           // a score is the sum of log-probabilities over length^LengthPenalty
	EarlyStopping string  `json:"early_stopping,omitempty"` // StopHeuristic (or empty), StopEarly or StopNever
	// Forced is how many tokens count with a completion where lengths are compared:
	// what an encoder-decoder model is made to begin with behind its start token.
	Forced int `json:"forced,omitempty"`
}

// Validate returns an error that names the first setting out of its range.
func (b Beams) Validate() error {
	switch {
	case b.Width < 1 || b.Width > MaxBeams:
		return fmt.Errorf("%d beams are not between 1 and %d", b.Width, MaxBeams)
	case b.DraftWidth != 0 && (b.DraftWidth < b.Width || b.DraftWidth > MaxBeams):
		return fmt.Errorf("%d draft beams are not between the target's %d and %d", b.DraftWidth, b.Width, MaxBeams)
	case b.Forced < 0:
		return fmt.Errorf("%d forced tokens are negative", b.Forced)
	case !finite(b.LengthPenalty) || math.Abs(b.LengthPenalty) > 16:
		return fmt.Errorf("length penalty %v is not between -16 and 16", b.LengthPenalty)
	case !slices.Contains([]string{"", StopHeuristic, StopEarly, StopNever}, b.EarlyStopping):
		return fmt.Errorf("early stopping %q is none of %s, %s and %s", b.EarlyStopping, StopHeuristic, StopEarly, StopNever)
	}
	return nil
}

// Beam is a sequence under search. It does not change, and shares its beginning
// with the beams that continue it.
type Beam struct {
	From  int     // of the beams that were continued, which one
	Token int32   // what it adds
	Log   float64 // the logarithm of the token's probability
	Sum   float64 // of the logarithms
	Len   int     // tokens of the completion

	before *Beam
}

// AppendTokens appends the beam's completion to tokens.
func (b *Beam) AppendTokens(tokens []int32) []int32 {
	at := len(tokens)
	tokens = append(tokens, make([]int32, b.Len)...)
	for ; b.before != nil; b = b.before {
		tokens[at+b.Len-1] = b.Token
	}
	return tokens
}

// Logs are the logarithms of the tokens' probabilities.
func (b *Beam) Logs() []float64 {
	logs := make([]float64, b.Len)
	for ; b.before != nil; b = b.before {
		logs[b.Len-1] = b.Log
	}
	return logs
}

// Continue returns the n best continuations of beams by their sums, best first;
// of equals, those of earlier beams and lower tokens first. rows are the
// log-probabilities of the token after each beam; what is -Inf there is
// impossible.
func Continue(beams []*Beam, rows [][]float32, n int) []*Beam {
	worse := func(a, b Beam) int {
		return cmp.Or(cmp.Compare(b.Sum, a.Sum), cmp.Compare(a.From, b.From), cmp.Compare(a.Token, b.Token))
	}
	best := make([]Beam, 0, n) // ascending by worse
	beyond := math.Inf(-1)     // no sum of at most this is among the best n; of equals, the earlier ones are there already
	for i, b := range beams {
		for x, l := range rows[i] {
			sum := b.Sum + float64(l)
			if sum <= beyond {
				continue
			}
			c := Beam{From: i, Token: int32(x), Log: float64(l), Sum: sum, Len: b.Len + 1, before: b}
			at, _ := slices.BinarySearchFunc(best, c, worse)
			if len(best) == n {
				best = best[:n-1]
			}
			if best = slices.Insert(best, at, c); len(best) == n {
				beyond = best[n-1].Sum
			}
		}
	}
	out := make([]*Beam, len(best))
	for i := range best {
		out[i] = &best[i]
	}
	return out
}

// Found is a sequence that a search has ended.
type Found struct {
	*Beam
	Score float64 // Sum over length^LengthPenalty
	Ended bool    // by an end of sequence or a stop text, not by the limit
}

// Search is a beam search as transformers does it (GenerationMixin._beam_search,
// do_sample=False): at each step the best continuations of all running beams
// compete. Those of the best w that end are found; the best w that do not end run
// on. As there, (1 + ends of sequence) w continuations compete, 2 w at least: where
// stop texts end more of them than that leaves, fewer than w run on.
type Search struct {
	Running []*Beam // the best first, at most w
	Found   []Found // the best first, at most w
	// Stops, if not nil, says of a beam that is no end of sequence whether it ends
	// nevertheless: at a stop text. It is a function of the beam's tokens.
	Stops func(*Beam) bool

	beams Beams
	eos   []int32
	limit int
	steps int
	over  bool
}

// Rule says how a search accepts what is drafted, and what that guarantees, as
// [Rule.String] and [Rule.Bound] say it of samples.
func (b Beams) Rule() (name, bound string) {
	return fmt.Sprintf("beams of %d", b.Width), "lossless: what is found with drafts is what is found without them, in every row"
}

// NewSearch begins a search. limit is the most tokens of a completion, at least 1.
func NewSearch(b Beams, eos []int32, limit int) *Search {
	return &Search{Running: []*Beam{{}}, beams: b, eos: eos, limit: limit}
}

// Over reports whether the search has ended.
func (s *Search) Over() bool { return s.over }

// Steps is how many steps it took, which is the length of the running beams.
func (s *Search) Steps() int { return s.steps }

// Step takes one step. rows are the log-probabilities of the token after each
// running beam.
func (s *Search) Step(rows [][]float32) {
	w := s.beams.Width
	// Enough for w that run on, however many ends of sequence are among them.
	best := Continue(s.Running, rows, (1+max(1, len(s.eos)))*w)
	s.steps++
	s.Running = s.Running[:0:0]
	for i, b := range best {
		ended := slices.Contains(s.eos, b.Token) || s.Stops != nil && s.Stops(b)
		switch {
		case !ended && s.steps < s.limit:
			if len(s.Running) < w {
				s.Running = append(s.Running, b)
			}
		case i < w:
			s.find(Found{b, s.beams.Score(b.Sum, s.steps), ended})
		}
	}
	s.over = len(s.Running) == 0 || len(s.Found) == w && (s.beams.EarlyStopping == StopEarly || !s.hopes())
}

// find keeps a sequence if it is among the best w; of equals the first.
func (s *Search) find(f Found) {
	at, _ := slices.BinarySearchFunc(s.Found, f.Score, func(o Found, score float64) int {
		if o.Score >= score {
			return -1
		}
		return 1
	})
	if at < s.beams.Width {
		s.Found = slices.Insert(s.Found, at, f)
		s.Found = s.Found[:min(len(s.Found), s.beams.Width)]
	}
}

// hopes reports whether the best running beam might still be found better than
// the worst that was found.
func (s *Search) hopes() bool {
	n := s.steps
	if s.beams.EarlyStopping == StopNever && s.beams.LengthPenalty > 0 {
		n = s.limit
	}
	return s.beams.Score(s.Running[0].Sum, n) > s.Found[len(s.Found)-1].Score
}

// Score ranks a completion of n tokens by the sum of its log-probabilities.
func (b Beams) Score(sum float64, n int) float64 {
	return sum / math.Pow(float64(n+b.Forced), b.LengthPenalty)
}

// draftMargin is by how much the logarithm of a draft beam's probability may lie
// below that of the w-th. What is less likely is hardly ever among the target's best
// w, and costs a pass as much as any other. On the demo pair a pass scores a fifth
// fewer beams for it, and brings one step in a hundred fewer.
const draftMargin = 2

// DraftBeams takes one step of the draft's search: of the u best continuations that
// do not end the best w, and what is nearly as likely as the last of these. What ends
// needs no target to go on.
func DraftBeams(beams []*Beam, rows [][]float32, b Beams, eos []int32) []*Beam {
	u := b.DraftWidth
	best := Continue(beams, rows, u+len(eos)*len(beams))
	best = slices.DeleteFunc(best, func(b *Beam) bool { return slices.Contains(eos, b.Token) })
	best = best[:min(u, len(best))]
	for len(best) > b.Width && best[len(best)-1].Sum < best[b.Width-1].Sum-draftMargin {
		best = best[:len(best)-1]
	}
	return best
}

// BeamOutcome is what one loop of a beam search with drafts did.
type BeamOutcome struct {
	Steps    int       // of the search: Accepted + 1, or fewer where it ended
	Accepted int       // drafted steps that held all of the target's beams
	Share    []float64 // of each drafted step that was looked at: the share of the target's beams that it held
	At       []int     // where the last of these steps has each running beam; -1: nowhere
}

// Advance takes the steps of a search that drafts allow. drafts[t] are the draft's
// beams after t + 1 steps from the running ones, whose continuations the target has
// scored: row(0, i) are the log-probabilities after running beam i, row(t, i) those
// after drafts[t-1][i], valid until the next step's are asked for.
//
// A step needs the target's rows behind its running beams and nothing else. So
// "we can accept the guesses of M_q as long as top_w(M_p) is a subset of
// top_u(M_q), to get identical results to regular beam search with M_p alone"
// (Leviathan et al., A.4); the step behind the last accepted one is the target's own.
func (s *Search) Advance(drafts [][]*Beam, row func(t, i int) ([]float32, error)) (out BeamOutcome, err error) {
	at := make([]int, len(s.Running)) // where the draft has the running beams
	for i := range at {
		at[i] = i
	}
	for t := 0; ; t++ {
		rows := make([][]float32, len(at))
		for i := range at {
			if rows[i], err = row(t, at[i]); err != nil {
				return out, err
			}
		}
		s.Step(rows)
		out.Steps++
		if s.over || t == len(drafts) {
			return out, nil
		}
		next, held := make([]int, len(s.Running)), 0
		for i, b := range s.Running {
			next[i] = slices.IndexFunc(drafts[t], func(d *Beam) bool { return d.From == at[b.From] && d.Token == b.Token })
			if next[i] >= 0 {
				held++
			}
		}
		out.At, out.Share = next, append(out.Share, float64(held)/float64(len(next)))
		if held < len(next) {
			return out, nil
		}
		out.Accepted++
		at = next
	}
}
