package verify

import (
	"fmt"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// slack is how far sums over a vocabulary may be off by rounding.
const slack = 1e-6

// decide replays the decisions of one loop and says what differs, or nothing.
//
// The drafted tokens up to the first rejection are examined, each with the
// coin of its own position; the production test of the job's rule says which
// are accepted. The loop ends with a recovered token where one was rejected
// and with a bonus token where none was.
func (r *replay) decide(l *storage.Loop, coins spec.Coins) string {
	n := len(l.Drafted)
	below, chance := 0, 0
	switch {
	case !r.rule.Replays():
		chance = n
	case r.rule.Invariant():
		below = n
	}
	if len(l.P) != n || len(l.Q) != n || len(l.Overlap) != n || len(l.Below) != below || len(l.Chance) != chance {
		return fmt.Sprintf("%d drafted tokens have %d p, %d q, %d overlaps, %d below and %d chances", n, len(l.P), len(l.Q), len(l.Overlap), len(l.Below), len(l.Chance))
	}
	if l.Accepted < 0 || int(l.Accepted) > n {
		return fmt.Sprintf("%d of %d drafted tokens are accepted", l.Accepted, n)
	}
	if l.Token < 0 {
		return fmt.Sprintf("its last token is %d", l.Token)
	}
	for t := range n {
		if what := r.possible(l, t); what != "" {
			return fmt.Sprintf("drafted token %d: %s", t, what)
		}
	}
	accepted := 0
	for t, x := range l.Drafted {
		if t >= len(l.Coins) {
			return fmt.Sprintf("drafted token %d was examined and has no coin", t)
		}
		if u := r.rule.Coin(coins, int(l.Position)+t, x); l.Coins[t] != u {
			return fmt.Sprintf("drafted token %d: its coin is %v, the seed gives %v", t, l.Coins[t], u)
		}
		if !r.accepts(l, t) {
			break
		}
		accepted++
	}
	switch {
	case int(l.Accepted) != accepted:
		return fmt.Sprintf("%d drafted tokens are accepted; the coins, p and q accept %d", l.Accepted, accepted)
	case len(l.Coins) != min(accepted+1, n):
		return fmt.Sprintf("%d coins for %d examined tokens", len(l.Coins), min(accepted+1, n))
	case accepted == n && l.Kind != storage.KindBonus:
		return fmt.Sprintf("every drafted token is accepted and the last token is called %s", l.Kind)
	case accepted < n && l.Kind != storage.KindRecovered:
		return fmt.Sprintf("drafted token %d is rejected and the last token is called %s", accepted, l.Kind)
	case accepted < n && l.Token == l.Drafted[accepted] && (r.rule.Invariant() || l.P[accepted] > l.Q[accepted]+slack):
		// The residual (q - p)+ is zero where p exceeds q; the target's own draw
		// was another token.
		return fmt.Sprintf("token %d is recovered and was just rejected", l.Token)
	}
	return ""
}

// accepts decides over the t-th drafted token again. Under the rule coupled that
// takes the whole distribution: what the log says is believed here, and checked
// where the models are at hand.
func (r *replay) accepts(l *storage.Loop, t int) bool {
	if !r.rule.Replays() {
		return t < int(l.Accepted)
	}
	below := 0.0
	if len(l.Below) > 0 {
		below = l.Below[t]
	}
	return r.rule.Accept(l.Coins[t], l.P[t], l.Q[t], below)
}

// possible checks that the numbers of one drafted token can be probabilities
// of it, and the overlap that of the two distributions it is from.
//
// The overlap is sum min(p, q). It is at least the drafted token's own part,
// and at most 1 - |p(x) - q(x)| for any x, because it is 1 minus the total
// variation. Lenient greedy decoding logs another q, of before it was made
// one-hot.
func (r *replay) possible(l *storage.Loop, t int) string {
	p, q, overlap := l.P[t], l.Q[t], l.Overlap[t]
	greedy := r.job.Sampling.Greedy()
	switch {
	case l.Drafted[t] < 0:
		return fmt.Sprintf("it is %d", l.Drafted[t])
	case !(p > 0 && p <= 1+slack):
		return fmt.Sprintf("p is %v, which no draft can have drawn", p)
	case !(q >= 0 && q <= 1+slack):
		return fmt.Sprintf("q is %v", q)
	case len(l.Below) > 0 && !(l.Below[t] >= 0 && l.Below[t]+q <= 1+slack):
		return fmt.Sprintf("below is %v with q %v", l.Below[t], q)
	case len(l.Chance) > 0 && !(l.Chance[t] >= 0 && l.Chance[t] <= min(1, q/p)+slack):
		return fmt.Sprintf("its chance is %v with p %v and q %v", l.Chance[t], p, q)
	case !(overlap >= 0 && overlap <= 1):
		return fmt.Sprintf("overlap is %v", overlap)
	case greedy && r.rule.Lossy():
		return ""
	case overlap < min(p, q)-slack, overlap > 1-max(p-q, q-p)+slack:
		return fmt.Sprintf("overlap is %v, which p %v and q %v do not allow", overlap, p, q)
	case greedy && q != 0 && q != 1:
		return fmt.Sprintf("q is %v at temperature 0", q)
	}
	return ""
}
