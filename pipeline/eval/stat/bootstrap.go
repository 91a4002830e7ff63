package stat

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Draws is how many resamples the project's reports take.
const Draws = 10_000

// Bootstrap is the percentile interval of the mean of x - y, paired by index
// (Efron 1979): rows are drawn with replacement, and both scores of a row move
// together. The same seed gives the same interval. Give a y of nil for the mean
// of x itself. There must be a row.
func Bootstrap(x, y []float64, draws int, seed uint64, level float64) Interval {
	d := x
	if y != nil {
		d = differences(x, y)
	}
	n := uint64(len(d))
	rng := rand.NewPCG(seed, uint64(draws))
	means := make([]float64, draws)
	for i := range means {
		var sum float64
		for range d {
			sum += d[below(rng, n)]
		}
		means[i] = sum / float64(len(d))
	}
	slices.Sort(means)
	mean, _ := meanDeviation(d)
	tail := (1 - level) / 2
	return Interval{Mean: mean, Low: quantile(means, tail), High: quantile(means, 1-tail)}
}

// below draws an index below n, which is far below 2^32: the multiplication
// method, whose bias of at most n / 2^32 nothing here could see.
func below(rng *rand.PCG, n uint64) uint64 {
	return (rng.Uint64() >> 32) * n >> 32
}

// quantile reads sorted numbers at a probability, on a line between the two
// that are next to it (Hyndman and Fan's type 7, numpy's default).
func quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	low := math.Floor(at)
	i := int(low)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (sorted[i+1]-sorted[i])*(at-low)
}
