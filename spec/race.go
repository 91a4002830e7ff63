package spec

import "math"

// Race draws a token from d by an exponential race with the noise of its
// position: the token of the smallest E(x) / W(x), the lowest id among equals.
// A token of weight zero is never drawn.
//
// gap is the logarithm of the second smallest over the smallest, +Inf where no
// second token is possible: how far log W of the two would have to move for the
// draw to fall otherwise.
func (d *Dist) Race(n Noise) (x int32, gap float64) {
	r := d.race(native{}, n, true)
	if r.second > r.best {
		gap = math.Log(r.second) - math.Log(r.best)
	}
	return r.x, gap
}

// race finds the winner, and the runner-up where that is asked for. It begins
// with the heaviest block and goes on in ever longer runs of blocks, each with
// the limit that those before it have left: then few tokens remain whose
// numbers have to be made.
func (d *Dist) race(k kernel, n Noise, runnerUp bool) racer {
	r := racer{noise: n, runnerUp: runnerUp, group: -1, x: -1, best: math.Inf(1), second: math.Inf(1)}
	bound := d.bounds()
	heaviest := 0
	for b, m := range bound {
		if m > bound[heaviest] {
			heaviest = b
		}
	}
	d.keys = grow(d.keys, len(d.W))
	if len(bound) == 1 {
		k = plain{} // a call into C would take longer
	}
	r.run(k, d, bound, heaviest, heaviest+1)
	for _, side := range [][2]int{{0, heaviest}, {heaviest + 1, len(bound)}} {
		for from, n := side[0], 1; from < side[1]; from, n = from+n, 2*n {
			r.run(k, d, bound, from, min(from+n, side[1]))
		}
	}
	return r
}

// raceSlack is room for rounding, to float32 too, where a bound passes over
// tokens.
const raceSlack = 1 + 1e-6

// bounds returns what no weight of a block of blockLen exceeds: its largest one,
// or their sum where that is at hand.
func (d *Dist) bounds() []float64 {
	if d.form == blocked {
		return d.blocks
	}
	d.spare = grow(d.spare, blocksOf(len(d.W)))
	clear(d.spare)
	if d.form == sparse {
		for i := 0; i < len(d.ids); {
			b, most := d.ids[i]/blockLen, uint32(0)
			for end := (b + 1) * blockLen; i < len(d.ids) && d.ids[i] < end; i++ {
				most = max(most, math.Float32bits(d.W[d.ids[i]])) // of positive numbers, in the order of the numbers
			}
			d.spare[b] = float64(math.Float32frombits(most))
		}
		return d.spare
	}
	for x, w := range d.W {
		d.spare[x/blockLen] = max(d.spare[x/blockLen], float64(w))
	}
	return d.spare
}

// racer is the state of a race.
type racer struct {
	noise        Noise
	runnerUp     bool
	x            int32
	best, second float64 // the two smallest E/W so far

	group int // whose smallest number follows
	e     float64
	first int32
}

// limit is what E/W of a token must not exceed to matter.
func (r *racer) limit() float64 {
	if r.runnerUp {
		return r.second
	}
	return r.best
}

// run lets the tokens of some blocks run.
func (r *racer) run(k kernel, d *Dist, bound []float64, from, to int) {
	ids := d.keys
	for _, x := range ids[:k.candidates(r.noise, d.W, bound, from, to, min(r.limit(), 1e200), ids)] {
		r.enter(x, float64(d.W[x]))
	}
}

// enter lets token x run with the positive weight w.
func (r *racer) enter(x int32, w float64) {
	if g := int(x) / noiseGroup; g != r.group {
		var u float64
		u, r.first = r.noise.group(g)
		r.group, r.e = g, exponential(u)/noiseGroup
	}
	e := r.e
	if bound := r.limit() * w * raceSlack; e > bound {
		return
	} else if x != r.first {
		u := r.noise.token(x)
		if e+u > bound {
			return
		}
		e += exponential(u)
	}
	switch s := e / w; {
	case s < r.best || s == r.best && x < r.x:
		r.x, r.best, r.second = x, s, r.best
	case s < r.second:
		r.second = s
	}
}
