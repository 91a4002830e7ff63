package spec

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Policy chooses the lookahead of an engine's loops. A loop drafts for a batch
// of sequences, each in its lane, and is over for all of them at once, so that
// they have one lookahead. It is used by one goroutine at a time.
//
// Speculative sampling keeps the target's law for every K, so that any policy
// may choose any K, under one condition: whether a token is drafted and
// verified must not depend on that token's own draw, or on any draw behind it.
// A loop that drops a drafted token because of which one it is emits too few of
// its kind. Two facts keep every policy here on the right side of it:
//
//   - Next is called before the loop draws its first coin, and the coins it
//     drafts with are its own ([DraftCoins]). Whatever was observed in earlier
//     loops, of this sequence and of others, of discarded drafts and of the
//     clock, is independent of what this loop draws. With K fixed given the
//     past, Theorem 1 of Chen et al. holds for the loop as it stands.
//   - More is called after a token was drawn, and that token is kept: it is
//     verified whatever More answers. So whether position t is drafted depends
//     on the drafts before t alone. Given those, its token is a draw from p and
//     is accepted or recovered to a draw from q; and where position t is not
//     drafted, the bonus token is a draw from q.
type Policy interface {
	// Begin starts a sequence in a lane, whose Lag is set, and reports whether
	// to feed the drafter at once.
	Begin(l *Lane) bool
	// Next returns how many tokens the next loop of these lanes is to draft.
	// Lanes with less room draft less.
	Next(lanes []*Lane) int
	// More reports whether to go on drafting for a sequence after a token that
	// had probability p. No token is withdrawn by it.
	More(p float64) bool
	// Observe takes what the loop that Next was asked for has shown: in the
	// lanes, and in times.
	Observe(lanes []*Lane, r Round)
}

// Lane is one sequence to a [Policy].
type Lane struct {
	Lag  int // tokens that the drafter would have to be fed before it can draft
	Room int // tokens that the next loop can make use of

	Drafted  int // by the loop
	Accepted int // of them
	Emitted  int // tokens, the target's own included

	own    acceptance // of this sequence
	tokens int        // of this sequence
}

// Round is how long the parts of one loop took, for all lanes together.
type Round struct {
	Fed     int           // tokens that drafters had to catch up on
	Feeding time.Duration // what that took
	Draft   time.Duration // what drafting took beyond it
	Verify  time.Duration // what scoring and verifying took
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

// Policy makes a policy for batches of up to so many lanes that drafts at most
// k tokens a loop. With choose it is one that knows [Auto.Width] too.
func (l Lookahead) Policy(k, lanes int, choose bool) Policy {
	switch {
	case l.Kind == AutoLookahead:
		return NewAuto(lanes, 0, k)
	case l.Kind == ConfidenceLookahead && choose:
		return wideConfidence{NewAuto(lanes, k, k), l.Threshold}
	case l.Kind == ConfidenceLookahead:
		return confidence{fixed(k), l.Threshold}
	case choose:
		return NewAuto(lanes, k, k)
	}
	return fixed(k)
}

// fixed drafts K tokens in every loop. It is lossless as in the papers: K is a
// constant, and room counts lengths that are known before the loop.
type fixed int

func (k fixed) Begin(*Lane) bool       { return true }
func (k fixed) Next([]*Lane) int       { return int(k) }
func (k fixed) More(float64) bool      { return true }
func (k fixed) Observe([]*Lane, Round) {}

// confidence stops drafting once a token was drawn to which the draft gave less
// than a threshold. It is lossless because that token stays: only whether a
// next one is drafted depends on it.
type confidence struct {
	fixed
	threshold float64
}

func (c confidence) More(p float64) bool { return p >= c.threshold }

// wideConfidence is confidence where the number of lanes is to be chosen.
type wideConfidence struct {
	*Auto
	threshold float64
}

func (c wideConfidence) More(p float64) bool { return p >= c.threshold }
