package spec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Rule is how a drafted token is accepted or rejected. The zero value is
// Rejection. Its text form, as flags and files have it, is its name.
//
// With p(x), q(x) the probabilities of the drafted token and u a uniform number
// in [0, 1) of its position:
//
//	rejection   u p < q: Algorithm 2 of Chen et al. Lossless.
//	match       the target's own draw, made with the uniform that autoregressive
//	            sampling has at this position, is the drafted token. Lossless,
//	            and the output is the very one of autoregressive sampling
//	            with the same seed; accepts less: sum p q <= sum min(p, q).
//	coupled     as match, but draft and target draw with the same noise, by
//	            Gumbel-max: argmax log p + g and argmax log q + g (see [Noise]).
//	            Lossless, the output is again that of autoregressive sampling
//	            under this rule, and accepts almost as much as rejection.
//	lenient:l   u l p < q with 0 < l <= 1: p is multiplied by l before it is
//	            compared (Leviathan et al., appendix A.5). LOSSY for l < 1.
//	capped:b    r p < q with r = b u uniform on [0, b), 0 < b <= 1. LOSSY for
//	            b < 1, but for greedy decoding, which it leaves exact.
//
// Where a token is rejected, lenient and capped draw from the residual (q -
// p)+ as rejection does, and their distributions are the same: l = b.
//
// # Coupled
//
// Daliri, Musco, Suresh 2024, "Coupling without Communication and
// Drafter-Invariant Speculative Decoding" (arXiv 2408.07978). Draft and target
// agree with chance sum over x of 1 / sum over y of max(p(y)/p(x), q(y)/q(x)),
// which is at least (1 - d)/(1 + d), d = 1 - sum min(p, q); rejection accepts
// with chance 1 - d. The draft takes no part in what is drawn: only in how often
// it is guessed.
//
// # The bound of lenient and capped
//
// Let l be the factor of lenient or capped and e(x) the distribution of the token
// that is emitted at one position after a given prefix. Then e(x) <= q(x) / l for
// every x. For e(x) = a(x) + R r(x), where
//
//	a(x) = p(x) min(1, q(x) / (l p(x))) = min(p(x), q(x)/l)  x is drafted and accepted
//	R    = 1 - sum a                                         a drafted token is rejected
//	r(x) = (q(x) - p(x))+ / D, D = sum (q - p)+              x is recovered
//
// and a >= min(p, q) gives R <= 1 - sum min(p, q) = D. Where q(x) <= p(x),
// r(x) = 0 and e(x) = a(x) <= q(x)/l. Where q(x) > p(x), e(x) <= p(x) + (D/D)
// (q(x) - p(x)) = q(x). (Where D = 0, p = q and nothing is rejected.) So only
// tokens that the draft overrates gain, by a factor of at most 1/l, and none
// that the target cannot draw is emitted. There is no bound from below: a token
// may become as unlikely as the draft finds it, down to min(p, q). A run of n
// tokens may gain by (1/l)^n.
//
// # Temperature zero
//
// Greedily, p and q are one-hot and a factor changes nothing: q is 0 or 1.
// Appendix A.5 then compares before the distributions are made one-hot. With
// q' the softmax of the target's processed logits, lenient accepts where q'(x)
// >= l max q', whatever u is, and recovers the most probable token. So every
// token that is emitted has at least l times the unadjusted probability of the
// most probable one.
type Rule struct {
	kind   ruleKind
	factor float64
}

type ruleKind uint8

const (
	rejection ruleKind = iota
	match
	coupled
	lenient
	capped
	lenientGreedy
)

var ruleNames = [...]string{rejection: "rejection", match: "match", coupled: "coupled", lenient: "lenient", capped: "capped", lenientGreedy: "lenient"}

// Rejection is Algorithm 2 of Chen et al.
var Rejection = Rule{}

// ParseRule returns the rule of a name: rejection (or empty), match,
// coupled, lenient:l or capped:b.
func ParseRule(name string) (Rule, error) {
	head, tail, factor := strings.Cut(name, ":")
	var r Rule
	switch head {
	case "", "rejection":
	case "match":
		r.kind = match
	case "coupled":
		r.kind = coupled
	case "lenient":
		r.kind = lenient
	case "capped":
		r.kind = capped
	default:
		return Rule{}, fmt.Errorf("verification rule %q: use rejection, match, coupled, lenient:l or capped:b", name)
	}
	if want := r.kind == lenient || r.kind == capped; want != factor {
		if want {
			return Rule{}, fmt.Errorf("verification rule %q: give its factor, as in %s:0.5", name, head)
		}
		return Rule{}, fmt.Errorf("verification rule %q: %s takes no factor", name, r)
	}
	if factor {
		var err error
		if r.factor, err = strconv.ParseFloat(tail, 64); err != nil || !(r.factor > 0 && r.factor <= 1) {
			return Rule{}, fmt.Errorf("verification rule %q: the factor %q is not above 0 and at most 1", name, tail)
		}
	}
	return r, nil
}

// String returns the rule's name.
func (r Rule) String() string {
	if r.factor == 0 {
		return ruleNames[r.kind]
	}
	return ruleNames[r.kind] + ":" + strconv.FormatFloat(r.factor, 'g', -1, 64)
}

// MarshalText returns the rule's name.
func (r Rule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText takes a rule's name.
func (r *Rule) UnmarshalText(name []byte) (err error) {
	*r, err = ParseRule(string(name))
	return err
}

// IsZero reports whether the rule is Rejection.
func (r Rule) IsZero() bool { return r == Rule{} }

// For returns the rule as it applies to distributions that s made: greedily,
// lenient has its variant of temperature zero, and capped is rejection.
func (r Rule) For(s Sampling) Rule {
	switch {
	case s.Greedy() && r.kind == lenient && r.factor < 1:
		r.kind = lenientGreedy
	case s.Greedy() && (r.kind == lenient || r.kind == capped):
		return Rejection
	}
	return r
}

// Lossy reports whether the rule may change the distribution of the output.
func (r Rule) Lossy() bool { return r.factor != 0 && r.factor < 1 }

// Factor returns the l of lenient:l or the b of capped:b, and 1 of a lossless
// rule: no token is emitted with more than 1/Factor times its probability.
func (r Rule) Factor() float64 {
	if r.factor == 0 {
		return 1
	}
	return r.factor
}

// Bound says in one line what the rule guarantees.
func (r Rule) Bound() string {
	switch {
	case !r.Lossy():
		return "lossless: tokens have exactly the target's distribution"
	case r.kind == lenientGreedy:
		return fmt.Sprintf("LOSSY: no token has less than %g times the target's largest probability at its position", r.factor)
	default:
		return fmt.Sprintf("LOSSY: after any prefix, no token is more than %.6g times (1/%g) as likely as under the target", 1/r.factor, r.factor)
	}
}

// Invariant reports whether the output is that of autoregressive sampling with
// the same seed under the same rule, token for token, whatever drafts.
func (r Rule) Invariant() bool { return r.kind == match || r.kind == coupled }

// Inner returns the rule by which a draft model that is itself accelerated
// verifies the drafts made for it: one under which its tokens are those that it
// would draw alone, with the same noise.
func (r Rule) Inner() Rule {
	if r.kind == coupled {
		return r
	}
	return Rejection
}

// Autoregressive returns the rule as it applies where nothing is drafted: only
// coupled says how tokens are drawn there.
func (r Rule) Autoregressive() Rule { return r.Inner() }

// Draft draws x~ from p at an absolute position.
func (r Rule) Draft(p *Dist, u Uniforms, position int) int32 {
	if r.kind == coupled {
		return p.race(native{}, u.Noise(position), false).x
	}
	return p.Sample(u.Uniform(DraftCoin, position))
}

// Draw draws a token from q at an absolute position: a bonus token, and every
// token of autoregressive sampling. gap is that of [Dist.Race] under coupled,
// else NaN.
func (r Rule) Draw(q *Dist, u Uniforms, position int) (x int32, gap float64) {
	if r.kind == coupled {
		return q.Race(u.Noise(position))
	}
	return q.Sample(u.Uniform(BonusCoin, position)), math.NaN()
}

// Coin returns the number that decides over a drafted token x at an absolute
// position, as the log keeps it: a uniform, and under coupled the exponential
// noise of x.
func (r Rule) Coin(u Uniforms, position int, x int32) float64 {
	switch r.kind {
	case coupled:
		return u.Noise(position).At(x)
	case match:
		return u.Uniform(BonusCoin, position)
	default:
		return u.Uniform(AcceptCoin, position)
	}
}

// Replays reports whether [Rule.Accept] can decide again from a log. Under
// coupled a decision needs the whole distribution.
func (r Rule) Replays() bool { return r.kind != coupled }

// Accept decides over one drafted token from the numbers that an [Outcome]
// keeps of it, and can so be replayed: its coin u, p and q, and, for match,
// below; other rules do not look at it.
func (r Rule) Accept(u, p, q, below float64) bool {
	switch r.kind {
	case match:
		return below <= u && u < below+q
	case lenient, capped:
		return u*r.factor*p < q
	case lenientGreedy:
		return q >= r.factor
	default:
		return Accept(u, p, q)
	}
}

// Accept is the test of Algorithm 2: u < min(1, q/p), written without the
// division.
func Accept(u, p, q float64) bool { return u*p < q }
