package stat

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"
)

// McNemar is the exact two-sided p-value that two ways pass as often, from the
// rows on which they disagree: onlyX that x alone passed, onlyY that y alone
// did (McNemar 1947, with the binomial law in place of the chi-square one). It
// is about one sample a row, as greedy decoding gives.
func McNemar(onlyX, onlyY int64) float64 {
	n := onlyX + onlyY
	if n == 0 {
		return 1
	}
	tail := distuv.Binomial{N: float64(n), P: 0.5}.CDF(float64(min(onlyX, onlyY)))
	return min(1, 2*tail)
}

// exactSigns bounds the rows whose signs Permutation tries in all ways.
const exactSigns = 16

// Permutation is the two-sided p-value that the mean of x - y is 0, under the
// hypothesis that both scores of every row could be exchanged (Fisher's paired
// randomization test). Up to 16 rows that differ are exchanged in all ways;
// with more, draws random ones give (1 + as extreme) / (1 + draws), which is
// never 0 (Phipson and Smyth 2010).
func Permutation(x, y []float64, draws int, seed uint64) float64 {
	var d []float64
	var sum, size float64
	for _, v := range differences(x, y) {
		if v != 0 {
			d = append(d, v)
			sum += v
			size += math.Abs(v)
		}
	}
	if len(d) == 0 {
		return 1
	}
	// Sums that differ by rounding alone are the same.
	extreme := math.Abs(sum) - 1e-12*size
	if len(d) <= exactSigns {
		hits := 0
		for signs := range 1 << len(d) {
			if math.Abs(signed(d, uint64(signs))) >= extreme {
				hits++
			}
		}
		return float64(hits) / float64(int(1)<<len(d))
	}
	rng := rand.NewPCG(seed, uint64(draws))
	hits := 0
	for range draws {
		var s float64
		for from := 0; from < len(d); from += 64 {
			s += signed(d[from:min(from+64, len(d))], rng.Uint64())
		}
		if math.Abs(s) >= extreme {
			hits++
		}
	}
	return float64(1+hits) / float64(1+draws)
}

// signed adds up numbers, those whose bit is set with their sign changed.
func signed(d []float64, bits uint64) float64 {
	var s float64
	for i, v := range d {
		if bits>>i&1 == 1 {
			v = -v
		}
		s += v
	}
	return s
}

// Equivalence is what [TOST] finds.
type Equivalence struct {
	Margin float64  `json:"margin"`
	P      float64  `json:"p"`        // that the true difference is the margin or more, either way
	CI     Interval `json:"interval"` // of level 1 - 2 * 0.05: within the margin exactly where P is below 0.05
}

// Within tells whether a difference of the margin or more is refuted at level
// 0.05.
func (e *Equivalence) Within() bool { return e.P < 0.05 }

// TOST tests whether the mean of x - y is within (-margin, margin): two
// one-sided paired t-tests (Schuirmann 1987). It needs two rows and a positive
// margin.
func TOST(x, y []float64, margin float64) Equivalence {
	d := differences(x, y)
	mean, deviation := meanDeviation(d)
	se := deviation / math.Sqrt(float64(len(d)))
	e := Equivalence{Margin: margin, CI: Interval{mean, mean, mean}}
	if se == 0 { // all rows differ alike
		if math.Abs(mean) >= margin {
			e.P = 1
		}
		return e
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(d) - 1)}
	above := t.Survival((mean + margin) / se) // refutes: mean <= -margin
	below := t.CDF((mean - margin) / se)      // refutes: mean >= margin
	e.P = max(above, below)
	half := se * t.Quantile(0.95)
	e.CI.Low, e.CI.High = mean-half, mean+half
	return e
}

// MinimalDetectable is the smallest true difference of means that a two-sided
// test at the level 1 - confidence finds with the given power in rows like
// these, by the normal law: (z(1 - level/2) + z(power)) * deviation / sqrt(n).
// It is 0 where no row differs, which says nothing of how large a difference
// would be found: see n.
func MinimalDetectable(x, y []float64, confidence, power float64) float64 {
	d := differences(x, y)
	_, deviation := meanDeviation(d)
	return detectable(deviation, float64(len(d)), confidence, power)
}

func detectable(deviation, n, confidence, power float64) float64 {
	z := distuv.UnitNormal
	return (z.Quantile(1-(1-confidence)/2) + z.Quantile(power)) * deviation / math.Sqrt(n)
}

// RowsFor is how many rows like these it would take to find a true difference
// of size difference; 0 where no row differs.
func RowsFor(x, y []float64, difference, confidence, power float64) int {
	_, deviation := meanDeviation(differences(x, y))
	z := distuv.UnitNormal
	s := (z.Quantile(1-(1-confidence)/2) + z.Quantile(power)) * deviation / difference
	return int(math.Ceil(s * s))
}
