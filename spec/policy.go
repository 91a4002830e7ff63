package spec

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Policy chooses the lookahead of the loops of one sequence after another. An
// engine has one; it is used by one goroutine at a time.
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
	// Begin starts a sequence. lag is how many tokens the drafter would have
	// to be fed before it can draft; Begin reports whether to feed them now.
	Begin(lag int) bool
	// Next returns how many tokens the next loop is to draft, at most room, the
	// number of tokens that it can make use of.
	Next(room, lag int) int
	// More reports whether to go on drafting after a token that had
	// probability p. No token is withdrawn by it.
	More(p float64) bool
	// Observe takes what the loop that Next was asked for has shown.
	Observe(Round)
}

// Round is what one loop has shown to a [Policy].
type Round struct {
	Drafted  int // tokens
	Accepted int // of them
	Emitted  int // tokens, the target's own included

	Fed     int           // tokens that the drafter had to catch up on
	Feeding time.Duration // what that took
	Draft   time.Duration // what drafting took beyond it
	Verify  time.Duration // what scoring Drafted+1 tokens and verifying took
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

// Policy makes a policy that drafts at most k tokens a loop.
func (l Lookahead) Policy(k int) Policy {
	switch l.Kind {
	case AutoLookahead:
		return NewAuto(k)
	case ConfidenceLookahead:
		return confidence{fixed(k), l.Threshold}
	}
	return fixed(k)
}

// fixed drafts K tokens in every loop. It is lossless as in the papers: K is a
// constant, and room counts lengths that are known before the loop.
type fixed int

func (k fixed) Begin(int) bool       { return true }
func (k fixed) Next(room, _ int) int { return min(int(k), room) }
func (k fixed) More(float64) bool    { return true }
func (k fixed) Observe(Round)        {}

// confidence stops drafting once a token was drawn to which the draft gave less
// than a threshold. It is lossless because that token stays: only whether a
// next one is drafted depends on it.
type confidence struct {
	fixed
	threshold float64
}

func (c confidence) More(p float64) bool { return p >= c.threshold }
