package spec

import "errors"

// Errors of a model output that is no distribution. They reach the row that
// was being decoded; the job goes on.
var (
	// ErrNotANumber reports a NaN or +Inf among the logits.
	ErrNotANumber = errors.New("logits hold NaN or +Inf")
	// ErrNoMass reports logits that leave no token possible (all -Inf).
	ErrNoMass = errors.New("logits leave no token with a positive probability")
	// ErrImpossibleDraft reports a drafted token to which its own
	// distribution p gives no probability: the drafter lies about its law.
	ErrImpossibleDraft = errors.New("drafted token has probability zero under the draft")
	// ErrShape reports rows whose numbers do not fit together.
	ErrShape = errors.New("shapes do not fit")
)

// Dist is a standardized distribution over the vocabulary: non-negative
// weights W, one a token, and their sum. The probability of token i is W[i] /
// Sum, taken in float64; every decision of this package uses exactly this
// number, so that a log of it replays bit by bit.
//
// A Dist owns W and reuses it from one Standardize to the next.
type Dist struct {
	W   []float32
	Sum float64

	order []int32 // scratch of the top-k and top-p selections
}

// Prob returns the probability of token x.
func (d *Dist) Prob(x int32) float64 { return float64(d.W[x]) / d.Sum }

// Sample draws a token by inverting the cumulative distribution in the order
// of the token ids at u in [0, 1). A token of weight zero is never drawn.
func (d *Dist) Sample(u float64) int32 {
	return invert(len(d.W), u*d.Sum, func(i int) float64 { return float64(d.W[i]) })
}

// Overlap returns sum over x of min(p(x), q(x)), the probability that a token
// drawn from p is accepted for q (Leviathan et al., Theorem 3.5).
func Overlap(p, q *Dist) float64 {
	var s float64
	ip, iq := 1/p.Sum, 1/q.Sum
	for i, w := range p.W {
		s += min(float64(w)*ip, float64(q.W[i])*iq)
	}
	return min(s, 1)
}

// invert walks the weights until their running sum exceeds t and returns where
// it stopped. When rounding leaves t at or above the total, the last index of
// positive weight is the answer; -1 when there is none.
func invert(n int, t float64, weight func(int) float64) int32 {
	last, acc := int32(-1), 0.0
	for i := range n {
		w := weight(i)
		if w <= 0 {
			continue
		}
		last = int32(i)
		if acc += w; acc > t {
			break
		}
	}
	return last
}
