package spec

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Policy chooses how many tokens an engine's loops draft for every sequence. It
// is used by one goroutine at a time.
//
// Speculative sampling keeps the target's distribution for every K, so that any
// policy may choose any K, under one condition: whether a token is drafted and
// verified must not depend on that token's own draw, or on any draw behind it.
// A loop that drops a drafted token because of which one it is emits too few of
// its kind. Two facts keep every policy here on the right side of it:
//
//   - Next is called before the loop draws its first uniform, and the uniforms
//     it drafts with are its own ([DraftCoins]). Whatever was observed in earlier
//     loops, of this sequence and of others, of discarded drafts and of the
//     clock, is independent of what this loop draws. With every K fixed given
//     the past, Theorem 1 of Chen et al. holds for the loop as it stands.
//   - More is called after a token was drawn, and that token is kept: it is
//     verified whatever More answers. So whether position t is drafted depends
//     on the drafts before t alone. Given those, its token is a draw from p and
//     is accepted or recovered to a draw from q; and where position t is not
//     drafted, the bonus token is a draw from q.
type Policy interface {
	// Begin starts a sequence in a lane, whose Lag is set, and reports whether
	// to feed the drafter its prompt at once.
	Begin(l *Lane) bool
	// Next sets K of every lane that takes part in the next loop, whose Lag and
	// Room are set. The target's pass feeds beside rows of prompts besides.
	// Lanes with less room than K draft less.
	Next(lanes []*Lane, beside int)
	// More reports whether to go on drafting for a sequence after a token that
	// had probability p. No token is withdrawn by it.
	More(p float64) bool
	// Observe takes what the loop that Next was asked for has shown: in the
	// lanes, and in times.
	Observe(lanes []*Lane, r Round)
	// Width is how many of at most so many lanes to decode together.
	Width(most int) int
	// Costs is what passes take, to be measured before the first loop; nil where
	// the policy does not ask for that.
	Costs() *Costs
}

// Lane is one sequence to a [Policy].
type Lane struct {
	Lag  int // tokens that the drafter would have to be fed before it can draft
	Room int // tokens that the next loop can make use of
	K    int // tokens that it is to draft

	Drafted  int // by the loop
	Accepted int // of them
	Emitted  int // tokens, the target's own included

	own    acceptance // of this sequence
	tokens int        // of this sequence
}

// most is how many tokens the lane has room for, of at most k.
func (l *Lane) most(k int) int { return max(0, min(k, l.Room)) }

// Round is how long the parts of one loop took.
type Round struct {
	Draft  time.Duration // drafting for all lanes of the loop, drawing included
	Score  time.Duration // the target's pass and verifying, prompts included
	Beside int           // rows of prompts in the target's pass
}

// Kinds of lookahead.
const (
	FixedLookahead      = "fixed"
	AutoLookahead       = "auto"
	ConfidenceLookahead = "confidence"
)

// Lookahead is the setting that a [Policy] is made from.
type Lookahead struct {
	Kind      string  // empty is FixedLookahead
	Threshold float64 // of ConfidenceLookahead, in (0, 1]
}

// ParseLookahead reads fixed, auto or confidence:X. The empty text is fixed.
func ParseLookahead(s string) (Lookahead, error) {
	switch kind, x, has := strings.Cut(s, ":"); {
	case !has && (kind == "" || kind == FixedLookahead):
		return Lookahead{Kind: FixedLookahead}, nil
	case !has && kind == AutoLookahead:
		return Lookahead{Kind: AutoLookahead}, nil
	case has && kind == ConfidenceLookahead:
		threshold, err := strconv.ParseFloat(x, 64)
		if err != nil || !(threshold > 0 && threshold <= 1) {
			return Lookahead{}, fmt.Errorf("lookahead %q: the confidence must be a number above 0 and at most 1, as in confidence:0.4", s)
		}
		return Lookahead{Kind: ConfidenceLookahead, Threshold: threshold}, nil
	}
	return Lookahead{}, fmt.Errorf("lookahead %q is none of fixed, auto and confidence:X", s)
}

// Policy makes a policy for up to so many lanes that drafts at most k tokens a
// loop. With choose it chooses [Policy.Width] too, by what passes cost.
func (l Lookahead) Policy(k, lanes int, choose bool) Policy {
	least := k
	if l.Kind == AutoLookahead {
		least = 0
	}
	var p Policy = fixed(k)
	if choose || least < k {
		p = NewAuto(lanes, least, k)
	}
	if l.Kind == ConfidenceLookahead {
		p = confidence{p, l.Threshold}
	}
	return p
}

// fixed drafts K tokens in every loop. It is lossless as in the papers: K is a
// constant, and room counts lengths that are known before the loop.
type fixed int

func (k fixed) Begin(*Lane) bool       { return true }
func (k fixed) More(float64) bool      { return true }
func (k fixed) Observe([]*Lane, Round) {}
func (k fixed) Width(most int) int     { return most }
func (k fixed) Costs() *Costs          { return nil }

func (k fixed) Next(lanes []*Lane, _ int) {
	for _, l := range lanes {
		l.K = int(k)
	}
}

// confidence stops drafting once a token was drawn to which the draft gave less
// than a threshold. It is lossless because that token stays: only whether a
// next one is drafted depends on it.
type confidence struct {
	Policy
	threshold float64
}

func (c confidence) More(p float64) bool { return p >= c.threshold }
