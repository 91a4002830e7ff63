package spec

// innerLevel is what separates the purposes of an inner loop from those of the
// loop around it. Purposes proper are smaller.
const innerLevel = 16

// Inner returns the purpose that this decision has in an inner loop: one in
// which the draft model is the target and a smaller drafter its draft. Inner
// and outer purposes are disjoint.
func (p Purpose) Inner() Purpose { return p | innerLevel }

// Bounds of what has coins of its own: positions of a sequence, and tokens
// drafted in one loop. Together they fill the 32 bits of a coin's position.
const (
	MaxPositions = 1 << 24
	MaxLookahead = 1<<8 - 1
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
	Start int  // absolute position of the loop's first token, below MaxPositions
	Inner bool // draws are those of the inner loop
}

// Uniform implements [Uniforms] for positions from Start to Start +
// MaxLookahead.
func (c *DraftCoins) Uniform(purpose Purpose, position int) float64 {
	if c.Inner {
		purpose = purpose.Inner()
	}
	return c.Uniforms.Uniform(purpose, c.Start+(position-c.Start)*MaxPositions)
}
