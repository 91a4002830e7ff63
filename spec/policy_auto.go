package spec

import (
	"math"
	"slices"
)

// Auto chooses, for every sequence, the lookahead that promises most tokens per
// unit of time, 0 included. For sequences i of a loop it maximizes
//
//	sum over i of E_i(K_i) / (draft(K_1, K_2, ..) + target(sum over i of K_i + 1)),
//	E_i(K) = 1 + a_i1 + a_i1 a_i2 + .. + a_i1 .. a_iK,
//
// with running estimates of a_it, the chance that position t of sequence i is
// accepted once verification has come to it, and of what passes take by their
// rows ([Costs]): these depend on the models, the machine, the context and on
// who else uses the processor.
//
// As a token's worth falls with its place in the draft, the best choice of any
// number of drafted tokens takes those that are worth most: Auto adds one after
// the other and keeps the number with the highest rate.
//
// It is lossless because every K is chosen before the loop draws (see
// [Policy]). Which tokens come out depends on the clock, through the K chosen;
// their distribution does not.
//
// Acceptance shows only where something is drafted. Auto has an exploration
// budget into which every loop pays exploreShare of its time, and lets a
// sequence draft one token more than seems best when the budget covers what that
// is expected to lose. So a draft that is of no use costs no more than that
// share, however slow it is, and one that has become useful is found out.
type Auto struct {
	least, most int
	costs       Costs
	length      mean // tokens per sequence
	engine      acceptance

	budget  float64 // nanoseconds that attempts may lose
	attempt attempt // the loop under way, if it is one
	since   int     // loops since the last one

	plan plan // of the loop under way
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
		least: least, most: most, engine: newAcceptance(most),
		costs: Costs{
			Target: Curve{least: least + 1, most: lanes * (most + 1)},
			Draft:  Curve{least: 1, most: min(most, 1) * lanes},
		},
	}
}

// Costs implements [Policy].
func (a *Auto) Costs() *Costs { return &a.costs }

// Begin implements [Policy]: the drafter is fed at once where the first loop
// would draft although it had to pay for that.
func (a *Auto) Begin(l *Lane) bool {
	if l.tokens > 0 {
		a.length.add(float64(l.tokens), lengthMemory)
	}
	l.tokens = 0
	if l.own.tried == nil {
		l.own = newAcceptance(a.most)
	}
	l.own.clear()
	room := l.Room
	l.Room = math.MaxInt32
	a.choose([]*Lane{l}, 0)
	l.Room = room
	return l.K > 0
}

// Next implements [Policy].
func (a *Auto) Next(lanes []*Lane, beside int) {
	a.attempt = attempt{}
	if a.least == a.most {
		for _, l := range lanes {
			l.K = a.most
		}
		return
	}
	rate := a.choose(lanes, beside)
	if a.since++; a.since < attemptEvery {
		return
	}
	// The sequence to which one token more costs least: most have the same
	// passes, but not the same lag.
	var one *Lane
	for _, l := range lanes {
		if l.K < l.most(a.most) && (one == nil || l.Lag < one.Lag || l.Lag == one.Lag && l.K < one.K) {
			one = l
		}
	}
	if one == nil {
		return
	}
	p := &a.plan // still that of choose
	i := slices.Index(lanes, one)
	p.draft(i)
	// An attempt feeds for itself alone.
	worth, t := p.tokens/rate, p.time()-p.places[i].due()+p.places[i].lag
	if t-worth > a.budget { // save up for it
		one.K--
		return
	}
	a.attempt = attempt{under: true, worth: worth, time: t}
	a.since = 0
}

// More implements [Policy]: K is settled before the loop.
func (a *Auto) More(float64) bool { return true }

// Observe implements [Policy].
func (a *Auto) Observe(lanes []*Lane, r Round) {
	rows := 0
	for _, l := range lanes {
		rows += l.Drafted + 1
		l.tokens += l.Emitted
		a.engine.observe(l.Drafted, l.Accepted, engineMemory)
		l.own.fade(sequenceMemory)
		l.own.observe(l.Drafted, l.Accepted, 1)
	}
	a.costs.Target.add(rows+r.Beside, float64(r.Score))
	a.costs.drafted(lanes, float64(r.Draft))
	t := float64(r.Draft) + ours(float64(r.Score), rows, r.Beside)
	a.budget += exploreShare * t
	if a.attempt.under {
		a.budget -= max(0, min(t, outlier*a.attempt.time)-a.attempt.worth)
	}
}

// ours is the part of a pass's time that its rows of sequences account for; the
// others are of prompts, which have to be fed in any case.
func ours(t float64, rows, beside int) float64 { return t * float64(rows) / float64(rows+beside) }

// choose sets every lane's K to the best, and returns the rate that it promises,
// in tokens per nanosecond.
func (a *Auto) choose(lanes []*Lane, beside int) (rate float64) {
	p := &a.plan
	p.begin(a, lanes, beside)
	best, drafted := p.rate(), 0
	for n := 1; p.add(); n++ {
		if r := p.rate(); r > best {
			best, drafted = r, n
		}
	}
	p.begin(a, lanes, beside)
	for range drafted {
		p.add()
	}
	return best
}

// plan is a choice of K for the lanes of a loop, token by token.
type plan struct {
	a      *Auto
	lanes  []*Lane
	beside int
	pooled float64 // acceptance at any position
	places []place // by lane
	steps  []int   // lanes that take part in each step of drafting

	tokens  float64 // expected
	rows    int     // of the target's pass
	feeding float64 // time for drafters that lag behind
	steady  float64 // time of the steps
}

// place is one lane's part of a plan.
type place struct {
	tokens float64 // expected
	next   float64 // what one drafted token more is expected to add; negative where there is no room for one
	lag    float64 // time that its drafter needs before it can draft
	left   float64 // tokens that the sequence still expects
}

// begin is the plan that drafts as little as may be.
func (p *plan) begin(a *Auto, lanes []*Lane, beside int) {
	p.a, p.lanes, p.beside, p.pooled = a, lanes, beside, a.engine.pooled()
	p.places, p.steps = grow(p.places, len(lanes)), grow(p.steps, a.most)
	clear(p.steps)
	p.tokens, p.rows, p.feeding, p.steady = float64(len(lanes)), len(lanes), 0, 0
	length := float64(unknownLength)
	if a.length.weight > 0 {
		length = a.length.mean()
	}
	for i, l := range lanes {
		l.K = 0
		p.places[i] = place{
			tokens: 1, next: p.gain(l, 1), lag: a.costs.feeding(l.Lag),
			left: min(max(length-float64(l.tokens), length/4), float64(l.Room)+1),
		}
		for l.K < l.most(a.least) {
			p.draft(i)
		}
	}
}

// gain is what a lane's next drafted token is expected to add, where
// verification comes to it with the chance reached.
func (p *plan) gain(l *Lane, reached float64) float64 {
	if l.K >= l.most(p.a.most) {
		return -1
	}
	return reached * l.own.at(l.K, p.a.engine.at(l.K, p.pooled, enginePrior), sequencePrior)
}

// add drafts the token that adds most, if there is one left.
func (p *plan) add() bool {
	best := -1
	for i, at := range p.places {
		if at.next < 0 {
			continue
		}
		if best < 0 || at.next > p.places[best].next || at.next == p.places[best].next && p.lanes[i].K < p.lanes[best].K {
			best = i
		}
	}
	if best >= 0 {
		p.draft(best)
	}
	return best >= 0
}

// draft adds one token to a lane's draft.
func (p *plan) draft(i int) {
	l, at, step := p.lanes[i], &p.places[i], p.lanes[i].K
	p.steady -= p.a.costs.step(p.steps[step])
	p.steps[step]++
	p.steady += p.a.costs.step(p.steps[step])
	p.rows++
	if step > 0 {
		p.feeding -= at.due()
	}
	p.tokens += at.next
	at.tokens += at.next
	p.feeding += at.due()
	l.K++
	at.next = p.gain(l, at.next)
}

// due is the part of feeding a lagging drafter that this loop has to pay for: it
// is paid off over the tokens that the sequence still expects.
func (at *place) due() float64 { return at.lag * min(1, at.tokens/at.left) }

func (p *plan) time() float64 {
	return max(1, p.feeding+p.steady+ours(p.a.costs.Target.at(p.rows+p.beside), p.rows, p.beside))
}

func (p *plan) rate() float64 { return p.tokens / p.time() }

// Width is how many of at most most lanes give most tokens per unit of time,
// with the lookahead that is best for them; of those within a hundredth of it
// the most, so that the choice does not waver where the curve is flat.
func (a *Auto) Width(most int) int {
	best := 0.0
	for lanes := 1; lanes <= most; lanes++ {
		best = max(best, a.rate(lanes))
	}
	for most > 1 && a.rate(most) < 0.99*best {
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
			best = max(best, float64(lanes)*e/max(1, float64(k)*a.costs.step(lanes)+a.costs.Target.at(lanes*(k+1))))
		}
	}
	return best
}
