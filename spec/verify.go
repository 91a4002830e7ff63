package spec

import (
	"fmt"
	"math"
)

// Kind says where a loop's last token came from.
type Kind string

const (
	// Recovered means that a drafted token was rejected and this one stands in
	// its place, drawn from the residual; under the rules match and coupled, from the target.
	Recovered Kind = "recovered"
	// Bonus means that every drafted token was accepted and this one was drawn
	// from the target's distribution after them. Autoregressive tokens are of
	// this kind.
	Bonus Kind = "bonus"
)

// Outcome is what one loop decided, with the numbers that every decision
// rested on: enough to replay it without the models. Slices are reused from
// one loop to the next; copy what must outlive it.
type Outcome struct {
	Accepted int   // how many drafted tokens are kept, 0 to K
	Token    int32 // the token after them
	Kind     Kind

	P       []float64 // p(x~_t), t = 1 .. K
	Q       []float64 // q(x~_t), t = 1 .. K; for lenient at temperature zero q'(x~_t) / max q', see [Rule]
	Overlap []float64 // sum over x of min(p_t(x), q_t(x)), t = 1 .. K
	Coins   []float64 // what decided over the tokens that were examined, min(Accepted+1, K) of them: see [Rule.Coin]
	Below   []float64 // rule match only: q of the ids below x~_t, t = 1 .. K; else empty
	Chance  []float64 // rule coupled only: the chance that x~_t is accepted, given that it was drafted, t = 1 .. K
	// Margins say of the tokens that were kept, Accepted and Token, how near the
	// target was to another one: at temperature zero the largest minus the second
	// largest logit, and under coupled otherwise the gap of [Dist.Race]. Else
	// empty.
	Margins []float64
}

// Verify is the second half of Algorithm 2 of Chen et al.: given K drafted
// tokens, the draft's K distributions they were drawn from and the target's
// K+1, it accepts a prefix and adds one token more. Under a lossless rule the
// tokens drafted[:Accepted] followed by Token are distributed as K+1 (or
// fewer) draws from the target alone (their Theorem 1).
//
// position is the absolute position of drafted[0] in the sequence. With K = 0
// it is Algorithm 1: one draw from q[0].
func Verify(rule Rule, drafted []int32, p, q []Dist, coins Uniforms, position int, out *Outcome) error {
	return verify(native{}, rule, drafted, p, q, coins, position, out)
}

func verify(k kernel, rule Rule, drafted []int32, p, q []Dist, coins Uniforms, position int, out *Outcome) error {
	if len(p) != len(drafted) || len(q) != len(drafted)+1 {
		return fmt.Errorf("verify %d drafted tokens with %d draft and %d target rows: %w", len(drafted), len(p), len(q), ErrShape)
	}
	last := len(drafted)
	if err := q[last].check(); err != nil {
		return fmt.Errorf("verify %d drafted tokens: the last target row: %w", last, err)
	}
	if len(q[last].W) != len(q[0].W) {
		return fmt.Errorf("verify %d drafted tokens: target vocabularies %d and %d: %w", last, len(q[0].W), len(q[last].W), ErrShape)
	}
	out.reset()
	for t, x := range drafted {
		if err := out.examine(k, rule, x, &p[t], &q[t]); err != nil {
			return fmt.Errorf("verify drafted token %d (id %d): %w", t+1, x, err)
		}
	}
	for t, x := range drafted {
		accepted, instead := out.decide(k, rule, t, x, &p[t], &q[t], coins, position+t)
		if !accepted {
			out.Accepted, out.Token, out.Kind = t, instead, Recovered
			return nil
		}
	}
	x, gap := rule.Draw(&q[last], coins, position+last)
	out.Accepted, out.Token, out.Kind = last, x, Bonus
	out.decided(&q[last], gap)
	return nil
}

// decide accepts x, the t-th drafted token, or gives the token in its place.
//
// A rule whose output does not depend on the draft has the target draw, and
// accepts what is drawn; the others compare q/p with a uniform and recover from
// the residual.
func (out *Outcome) decide(k kernel, rule Rule, t int, x int32, p, q *Dist, coins Uniforms, position int) (accepted bool, instead int32) {
	u, gap := rule.Coin(coins, position, x), math.NaN()
	out.Coins = append(out.Coins, u)
	if rule.Invariant() {
		instead, gap = rule.Draw(q, coins, position)
		accepted = instead == x
	} else if accepted = rule.Accept(u, out.P[t], out.Q[t], 0); !accepted {
		instead = residual(k, p, q, coins.Uniform(ResidualCoin, position))
	}
	out.decided(q, gap)
	return accepted, instead
}

// decided notes how near the decision at q was to falling otherwise, where that
// is known.
func (out *Outcome) decided(q *Dist, gap float64) {
	if q.logits != nil {
		gap = q.Margin()
	}
	if !math.IsNaN(gap) {
		out.Margins = append(out.Margins, gap)
	}
}

func (out *Outcome) reset() {
	out.P, out.Q, out.Overlap, out.Coins = out.P[:0], out.Q[:0], out.Overlap[:0], out.Coins[:0]
	out.Below, out.Chance, out.Margins = out.Below[:0], out.Chance[:0], out.Margins[:0]
}

// examine checks what Verify takes for granted of one drafted token and notes
// the numbers that decide over it.
func (out *Outcome) examine(k kernel, rule Rule, x int32, p, q *Dist) error {
	switch {
	case len(p.W) != len(q.W):
		return fmt.Errorf("draft vocabulary %d, target vocabulary %d: %w", len(p.W), len(q.W), ErrShape)
	case x < 0 || int(x) >= len(p.W):
		return fmt.Errorf("id outside the vocabulary of %d: %w", len(p.W), ErrShape)
	}
	if err := p.check(); err != nil {
		return fmt.Errorf("the draft's row: %w", err)
	}
	if err := q.check(); err != nil {
		return fmt.Errorf("the target's row: %w", err)
	}
	if p.W[x] <= 0 {
		return ErrImpossibleDraft
	}
	at := q.Prob(x)
	if rule.kind == lenientGreedy {
		if at = q.Unadjusted(x); at != at {
			return fmt.Errorf("the rule %s at temperature zero needs the target's logits: %w", rule, ErrShape)
		}
	}
	out.P = append(out.P, p.Prob(x))
	out.Q = append(out.Q, at)
	switch rule.kind {
	case match:
		out.Below = append(out.Below, q.Below(x))
	case coupled:
		both, chance := agreement(k, x, p, q)
		out.Overlap, out.Chance = append(out.Overlap, both), append(out.Chance, chance)
		return nil
	}
	out.Overlap = append(out.Overlap, overlap(k, p, q))
	return nil
}

// agreement returns the overlap and the probability, over the noise, that the
// target draws x under coupled where the draft has: 1 / sum over y of max(p(y),
// c q(y)) with c = p(x)/q(x), that is 1 / (1 + c - sum of min(p, c q)). Its mean
// over x from p is the acceptance of the rule.
func agreement(k kernel, x int32, p, q *Dist) (both, chance float64) {
	to := q.Prob(x)
	if to == 0 {
		return overlap(k, p, q), 0
	}
	c := p.Prob(x) / to
	var scaled float64
	if p.form != sparse && q.form != sparse {
		both, scaled = k.overlaps(p, q, c)
	} else {
		ip, iq := 1/p.Sum, 1/q.Sum
		for _, i := range shorter(p, q) {
			at, to := float64(p.W[i])*ip, float64(q.W[i])*iq
			both += min(at, to)
			scaled += min(at, c*to)
		}
	}
	return min(1, both), min(1, 1/(1+c-scaled))
}

// Residual draws a token from (q - p)+, normalized (Chen et al., equation 2)
// at u in [0, 1). A rejection has probability zero where q <= p everywhere, so
// an empty residual means that rounding let a rejection through where p and q
// agree; then (q - p)+ tends to q and the draw is from q. p and q are rows
// over the same vocabulary.
func Residual(p, q *Dist, u float64) int32 { return residual(native{}, p, q, u) }

func residual(k kernel, p, q *Dist, u float64) int32 {
	ip, iq := 1/p.Sum, 1/q.Sum
	surplus := func(i int32) float64 { return float64(float64(q.W[i])*iq) - float64(float64(p.W[i])*ip) }
	x := int32(-1)
	if q.form == sparse {
		var mass, acc float64
		for _, i := range q.ids {
			mass += max(surplus(i), 0)
		}
		for _, i := range q.ids {
			if w := surplus(i); w > 0 {
				x = i
				if acc += w; acc > u*mass {
					break
				}
			}
		}
	} else {
		q.spare = grow(q.spare, blocksOf(len(q.W)))
		mass := k.surplus(p, q, q.spare)
		b, acc := skip(q.spare, u*mass)
		for i := max(b, 0) * blockLen; b >= 0 && i < min((b+1)*blockLen, len(q.W)); i++ {
			if w := surplus(int32(i)); w > 0 {
				x = int32(i)
				if acc += w; acc > u*mass {
					break
				}
			}
		}
	}
	if x < 0 {
		return q.Sample(u)
	}
	return x
}
