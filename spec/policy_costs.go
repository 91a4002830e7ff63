package spec

// costs is what a part of a loop takes, in nanoseconds, by the number of lanes
// and of drafted tokens.
//
// Its shape is measured before the first loop: a few cells, what lies between
// them is interpolated. While running, a level that all cells share follows what
// slows the whole machine down, which says nothing of which lookahead is best;
// and every cell has a factor of its own beside it, which is drawn towards 1 and
// fades, so that a cell once measured at a bad moment gets another chance.
type costs struct {
	lanes, most int       // lanes 1 .. lanes, drafted tokens 0 .. most
	shape       []float64 // by cell
	seen        []mean    // factors beside the level, by cell
	all         mean      // the level
	known       []bool    // cells whose shape was measured
}

// mean is a forgetful one.
type mean struct{ sum, weight float64 }

// mean is 0 before there is anything to take it over.
func (m mean) mean() float64 {
	if m.weight == 0 {
		return 0
	}
	return m.sum / m.weight
}

const (
	// costMemory bounds how many loops a cell's factor is remembered for,
	// levelMemory how many the level; costPrior is the weight of a factor of 1.
	costMemory  = 1 - 1.0/256
	levelMemory = 1 - 1.0/32
	costPrior   = 4
	// What is measured is the time that passed, in which the process may have
	// stood still: a measurement counts as at most so many times the estimate.
	outlier = 2
)

func newCosts(lanes, most int) *costs {
	n := lanes * (most + 1)
	return &costs{lanes: lanes, most: most, shape: make([]float64, n), seen: make([]mean, n), known: make([]bool, n)}
}

func (c *costs) cell(lanes, k int) int {
	return (min(lanes, c.lanes)-1)*(c.most+1) + min(k, c.most)
}

// measured sets a cell of the shape; of several measurements the least counts.
func (c *costs) measured(lanes, k int, ns float64) {
	i := c.cell(lanes, k)
	if !c.known[i] || ns < c.shape[i] {
		c.shape[i], c.known[i] = ns, true
	}
}

// interpolate fills the shape between the measured cells: along the drafted
// tokens in the rows of lanes that have some, then between those rows. Nothing
// takes longer than what does more: where it seems to, something else had the
// processor.
func (c *costs) interpolate() {
	rows := make([]int, 0, c.lanes)
	for lanes := 1; lanes <= c.lanes; lanes++ {
		row := c.cell(lanes, 0)
		if fill(c.shape[row:row+c.most+1], c.known[row:row+c.most+1], 1) {
			rows = append(rows, lanes)
		}
	}
	for k := range c.most + 1 {
		column, known := make([]float64, c.lanes), make([]bool, c.lanes)
		for _, lanes := range rows {
			column[lanes-1], known[lanes-1] = c.shape[c.cell(lanes, k)], true
		}
		fill(column, known, 0)
		rising(column)
		for i, x := range column {
			c.shape[c.cell(i+1, k)] = x
		}
	}
	for lanes := 1; lanes <= c.lanes; lanes++ {
		row := c.cell(lanes, 0)
		rising(c.shape[row : row+c.most+1])
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

// fill interpolates between the known values. Before the first and behind the
// last it goes on level, or, behind the last, in the direction of the last two
// that lie at own or beyond: what is at 0 may be a case of its own, as runtimes
// have a kernel for one token alone.
func fill(xs []float64, known []bool, own int) bool {
	last, before := -1, -1
	for i := range xs {
		if !known[i] {
			continue
		}
		for j := last + 1; j < i; j++ {
			xs[j] = xs[i]
			if last >= 0 {
				xs[j] = xs[last] + (xs[i]-xs[last])*float64(j-last)/float64(i-last)
			}
		}
		before, last = last, i
	}
	if last < 0 {
		return false
	}
	slope := 0.0
	if before >= own {
		slope = max(0, xs[last]-xs[before]) / float64(last-before)
	}
	for j := last + 1; j < len(xs); j++ {
		xs[j] = xs[last] + slope*float64(j-last)
	}
	return true
}

// at is what the part is expected to take.
func (c *costs) at(lanes, k int) float64 {
	i := c.cell(lanes, k)
	return c.shape[i] * c.level() * c.factor(i)
}

func (c *costs) factor(i int) float64 {
	return (c.seen[i].sum + costPrior) / (c.seen[i].weight + costPrior)
}

func (c *costs) level() float64 {
	if c.all.weight == 0 {
		return 1
	}
	return c.all.mean()
}

// add takes what a loop has shown.
func (c *costs) add(lanes, k int, ns float64) {
	i := c.cell(lanes, k)
	if c.shape[i] <= 0 {
		return
	}
	ns = min(ns, outlier*c.at(lanes, k))
	level, factor := ns/(c.shape[i]*c.factor(i)), ns/(c.shape[i]*c.level())
	for j := range c.seen {
		c.seen[j].sum *= costMemory
		c.seen[j].weight *= costMemory
	}
	c.seen[i].sum += factor
	c.seen[i].weight++
	c.all.sum = levelMemory*c.all.sum + level
	c.all.weight = levelMemory*c.all.weight + 1
}
