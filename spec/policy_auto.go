package spec

import (
	"math"
	"time"
)

// Auto chooses the lookahead that promises most tokens per unit of time, 0
// included. For a batch of n lanes it compares, for every K up to its maximum,
//
//	sum over lanes of E(K) / T(n, K),  E(K) = 1 + a1 + a1 a2 + .. + a1 .. aK,
//	T(n, K) = draft(n, K) + verify(n, K),
//
// with running estimates of a_t, the chance that position t is accepted once
// verification has come to it, for every sequence, and of both times: what
// drafted and scored tokens cost depends on the models, the machine, the
// context and on who else uses the processor. The costs are measured once
// before the first loop ([Auto.Measured]), and go on being measured.
//
// It is lossless because K is chosen before the loop draws (see [Policy]).
// Which tokens come out depends on the clock, through the K chosen; their law
// does not.
//
// Acceptance shows only where something is drafted. Auto keeps a purse into
// which every loop pays exploreShare of its time, and drafts one token more
// than it thinks best when the purse covers what that is expected to lose. So a
// draft that is of no use costs no more than that share, however slow it is, and
// one that has become useful is found out.
type Auto struct {
	least, most int
	verify      *costs
	draft       *costs
	feed        mean // time per token that the drafter lags behind
	length      mean // tokens per sequence
	engine      acceptance

	purse   float64 // nanoseconds that attempts may lose
	attempt attempt // the loop under way, if it is one
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
	attemptEvery = 16
	// unknownLength stands for a sequence's length before one has ended.
	unknownLength = 128
	// lengthMemory bounds the number of sequences that their mean length is of.
	lengthMemory = 1 - 1.0/128
)

// NewAuto returns a policy for up to so many lanes that drafts at least least
// and at most most tokens a loop. Where the two are equal it chooses nothing
// but [Auto.Width].
func NewAuto(lanes, least, most int) *Auto {
	return &Auto{
		least: least, most: most,
		verify: newCosts(lanes, most), draft: newCosts(lanes, most), engine: newAcceptance(most),
	}
}

// Measured takes, before the first loop, what drafting k tokens for so many
// lanes takes, and what scoring and verifying them does. Cells that nobody
// measures are interpolated; of several measurements of a cell the least counts.
func (a *Auto) Measured(lanes, k int, draft, verify time.Duration) {
	a.draft.measured(lanes, 0, 0)
	a.draft.measured(lanes, k, float64(draft))
	a.verify.measured(lanes, k, float64(verify))
}

// Ready ends the measurements.
func (a *Auto) Ready() {
	a.draft.interpolate()
	a.verify.interpolate()
}

// Fixed reports whether there is one lookahead only.
func (a *Auto) Fixed() bool { return a.least == a.most }

// Most is the largest lookahead.
func (a *Auto) Most() int { return a.most }

// Begin implements [Policy]: the drafter is fed at once where the first loop
// would draft although it had to pay for that.
func (a *Auto) Begin(l *Lane) bool {
	if l.tokens > 0 {
		a.length.sum = lengthMemory*a.length.sum + float64(l.tokens)
		a.length.weight = lengthMemory*a.length.weight + 1
	}
	l.tokens = 0
	if l.own.tried == nil {
		l.own = newAcceptance(a.most)
	}
	l.own.clear()
	room := l.Room
	l.Room = math.MaxInt32
	k, _ := a.best([]*Lane{l})
	l.Room = room
	return k > 0
}

// Next implements [Policy].
func (a *Auto) Next(lanes []*Lane) int {
	a.attempt = attempt{}
	if a.Fixed() {
		return a.most
	}
	k, rate := a.best(lanes)
	a.since++
	room := 0
	for _, l := range lanes {
		room = max(room, l.Room)
	}
	if more := k + 1; a.since >= attemptEvery && more <= min(room, a.most) {
		worth, t := a.promise(lanes, more)
		for _, l := range lanes { // an attempt feeds for itself alone
			t += a.feed.mean() * float64(l.Lag)
		}
		if worth /= rate; t-worth <= a.purse { // else save up for it
			a.attempt = attempt{under: true, worth: worth, time: t}
			a.since = 0
			k = more
		}
	}
	return k
}

// More implements [Policy]: K is settled before the loop.
func (a *Auto) More(float64) bool { return true }

// Observe implements [Policy].
func (a *Auto) Observe(lanes []*Lane, r Round) {
	drafted := 0
	for _, l := range lanes {
		l.tokens += l.Emitted
		a.engine.observe(l.Drafted, l.Accepted, engineMemory)
		l.own.fade(sequenceMemory)
		l.own.observe(l.Drafted, l.Accepted, 1)
		drafted = max(drafted, l.Drafted)
	}
	a.verify.add(len(lanes), drafted, float64(r.Verify))
	if drafted > 0 {
		a.draft.add(len(lanes), drafted, float64(r.Draft))
	}
	if r.Fed > 0 {
		a.feed.sum = costMemory*a.feed.sum + float64(r.Feeding)
		a.feed.weight = costMemory*a.feed.weight + float64(r.Fed)
	}
	t := float64(r.Feeding + r.Draft + r.Verify)
	a.purse += exploreShare * t
	if a.attempt.under {
		a.purse -= max(0, float64(r.Feeding)+min(float64(r.Draft+r.Verify), outlier*a.attempt.time)-a.attempt.worth)
	}
}

// best returns the lookahead of the highest rate, and the rate, in tokens per
// nanosecond.
func (a *Auto) best(lanes []*Lane) (k int, rate float64) {
	room := 0
	for _, l := range lanes {
		room = max(room, l.Room)
	}
	k = -1
	for n := min(a.least, room); n <= min(a.most, room); n++ {
		tokens, time := a.promise(lanes, n)
		if r := tokens / time; k < 0 || r > rate {
			k, rate = n, r
		}
	}
	return max(0, k), rate
}

// promise is how many tokens a loop with lookahead k is expected to give, and
// how long it is expected to take. Feeding a drafter that lags is paid off over
// the tokens that the sequence still expects.
func (a *Auto) promise(lanes []*Lane, k int) (tokens, time float64) {
	time = max(1, a.draft.at(len(lanes), k)+a.verify.at(len(lanes), k))
	pooled := a.engine.pooled()
	for _, l := range lanes {
		most := min(k, l.Room)
		e, reached := 1.0, 1.0
		for t := range most {
			reached *= l.own.at(t, a.engine.at(t, pooled, enginePrior), sequencePrior)
			e += reached
		}
		tokens += e
		if most > 0 && l.Lag > 0 {
			left := float64(unknownLength)
			if a.length.weight > 0 {
				left = a.length.mean()
			}
			left = min(max(left-float64(l.tokens), left/4), float64(l.Room)+1)
			time += a.feed.mean() * float64(l.Lag) * min(1, e/left)
		}
	}
	return tokens, time
}

// Width is how many of at most most lanes give most tokens per unit of time,
// with the lookahead that is best for them; of those within a hundredth of it
// the most, so that the choice does not waver where the curve is flat.
func (a *Auto) Width(most int) int {
	most = min(most, a.verify.lanes)
	best := 0.0
	for lanes := 1; lanes <= most; lanes++ {
		best = max(best, a.rate(lanes))
	}
	for a.rate(most) < 0.99*best {
		most--
	}
	return max(1, most)
}

// rate is how many tokens per nanosecond so many lanes are expected to give.
func (a *Auto) rate(lanes int) float64 {
	best, e, reached := 0.0, 1.0, 1.0
	pooled := a.engine.pooled()
	for k := range a.most + 1 {
		if k > 0 {
			reached *= a.engine.at(k-1, pooled, enginePrior)
			e += reached
		}
		if k >= a.least {
			best = max(best, float64(lanes)*e/max(1, a.draft.at(lanes, k)+a.verify.at(lanes, k)))
		}
	}
	return best
}
