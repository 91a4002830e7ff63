package spec

import "fmt"

// Kind says where a loop's last token came from.
type Kind string

const (
	// Recovered: a drafted token was rejected and this one was drawn from the
	// residual in its place.
	Recovered Kind = "recovered"
	// Bonus: every drafted token was accepted and this one was drawn from the
	// target's distribution after them. Autoregressive tokens are of this kind.
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
	Q       []float64 // q(x~_t), t = 1 .. K
	Overlap []float64 // sum over x of min(p_t(x), q_t(x)), t = 1 .. K
	Coins   []float64 // the accept coins of the tokens that were examined: min(Accepted+1, K) of them
}

// Verify is the second half of Algorithm 2 of Chen et al.: given K drafted
// tokens, the draft's K distributions they were drawn from and the target's
// K+1, it accepts a prefix and draws one token more. The tokens
// drafted[:Accepted] followed by Token are distributed as K+1 (or fewer) draws
// from the target alone (their Theorem 1).
//
// position is the absolute position of drafted[0] in the sequence. With K = 0
// it is Algorithm 1: one draw from q[0].
func Verify(drafted []int32, p, q []Dist, coins Uniforms, position int, out *Outcome) error {
	if len(p) != len(drafted) || len(q) != len(drafted)+1 {
		return fmt.Errorf("verify %d drafted tokens with %d draft and %d target rows: %w", len(drafted), len(p), len(q), ErrShape)
	}
	out.P, out.Q, out.Overlap, out.Coins = out.P[:0], out.Q[:0], out.Overlap[:0], out.Coins[:0]
	for t, x := range drafted {
		if err := checkDraft(x, &p[t], &q[t]); err != nil {
			return fmt.Errorf("verify drafted token %d (id %d): %w", t+1, x, err)
		}
		out.P = append(out.P, p[t].Prob(x))
		out.Q = append(out.Q, q[t].Prob(x))
		out.Overlap = append(out.Overlap, Overlap(&p[t], &q[t]))
	}
	for t := range drafted {
		u := coins.Uniform(AcceptCoin, position+t)
		out.Coins = append(out.Coins, u)
		if Accept(u, out.P[t], out.Q[t]) {
			continue
		}
		x, err := Residual(&p[t], &q[t], coins.Uniform(ResidualCoin, position+t))
		if err != nil {
			return fmt.Errorf("recover from the rejection of drafted token %d: %w", t+1, err)
		}
		out.Accepted, out.Token, out.Kind = t, x, Recovered
		return nil
	}
	last := len(drafted)
	out.Accepted, out.Kind = last, Bonus
	out.Token = q[last].Sample(coins.Uniform(BonusCoin, position+last))
	return nil
}

// Accept is the test of Algorithm 2: r < min(1, q/p), written without the
// division.
func Accept(u, p, q float64) bool { return u*p < q }

// Residual draws a token from (q - p)+, normalized (Chen et al., equation 2)
// at u in [0, 1). A rejection has probability zero where q <= p everywhere, so
// an empty residual means that rounding let a rejection through where p and q
// agree; then (q - p)+ tends to q and the draw is from q.
func Residual(p, q *Dist, u float64) (int32, error) {
	if len(p.W) != len(q.W) {
		return 0, fmt.Errorf("residual of %d draft and %d target weights: %w", len(p.W), len(q.W), ErrShape)
	}
	weight := func(i int) float64 { return float64(q.W[i])/q.Sum - float64(p.W[i])/p.Sum }
	var mass float64
	for i := range q.W {
		mass += max(weight(i), 0)
	}
	if mass <= 0 {
		return q.Sample(u), nil
	}
	return invert(len(q.W), u*mass, weight), nil
}

// checkDraft checks what Verify takes for granted of one drafted token.
func checkDraft(x int32, p, q *Dist) error {
	switch {
	case len(p.W) != len(q.W):
		return fmt.Errorf("draft vocabulary %d, target vocabulary %d: %w", len(p.W), len(q.W), ErrShape)
	case x < 0 || int(x) >= len(p.W):
		return fmt.Errorf("id outside the vocabulary of %d: %w", len(p.W), ErrShape)
	case !(p.Sum > 0) || !(q.Sum > 0):
		return ErrNoMass
	case p.W[x] <= 0:
		return ErrImpossibleDraft
	}
	return nil
}
