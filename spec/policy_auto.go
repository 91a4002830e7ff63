package spec

import (
	"math"
	"time"
)

// Auto chooses the lookahead that promises most tokens per unit of time, 0
// included. It compares, for every K up to its maximum,
//
//	E(K) / T(K),  E(K) = 1 + a1 + a1 a2 + .. + a1 .. aK,  T(K) = draft(K) + verify(K),
//
// with running estimates of a_t, the chance that position t is accepted once
// verification has come to it, and of both times, which are measured while
// running: what drafted and scored tokens cost depends on the models, the
// machine, the context and on who else uses the processor.
//
// It is lossless because K is chosen before the loop draws (see [Policy]).
// Which tokens come out depends on the clock, through the K chosen; their law
// does not.
//
// What is best now has to be held against what it may be missing. Auto keeps a
// purse into which every loop pays exploreShare of its time, and tries another
// K when the purse covers what the attempt is expected to lose. So a draft
// that is of no use costs no more than that share, however slow it is, and one
// that has become useful is found out.
type Auto struct {
	max    int
	verify curve // by the number of drafted tokens, 0 to max
	draft  curve // likewise; draft(0) = 0
	feed   ratio // time per token that the drafter lags behind
	length ratio // tokens per sequence

	engine acceptance // over all sequences
	own    acceptance // of this one
	tokens int        // of this one

	purse   float64 // nanoseconds that attempts may lose
	attempt attempt // the loop under way, if it is one
	turn    int     // which attempt is next
	since   int     // loops since the last one
}

// attempt is a loop whose lookahead is not thought the best.
type attempt struct {
	under bool
	worth float64 // nanoseconds that its tokens would have taken with the best lookahead
	time  float64 // nanoseconds that it is expected to take
}

const (
	// exploreShare is the part of the time that attempts may lose.
	exploreShare = 0.005
	// attemptEvery is the least number of loops from one attempt to the next.
	attemptEvery = 8
	// unknownLength stands for a sequence's length before one has ended.
	unknownLength = 128
)

// NewAuto returns a policy that drafts at most k tokens a loop and has not
// seen any.
func NewAuto(k int) *Auto {
	a := &Auto{max: k, verify: newCurve(k), draft: newCurve(k), engine: newAcceptance(k), own: newAcceptance(k)}
	a.draft.pin(0, 0)
	return a
}

// Begin implements [Policy]: the drafter is fed at once where the first loop
// would draft although it had to pay for that.
func (a *Auto) Begin(lag int) bool {
	if a.tokens > 0 {
		a.length.add(float64(a.tokens), 1)
	}
	a.tokens = 0
	a.own.clear()
	k, _ := a.best(math.MaxInt32, lag)
	return k > 0
}

// Next implements [Policy].
func (a *Auto) Next(room, lag int) int {
	a.attempt = attempt{}
	if room <= 0 {
		return 0
	}
	k, rate := a.best(room, lag)
	a.since++
	if !a.verify.known(0) && a.since > 1 { // what all else is held against
		a.since = 0
		return 0
	}
	if a.since < attemptEvery {
		return k
	}
	other, ok := a.other(k, min(room, a.max))
	if !ok {
		return k
	}
	t := a.time(other)
	if other > 0 {
		t += a.feed.mean() * float64(lag)
	}
	worth := a.expected(other) / rate
	if t-worth > a.purse {
		return k // and save up for it
	}
	a.attempt = attempt{under: true, worth: worth, time: t}
	a.turn++
	a.since = 0
	return other
}

// More implements [Policy]: K is settled before the loop.
func (a *Auto) More(float64) bool { return true }

// Observe implements [Policy].
func (a *Auto) Observe(r Round) {
	a.tokens += r.Emitted
	a.engine.observe(r, engineMemory)
	a.own.fade(sequenceMemory)
	a.own.observe(r, 1)
	if r.Drafted <= a.max {
		a.verify.add(r.Drafted, float64(r.Verify))
		a.draft.add(r.Drafted, float64(r.Draft))
	}
	if r.Fed > 0 {
		a.feed.add(float64(r.Feeding), float64(r.Fed))
	}
	t := float64(r.Feeding + r.Draft + r.Verify)
	a.purse += exploreShare * t
	if a.attempt.under {
		a.purse -= max(0, min(t, outlier*a.attempt.time)-a.attempt.worth)
	}
}

// best returns the lookahead of the highest rate, and the rate, in tokens per
// nanosecond. Feeding a drafter that lags is paid off over the tokens that the
// sequence still expects.
func (a *Auto) best(room, lag int) (k int, rate float64) {
	left := float64(unknownLength)
	if a.length.weight > 0 {
		left = a.length.mean()
	}
	left = min(max(left-float64(a.tokens), left/4), float64(room+1))
	feeding := a.feed.mean() * float64(lag) / left // per token

	// Costs that nobody has measured are guessed low, so that they will be;
	// only not many tokens beyond the measured ones at a time.
	reach := min(a.max, room, max(1, 4*a.verify.last()))
	rate = 1 / a.time(0)
	for n := 1; n <= reach; n++ {
		e := a.expected(n)
		if r := e / (a.time(n) + feeding*e); r > rate {
			k, rate = n, r
		}
	}
	return k, rate
}

// other is the next lookahead to try beside the best: one more, none, one
// less, in turn, so that no estimate that the choice rests on grows old.
func (a *Auto) other(k, room int) (int, bool) {
	for range 3 {
		n := [...]int{k + 1, 0, k - 1}[a.turn%3]
		if n >= 0 && n <= room && n != k {
			return n, true
		}
		a.turn++
	}
	return k, false
}

// time is what a loop of k drafted tokens is expected to take, in nanoseconds.
func (a *Auto) time(k int) float64 { return max(1, a.draft.at(k)+a.verify.at(k)) }

// expected is how many tokens a loop of k drafted tokens is expected to give.
func (a *Auto) expected(k int) float64 {
	e, reached := 1.0, 1.0
	pooled := a.engine.pooled()
	for t := range k {
		reached *= a.own.at(t, a.engine.at(t, pooled, enginePrior), sequencePrior)
		e += reached
	}
	return e
}

// Time returns what the policy has measured a loop of k drafted tokens to
// take, or guesses by those that it has measured.
func (a *Auto) Time(k int) time.Duration { return time.Duration(a.time(k)) }
