package spec

import (
	"errors"
	"fmt"
	"math"
)

// Scored is what is to be known of one drafted token to decide over it, where the
// distributions p and q are elsewhere: on a device, of which only these numbers
// come back.
type Scored struct {
	P, Q    float64 // of the drafted token
	Overlap float64 // sum over x of min(p(x), q(x))
	Below   float64 // rule match: q of the smaller ids
	// Scaled is, for rule coupled, the sum over x of min(p(x), c q(x)), c = P/Q; 0
	// where Q is 0.
	Scaled float64
	// Unadjusted is, for lenient at temperature zero, exp(l(x) - max l) of the
	// target's logits.
	Unadjusted float64

	Recovered int32   // drawn from (q - p)+ with the coin ResidualCoin of its position; rules match and coupled do not look at it
	Drawn     int32   // drawn from q, as [Rule.Draw] does at its position; only match and coupled look at it
	Margin    float64 // see [Outcome].Margins; NaN where there is none
}

// ErrDraw is what Decide finds of a token that its probabilities do not let be drawn.
var ErrDraw = errors.New("not within rounding of that token's part of the distribution")

// agree makes the numbers of the t-th drafted token, x, say of the coin u what the
// draw says: whether it lies in x's part of the distribution, and else on which side
// of it. The draw and the edges of the part come out of different sums, each with its
// own rounding; what the log says of them decides again. It is false where they are
// further apart than rounding is.
func (out *Outcome) agree(t int, x, drawn int32, u float64) bool {
	below, q := &out.Below[t], &out.Q[t]
	was, part := *below, *q
	switch {
	case drawn < x && u >= *below:
		*below = math.Nextafter(u, 2)
	case drawn > x:
		*below = min(*below, u)
		for n := 0.0; u < *below+*q; n++ {
			*q = max(0, u-*below-n*0x1p-53)
		}
	case drawn == x && part == 0:
		return false
	case drawn == x:
		*below = min(*below, u)
		for n := 0.0; u >= *below+*q; n++ {
			*q = max(*q, u-*below+n*0x1p-53)
		}
	}
	return math.Abs(*below-was) <= drawNear && math.Abs(*q-part) <= drawNear
}

// drawNear bounds how far sums of float32 over a vocabulary are off.
const drawNear = 1e-4

// Decide is [Verify] from the numbers of the drafted tokens: it accepts a prefix of
// them and adds one token more, last where all are accepted, which was drawn from
// the target's law after them by [Rule.Draw]. margin is that of last. The decisions,
// and what the Outcome says, are Verify's for the same numbers.
func Decide(rule Rule, drafted []int32, scored []Scored, last int32, margin float64, coins Uniforms, position int, out *Outcome) error {
	if len(scored) != len(drafted) {
		return fmt.Errorf("decide over %d drafted tokens by the numbers of %d: %w", len(drafted), len(scored), ErrShape)
	}
	out.reset()
	for t, x := range drafted {
		s := &scored[t]
		switch {
		case !(s.P >= 0) || !(s.Q >= 0) || math.IsInf(s.P, 0) || math.IsInf(s.Q, 0):
			return fmt.Errorf("decide over drafted token %d (id %d): p %v, q %v: %w", t+1, x, s.P, s.Q, ErrNotANumber)
		case s.P == 0:
			return fmt.Errorf("decide over drafted token %d (id %d): %w", t+1, x, ErrImpossibleDraft)
		}
		q := s.Q
		if rule.kind == lenientGreedy {
			q = s.Unadjusted
		}
		// What p(x) and q(x) say of the overlap holds of what is rounded, too.
		overlap := max(min(s.P, s.Q), min(s.Overlap, 1-math.Abs(s.P-s.Q)))
		out.P, out.Q, out.Overlap = append(out.P, s.P), append(out.Q, q), append(out.Overlap, overlap)
		switch rule.kind {
		case match:
			out.Below = append(out.Below, s.Below)
		case coupled:
			chance := 0.0
			if s.Q > 0 {
				chance = min(1, 1/(1+s.P/s.Q-s.Scaled))
			}
			out.Chance = append(out.Chance, chance)
		}
	}
	for t, x := range drafted {
		s := &scored[t]
		u := rule.Coin(coins, position+t, x)
		out.Coins = append(out.Coins, u)
		out.margin(s.Margin)
		instead, accepted := s.Recovered, false
		if rule.Invariant() {
			instead = s.Drawn
			if accepted = instead == x; rule.kind == match && !out.agree(t, x, instead, u) {
				return fmt.Errorf("decide over drafted token %d (id %d): token %d was drawn, and the coin %v is %w", t+1, x, instead, u, ErrDraw)
			}
		} else {
			accepted = rule.Accept(u, out.P[t], out.Q[t], 0)
		}
		if !accepted {
			out.Accepted, out.Token, out.Kind = t, instead, Recovered
			return nil
		}
	}
	out.Accepted, out.Token, out.Kind = len(drafted), last, Bonus
	out.margin(margin)
	return nil
}

// margin notes how near a decision was, where that is known.
func (out *Outcome) margin(m float64) {
	if !math.IsNaN(m) {
		out.Margins = append(out.Margins, m)
	}
}
