package spec

// Bounds of what has coins of its own: positions of a sequence, tokens drafted
// in one loop and tokens drafted in one inner loop.
const (
	MaxPositions      = 1 << 24
	MaxLookahead      = 1<<8 - 1
	MaxInnerLookahead = 1<<3 - 1
)

// DraftCoins are the coins that one loop drafts with, derived from those of
// its sequence: the coin of a position belongs to the loop that starts at
// Start and to no other.
//
// A loop decides once over every position that it keeps, so that its accept,
// residual and bonus coins are never asked for again. Its drafts are another
// matter: those behind a rejection are thrown away, and the next loop drafts
// their positions anew. Had it the same coins again, then whatever has been
// seen of the discarded drafts (how many there were, how long they took to
// make) would say something about tokens that are still to be drawn, and
// nothing learned from it could be used to choose the next lookahead. With
// fresh coins, everything known before a loop begins may be used.
type DraftCoins struct {
	Uniforms
	Start int // absolute position of the loop's first token, below MaxPositions
}

// Uniform implements [Uniforms] for positions from Start to Start +
// MaxLookahead.
func (c *DraftCoins) Uniform(purpose Purpose, position int) float64 {
	return c.Uniforms.Uniform(purpose, c.Start+(position-c.Start)*MaxPositions)
}

// InnerCoins are the coins of an inner loop: one in which the draft model is
// the target and a smaller drafter its draft. They are derived from the
// [DraftCoins] of the loop around it, and fresh likewise. Their purposes are
// none of an outer loop.
type InnerCoins struct {
	Uniforms     // of the outer loop's drafts
	Start    int // absolute position of the inner loop's first token
}

// Uniform implements [Uniforms] for positions from Start to Start +
// MaxInnerLookahead.
func (c *InnerCoins) Uniform(purpose Purpose, position int) float64 {
	return c.Uniforms.Uniform(purpose.inner(position-c.Start), position)
}

// inner returns the purpose that a decision has at the given place in an inner
// loop. Purposes proper are below 16: the fifth bit says that this one is
// inner, the three above it hold the place.
func (p Purpose) inner(place int) Purpose { return p | 1<<4 | Purpose(place)<<5 }
