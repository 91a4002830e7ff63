package spec

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// Costs is what the passes of a loop take, by their rows: the tokens that all
// sequences feed together. They are measured once before the first loop and go
// on being measured.
type Costs struct {
	Target Curve // scoring, with the sampling that belongs to every row
	Draft  Curve // one step of drafting; with a law that needs no model, a row is a token
}

// Ready ends the measurements before the first loop.
func (c *Costs) Ready() {
	c.Target.ready()
	c.Draft.ready()
}

// step is what a step of drafting for so many lanes takes.
func (c *Costs) step(lanes int) float64 {
	if lanes == 0 {
		return 0
	}
	return c.Draft.at(lanes)
}

// feeding is what a drafter takes for so many tokens that it lags behind, beside
// what it drafts.
func (c *Costs) feeding(lag int) float64 {
	if lag == 0 {
		return 0
	}
	return c.Draft.at(1+lag) - c.Draft.at(1)
}

// drafted takes what drafting took in a loop. How it divides among the steps
// shows nowhere, so that the level follows alone.
func (c *Costs) drafted(lanes []*Lane, ns float64) {
	deepest, lag := 0, 0
	for _, l := range lanes {
		if l.Drafted > 0 {
			deepest, lag = max(deepest, l.Drafted), lag+l.Lag
		}
	}
	var expected float64
	for step := range deepest {
		n := 0
		for _, l := range lanes {
			if l.Drafted > step {
				n++
			}
		}
		if step == 0 {
			n += lag
		}
		expected += c.Draft.shape(n)
	}
	c.Draft.follow(ns, expected)
}

// Curve is what a pass takes, in nanoseconds, by its rows.
//
// Its shape is measured before the first loop: at a few numbers of rows, what
// lies between them is interpolated. While running, a level that the whole curve
// shares follows what slows the whole machine down, which says nothing of how
// many rows are best; and every number of rows has a factor of its own beside it,
// which is drawn towards 1 and fades, so that one that was measured at a bad
// moment gets another chance.
type Curve struct {
	least, most int // rows that loops have
	points      []point
	level       mean
	own         [factors]mean
}

type point struct {
	rows int
	ns   float64
}

// mean is an exponentially weighted mean.
type mean struct{ sum, weight float64 }

// mean is 0 before there is anything to take it over.
func (m mean) mean() float64 {
	if m.weight == 0 {
		return 0
	}
	return m.sum / m.weight
}

func (m *mean) add(x, memory float64) {
	m.sum, m.weight = memory*m.sum+x, memory*m.weight+1
}

const (
	// costMemory bounds how many loops a factor is remembered for, levelMemory
	// how many the level; costPrior is the weight of a factor of 1.
	costMemory  = 1 - 1.0/256
	levelMemory = 1 - 1.0/32
	costPrior   = 4
	// What is measured is the time that passed, in which the process may have
	// stood still: a measurement counts as at most so many times the estimate.
	outlier = 1.5
	// Every number of rows up to singles has a factor; above, several share one.
	singles = 32
	factors = singles + 4*16
)

// feedingRows is where the cost of feeding a drafter that lags is measured.
const feedingRows = 64

// Rows are the numbers of rows that are to be measured, the most telling first:
// the ends, what lies between them in doubling steps, then the gaps.
func (c *Curve) Rows(draft bool) []int {
	if c.most < c.least {
		return nil
	}
	rows := []int{c.least, c.most}
	for n := 1; n < c.most; n *= 2 {
		rows = append(rows, n)
	}
	if draft {
		rows = append(rows, feedingRows)
	}
	for n := 1; n < c.most; n += max(1, n/4) {
		rows = append(rows, n)
	}
	seen := map[int]bool{}
	return slices.DeleteFunc(rows, func(n int) bool {
		drop := n < c.least || n > c.most && n != feedingRows || n == 0 || seen[n]
		seen[n] = true
		return drop
	})
}

// Measured takes what a pass of so many rows took, before the first loop; of
// several measurements the least counts.
func (c *Curve) Measured(rows int, took time.Duration) {
	i, found := slices.BinarySearchFunc(c.points, rows, func(p point, rows int) int { return p.rows - rows })
	if !found {
		c.points = slices.Insert(c.points, i, point{rows, float64(took)})
	}
	c.points[i].ns = min(c.points[i].ns, float64(took))
}

// ready makes the shape rise: nothing takes longer than what does more. Where it
// seems to, something else had the processor.
func (c *Curve) ready() {
	ns := make([]float64, len(c.points))
	for i, p := range c.points {
		ns[i] = p.ns
	}
	rising(ns)
	for i := range ns {
		c.points[i].ns = ns[i]
	}
}

// rising replaces values that fall by their mean, as far as needed: isotonic
// regression by pooling adjacent violators.
func rising(xs []float64) {
	type pool struct {
		mean float64
		n    int
	}
	var pools []pool
	for _, x := range xs {
		p := pool{x, 1}
		for len(pools) > 0 && pools[len(pools)-1].mean > p.mean {
			q := pools[len(pools)-1]
			pools = pools[:len(pools)-1]
			p = pool{(p.mean*float64(p.n) + q.mean*float64(q.n)) / float64(p.n+q.n), p.n + q.n}
		}
		pools = append(pools, p)
	}
	i := 0
	for _, p := range pools {
		for range p.n {
			xs[i] = p.mean
			i++
		}
	}
}

// shape interpolates between the measured points. Before the first it is level;
// behind the last it goes on in the direction of the last two.
func (c *Curve) shape(rows int) float64 {
	n := len(c.points)
	if n == 0 {
		return 0
	}
	i, found := slices.BinarySearchFunc(c.points, rows, func(p point, rows int) int { return p.rows - rows })
	switch {
	case found || i == 0 || n == 1:
		return c.points[min(i, n-1)].ns
	case i == n:
		i--
	}
	a, b := c.points[i-1], c.points[i]
	return a.ns + (b.ns-a.ns)*float64(rows-a.rows)/float64(b.rows-a.rows)
}

// at is what a pass of so many rows is expected to take.
func (c *Curve) at(rows int) float64 { return c.shape(rows) * c.pace() * c.factor(bucket(rows)) }

// bucket is the factor that a number of rows has: four to every doubling.
func bucket(rows int) int {
	if rows < singles {
		return max(0, rows)
	}
	octave := bits.Len(uint(rows)) - 1
	return min(factors-1, singles+4*(octave-bits.Len(singles)+1)+(rows>>(octave-2))&3)
}

func (c *Curve) factor(i int) float64 {
	return (c.own[i].sum + costPrior) / (c.own[i].weight + costPrior)
}

func (c *Curve) pace() float64 {
	if c.level.weight == 0 {
		return 1
	}
	return c.level.mean()
}

// add takes what a pass has shown.
func (c *Curve) add(rows int, ns float64) {
	i, shape := bucket(rows), c.shape(rows)
	if shape <= 0 {
		return
	}
	ns = math.Min(ns, outlier*c.at(rows))
	level, factor := ns/(shape*c.factor(i)), ns/(shape*c.pace())
	for j := range c.own {
		c.own[j].sum *= costMemory
		c.own[j].weight *= costMemory
	}
	c.own[i].sum += factor
	c.own[i].weight++
	c.level.add(level, levelMemory)
}

// follow has the level follow what was expected of the shape to take so long.
func (c *Curve) follow(ns, shape float64) {
	if shape > 0 {
		c.level.add(min(ns, outlier*shape*c.pace())/shape, levelMemory)
	}
}
