package spec

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Errors of a model output that is no distribution. They reach the row that
// was being decoded; the job goes on.
var (
	// ErrNotANumber reports a NaN or +Inf among the logits, or a weight that
	// is no finite number of at least zero.
	ErrNotANumber = errors.New("NaN, or infinite, where a number is needed")
	// ErrNoMass reports a row that leaves no token possible (all -Inf).
	ErrNoMass = errors.New("no token has a positive probability")
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
// A Dist owns W and reuses it from one Standardize to the next. What is made
// by hand is a new Dist{W: ..., Sum: ...}, or an old one after Reset: W and Sum
// of a standardized one are for reading.
type Dist struct {
	W   []float32
	Sum float64

	form   form
	ids    []int32   // sparse: the tokens of positive weight, ascending
	blocks []float64 // blocked: the sums of W over blocks of blockLen
	keys   []int32   // scratch of cut
	spare  []float64 // scratch of Residual
	row    []float32 // scratch of Chain: the logits after its processors
	logits []float32 // greedy: what W is the peak of; borrowed
}

// form is what is known of a Dist beside W and Sum, so that what walks over it
// need not look at every token.
type form uint8

const (
	unknown form = iota
	blocked
	sparse // and W is zero elsewhere
)

// blockLen is the length of the blocks whose sums a Dist keeps (SPEC_BLOCK in
// kernel.h).
const blockLen = 256

func blocksOf(vocab int) int { return (vocab + blockLen - 1) / blockLen }

// Reset makes d ready to be filled by hand with vocab weights: W has that
// length and undefined contents, and Sum is to be set to their sum.
func (d *Dist) Reset(vocab int) { d.resize(vocab) }

// Prob returns the probability of token x.
func (d *Dist) Prob(x int32) float64 { return float64(d.W[x]) / d.Sum }

// Sample draws a token by inverting the cumulative distribution in the order
// of the token ids at u in [0, 1). A token of weight zero is never drawn. When
// rounding leaves u at or above the whole mass, the last possible token is the
// answer.
func (d *Dist) Sample(u float64) int32 {
	t := u * d.Sum
	switch d.form {
	case sparse:
		acc := 0.0
		for _, i := range d.ids {
			if acc += float64(d.W[i]); acc > t {
				return i
			}
		}
		return d.ids[len(d.ids)-1]
	case blocked:
		b, acc := skip(d.blocks, t)
		return d.invert(b*blockLen, min((b+1)*blockLen, len(d.W)), acc, t)
	default:
		return d.invert(0, len(d.W), 0, t)
	}
}

// invert walks W[from:to], whose cumulative weight begins at acc, until it
// exceeds t.
func (d *Dist) invert(from, to int, acc, t float64) int32 {
	last := int32(-1)
	for i := from; i < to; i++ {
		if w := float64(d.W[i]); w > 0 {
			last = int32(i)
			if acc += w; acc > t {
				break
			}
		}
	}
	return last
}

// skip returns the first block at whose end the cumulative mass exceeds t, or
// the last that has any, and the mass before it; -1 when none has.
func skip(blocks []float64, t float64) (b int, before float64) {
	b = -1
	var acc float64
	for i, m := range blocks {
		if m <= 0 {
			continue
		}
		b, before = i, acc
		if acc += m; acc > t {
			break
		}
	}
	return b, before
}

// Below returns the probability of the tokens with smaller ids than x: Sample
// gives x where its coin lies in [Below(x), Below(x) + Prob(x)).
func (d *Dist) Below(x int32) float64 {
	var acc float64
	switch d.form {
	case sparse:
		for _, i := range d.ids {
			if i >= x {
				break
			}
			acc += float64(d.W[i])
		}
		return acc / d.Sum
	case blocked:
		b := int(x) / blockLen
		for _, m := range d.blocks[:b] {
			acc += m
		}
		for _, w := range d.W[b*blockLen : x] {
			acc += float64(w)
		}
	default:
		for _, w := range d.W[:x] {
			acc += float64(w)
		}
	}
	return acc / d.Sum
}

// Margin returns the largest logit minus the second largest: how near a greedy
// choice was to falling otherwise. It is +Inf where only one is finite, and NaN
// where d was not made at temperature zero. It reads the logits that d was made
// from, which have to be there still.
func (d *Dist) Margin() float64 {
	if d.logits == nil {
		return math.NaN()
	}
	at, second := int(d.ids[0]), math.Inf(-1)
	for _, others := range [][]float32{d.logits[:at], d.logits[at+1:]} {
		if i, err := (native{}).peak(others); err == nil {
			second = math.Max(second, float64(others[i]))
		}
	}
	return float64(d.logits[at]) - second
}

// Unadjusted returns the probability of x relative to that of the most
// probable token, as both were before temperature zero left only the latter:
// exp(l(x) - max l) of the logits that d was made from, which have to be there
// still. It is NaN where d was not made at temperature zero.
func (d *Dist) Unadjusted(x int32) float64 {
	if d.logits == nil {
		return math.NaN()
	}
	return math.Exp(float64(d.logits[x]) - float64(d.logits[d.ids[0]]))
}

// Overlap returns sum over x of min(p(x), q(x)), the probability that a token
// drawn from p is accepted for q (Leviathan et al., Theorem 3.5).
func Overlap(p, q *Dist) float64 { return overlap(native{}, p, q) }

func overlap(k kernel, p, q *Dist) float64 {
	if p.form != sparse && q.form != sparse {
		return min(k.overlap(p, q), 1)
	}
	var sum float64
	ip, iq := 1/p.Sum, 1/q.Sum
	for _, i := range shorter(p, q) {
		sum += min(float64(p.W[i])*ip, float64(q.W[i])*iq)
	}
	return min(sum, 1)
}

// shorter returns the ids of p or of q, of which at least one is sparse:
// everything that both can draw is among them.
func shorter(p, q *Dist) []int32 {
	if p.form != sparse || q.form == sparse && len(q.ids) < len(p.ids) {
		return q.ids
	}
	return p.ids
}

// setOneHot makes d the law of one certain token.
func (d *Dist) setOneHot(vocab int, x int32) {
	d.blank(vocab)
	d.W[x], d.Sum = 1, 1
	d.ids, d.form = append(d.ids[:0], x), sparse
}

// blank makes all weights zero, at the cost of those that are not.
func (d *Dist) blank(vocab int) {
	if d.form == sparse && len(d.W) == vocab {
		for _, i := range d.ids {
			d.W[i] = 0
		}
		d.form, d.logits = unknown, nil
		return
	}
	d.resize(vocab)
	clear(d.W)
}

// resize gives d room for vocab weights, whose values are undefined, and
// forgets what was known of them.
func (d *Dist) resize(vocab int) {
	d.W = grow(d.W, vocab)
	d.form, d.logits = unknown, nil
}

// check looks at a Dist of which nothing is known: what this package made is
// right by construction.
func (d *Dist) check() error {
	if d.form != unknown {
		return nil
	}
	var sum float64
	for i, w := range d.W {
		if !(w >= 0) || math.IsInf(float64(w), 0) {
			return fmt.Errorf("weight %d is %v: %w", i, w, ErrNotANumber)
		}
		sum += float64(w)
	}
	switch {
	case sum == 0:
		return ErrNoMass
	case !(math.Abs(sum-d.Sum) <= 1e-6*sum):
		return fmt.Errorf("the weights sum to %v, Sum is %v: %w", sum, d.Sum, ErrShape)
	}
	return nil
}

// grow returns s with length n and undefined contents.
func grow[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
