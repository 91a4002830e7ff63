package spec

// The estimates of [Auto]: acceptance by position, and times by number of
// tokens.

const (
	// Observations are forgotten: the engine's count this much less with every
	// one that follows at their position, a sequence's with every loop, so that
	// one in which drafting was given up comes back to the engine's estimate.
	engineMemory   = 1 - 1.0/128
	sequenceMemory = 1 - 1.0/64

	// A priori, drafted tokens are accepted with this chance, to which so many
	// observations are ascribed.
	priorAcceptance = 0.6
	pooledPrior     = 4
	// So many are ascribed to the mean over positions where one position is
	// estimated, and to the engine's estimate where one sequence's is.
	enginePrior   = 8
	sequencePrior = 16
)

// acceptance counts, for every position of a loop, how often verification came
// to it and how often it accepted there. Positions behind a rejection say
// nothing of the target's mind and are not counted.
type acceptance struct {
	tried, accepted []float64
}

func newAcceptance(k int) acceptance {
	return acceptance{make([]float64, k), make([]float64, k)}
}

func (a *acceptance) clear() { clear(a.tried); clear(a.accepted) }

// fade makes all observations count less.
func (a *acceptance) fade(memory float64) {
	for t := range a.tried {
		a.tried[t] *= memory
		a.accepted[t] *= memory
	}
}

// observe adds those of a loop; what was observed before at the same positions
// counts less.
func (a *acceptance) observe(r Round, memory float64) {
	for t := range min(r.Accepted+1, r.Drafted, len(a.tried)) {
		a.tried[t] = memory*a.tried[t] + 1
		a.accepted[t] *= memory
		if t < r.Accepted {
			a.accepted[t]++
		}
	}
}

// at estimates the chance at position t, with so many observations ascribed to
// a prior guess.
func (a *acceptance) at(t int, guess, weight float64) float64 {
	return (a.accepted[t] + weight*guess) / (a.tried[t] + weight)
}

// pooled is the chance at any position.
func (a *acceptance) pooled() float64 {
	tried, accepted := float64(pooledPrior), priorAcceptance*pooledPrior
	for t := range a.tried {
		tried += a.tried[t]
		accepted += a.accepted[t]
	}
	return accepted / tried
}

const (
	// What is measured is the time that passed, in which the process may have
	// stood still; that happens to long and short passes alike, in proportion,
	// and says nothing of which is better. So a measurement of more than
	// outlier times the mean is cut to that, and one below the mean counts
	// candid times as much: nothing takes less time than it needs.
	outlier = 2
	candid  = 4
	// The first run of a shape sets up what later ones find, so that one is
	// passed over; then so many measurements make an estimate, and so many one
	// that is believed where it is higher than its neighbours suggest.
	warm      = 1
	estimates = 3
	trust     = 4
	// timeMemory bounds the number of measurements that a mean is over.
	timeMemory = 128
)

// curve is a time as a function of a number of tokens, measured at some of
// them.
type curve struct {
	mean []float64
	n    []int
}

func newCurve(k int) curve { return curve{make([]float64, k+1), make([]int, k+1)} }

// pin sets a point for good.
func (c *curve) pin(i int, x float64) { c.mean[i], c.n[i] = x, -1 }

func (c *curve) known(i int) bool { return c.n[i] < 0 || c.n[i] >= warm+estimates }

// last is the largest number of tokens that is known.
func (c *curve) last() int {
	i := len(c.n) - 1
	for i > 0 && !c.known(i) {
		i--
	}
	return i
}

func (c *curve) add(i int, x float64) {
	if c.n[i] < 0 {
		return
	}
	c.n[i]++
	switch n := c.n[i] - warm; {
	case n <= 0:
	case n == 1:
		c.mean[i] = x
	case n <= trust: // the least: a wrong low estimate is tried and found out, a high one is not
		c.mean[i] = min(c.mean[i], x)
	default:
		step := 1 / float64(min(n, timeMemory))
		if x < c.mean[i] {
			step = min(1, candid*step)
		}
		c.mean[i] += (min(x, outlier*c.mean[i]) - c.mean[i]) * step
	}
}

// at is the time at i, as measured or as its neighbours suggest.
func (c *curve) at(i int) float64 {
	if c.n[i] < 0 || c.n[i] >= warm+trust {
		return c.mean[i]
	}
	guess, ok := c.beside(i)
	if c.known(i) && (!ok || c.mean[i] < guess) {
		return c.mean[i]
	}
	return guess
}

// beside guesses the time at i by the known points beside it: on the straight
// line through the last two below it, level where there is one alone, but no
// higher than between them and the next one above. ok tells that one of them
// was measured.
//
// What is guessed is guessed low, so that it will be tried.
func (c *curve) beside(i int) (guess float64, ok bool) {
	before, below, above := -1, -1, -1
	for j := range c.n {
		if j == i || !c.known(j) {
			continue
		}
		ok = ok || c.n[j] > 0
		if j < i {
			before, below = below, j
		} else if above < 0 {
			above = j
		}
	}
	switch {
	case below < 0 && above < 0:
		return 0, false
	case below < 0:
		return c.mean[above], ok
	}
	guess = c.mean[below]
	if before > 0 || before == 0 && c.n[0] < 0 { // one token alone is a case of its own: runtimes have a kernel for it
		slope := (c.mean[below] - c.mean[before]) / float64(below-before)
		guess += max(0, slope) * float64(i-below)
	}
	if above >= 0 {
		guess = min(guess, c.mean[below]+(c.mean[above]-c.mean[below])*float64(i-below)/float64(above-below))
	}
	return guess, ok
}

// ratio is a mean of ratios, weighted and forgetful.
type ratio struct{ sum, weight float64 }

func (r *ratio) add(sum, weight float64) {
	const memory = 1 - 1.0/timeMemory
	r.sum, r.weight = memory*r.sum+sum, memory*r.weight+weight
}

// mean is 0 before there is anything to take it over.
func (r *ratio) mean() float64 {
	if r.weight == 0 {
		return 0
	}
	return r.sum / r.weight
}
