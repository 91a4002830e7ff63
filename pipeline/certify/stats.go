package certify

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// tally adds up independent draws over the same cells, each with cell
// probabilities of its own.
type tally struct {
	n        int
	observed []float64
	expected []float64
	variance []float64 // covariance of observed, row-major
}

func newTally(cells int) *tally {
	return &tally{
		observed: make([]float64, cells),
		expected: make([]float64, cells),
		variance: make([]float64, cells*cells),
	}
}

// add counts one draw that fell into cell.
func (t *tally) add(probabilities []float64, cell int) {
	t.n++
	t.observed[cell]++
	k := len(t.observed)
	for i, p := range probabilities {
		t.expected[i] += p
		t.variance[i*k+i] += p
		for j, q := range probabilities {
			t.variance[i*k+j] -= p * q
		}
	}
}

// minExpected is the smallest expectation of a cell for which the chi-square
// law is trusted; smaller ones are joined.
const minExpected = 10

// pooled joins cells of small expectation, in order, with their neighbours.
func (t *tally) pooled() *tally {
	var group []int // cell -> joined cell
	groups, mass, k := 0, 0.0, len(t.observed)
	for _, e := range t.expected {
		group = append(group, groups)
		if mass += e; mass >= minExpected {
			groups++
			mass = 0
		}
	}
	if mass > 0 && groups > 0 { // what is left joins the last
		for i := range group {
			group[i] = min(group[i], groups-1)
		}
	}
	groups = max(groups, 1)
	p := newTally(groups)
	p.n = t.n
	for i := range t.observed {
		g := min(group[i], groups-1)
		p.observed[g] += t.observed[i]
		p.expected[g] += t.expected[i]
		for j := range t.observed {
			p.variance[g*groups+min(group[j], groups-1)] += t.variance[i*k+j]
		}
	}
	return p
}

// chiSquare is the quadratic form of observed - expected in the inverse of its
// covariance, over all cells but the last, and its degrees of freedom: 0 when
// nothing is left to compare.
func (t *tally) chiSquare() (stat float64, df int) {
	p := t.pooled()
	k := len(p.observed)
	for df = k - 1; df > 0; df-- {
		cov := mat.NewSymDense(df, nil)
		d := mat.NewVecDense(df, nil)
		for i := range df {
			d.SetVec(i, p.observed[i]-p.expected[i])
			for j := range df {
				cov.SetSym(i, j, p.variance[i*k+j])
			}
		}
		var chol mat.Cholesky
		if !chol.Factorize(cov) || chol.Cond() > 1e12 {
			continue // a cell that every draw is certain about: leave one out
		}
		var x mat.VecDense
		if err := chol.SolveVecTo(&x, d); err != nil {
			continue
		}
		return mat.Dot(d, &x), df
	}
	return 0, 0
}

// minVariance is the smallest variance of a cell's count for which the chi-square
// law is trusted. It is not its expectation that says so: where most draws are all
// but certain of their cell, a count of thousands may hang on a single draw.
const minVariance = 20

// p is the p-value of chiSquare. Where the count of a cell hardly varies it is
// no smaller than what holds whatever its law is: with d the deviation of a count
// and v its variance, P(|D| >= d) <= 2 exp(-v h(d/v)), h(u) = (1 + u) log(1 + u) - u
// (Bennett's inequality; Freedman 1975 for sums along a sample), for the cell in
// which that is smallest, times the number of cells.
func (t *tally) p(stat float64, df int) float64 {
	chi := pValue(stat, df)
	if df == 0 {
		return chi
	}
	joined := t.pooled()
	k, bound, trusted := len(joined.observed), 1.0, true
	for i := range k {
		d, v := math.Abs(joined.observed[i]-joined.expected[i]), joined.variance[i*k+i]
		trusted = trusted && v >= minVariance
		if u := d / v; v > 0 {
			bound = min(bound, 2*float64(k)*math.Exp(-v*((1+u)*math.Log1p(u)-u)))
		} else if d > 1e-9 {
			bound = 0
		}
	}
	if trusted {
		return chi
	}
	return max(chi, bound)
}

// totalVariation is the distance of the mean observed from the mean expected
// law, over the unpooled cells: half the sum of absolute differences.
func (t *tally) totalVariation() float64 {
	if t.n == 0 {
		return 0
	}
	var sum float64
	for i := range t.observed {
		sum += math.Abs(t.observed[i] - t.expected[i])
	}
	return sum / 2 / float64(t.n)
}

// tvRadius bounds how far, with the given confidence, the observed law's total
// variation lies from the true one's, whatever the truth is (the L1 deviation
// bound of Weissman et al. 2003, which holds for independent draws with laws
// of their own too: it is a union of Hoeffding bounds over sets of cells).
func (t *tally) tvRadius(confidence float64) float64 {
	if t.n == 0 {
		return 1
	}
	k := float64(len(t.observed))
	return min(1, math.Sqrt((k*math.Ln2-math.Log(1-confidence))/(2*float64(t.n))))
}

// pValue of a chi-square statistic.
func pValue(stat float64, df int) float64 {
	if df == 0 {
		return 1
	}
	return distuv.ChiSquared{K: float64(df)}.Survival(stat)
}

// detectable is the smallest total variation on a partition that a test of
// this level over n draws finds with the given power.
func detectable(n, df int, level, power float64) float64 {
	if n == 0 || df == 0 {
		return 1
	}
	critical := distuv.ChiSquared{K: float64(df)}.Quantile(1 - level)
	lo, hi := 0.0, 1.0
	for noncentralSurvival(critical, df, hi) < power {
		hi *= 2
	}
	for range 60 {
		if mid := (lo + hi) / 2; noncentralSurvival(critical, df, mid) < power {
			lo = mid
		} else {
			hi = mid
		}
	}
	return min(1, math.Sqrt(hi/float64(n))/2)
}

// noncentralSurvival is the chance that a noncentral chi-square variable
// exceeds x: a Poisson mixture of central ones.
func noncentralSurvival(x float64, df int, lambda float64) float64 {
	poisson := distuv.Poisson{Lambda: lambda / 2}
	centre := int(lambda / 2)
	width := 12 + int(8*math.Sqrt(lambda/2+1))
	var sum float64
	for j := max(0, centre-width); j <= centre+width; j++ {
		weight := 1.0
		if lambda > 0 {
			weight = poisson.Prob(float64(j))
		} else if j > 0 {
			weight = 0
		}
		sum += weight * distuv.ChiSquared{K: float64(df + 2*j)}.Survival(x)
	}
	return sum
}

// holm returns which hypotheses fall at the joint level, by Holm's step-down
// procedure.
func holm(p []float64, level float64) []bool {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	reject := make([]bool, len(p))
	for rank, i := range order {
		if p[i] > level/float64(len(p)-rank) {
			break
		}
		reject[i] = true
	}
	return reject
}
