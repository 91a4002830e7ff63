package stat

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is an estimate with its bounds at some level of confidence.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Wilson is the score interval of a proportion (Wilson 1927) at level, such as
// 0.95, for passed of n independent trials. n must be positive.
func Wilson(passed, n int64, level float64) Interval {
	z := distuv.UnitNormal.Quantile(1 - (1-level)/2)
	p, m := float64(passed)/float64(n), float64(n)
	scale := 1 + z*z/m
	centre := (p + z*z/(2*m)) / scale
	half := z / scale * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	i := Interval{Mean: p, Low: max(0, centre-half), High: min(1, centre+half)}
	if passed == 0 {
		i.Low = 0
	}
	if passed == n {
		i.High = 1
	}
	return i
}

// ClopperPearson is the exact interval of a proportion (Clopper and Pearson
// 1934): its coverage is at least level whatever the proportion is.
func ClopperPearson(passed, n int64, level float64) Interval {
	tail := (1 - level) / 2
	i := Interval{Mean: float64(passed) / float64(n), Low: 0, High: 1}
	if passed > 0 {
		i.Low = distuv.Beta{Alpha: float64(passed), Beta: float64(n - passed + 1)}.Quantile(tail)
	}
	if passed < n {
		i.High = distuv.Beta{Alpha: float64(passed + 1), Beta: float64(n - passed)}.Quantile(1 - tail)
	}
	return i
}

// meanDeviation are the mean of numbers and their standard deviation with n-1
// in the denominator, which is 0 for fewer than two.
func meanDeviation(v []float64) (mean, deviation float64) {
	if len(v) == 0 {
		return 0, 0
	}
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	if len(v) < 2 {
		return mean, 0
	}
	var squares float64
	for _, x := range v {
		squares += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(squares / float64(len(v)-1))
}

// differences are x[i] - y[i]. The slices must be as long as each other.
func differences(x, y []float64) []float64 {
	if len(x) != len(y) {
		panic("stat: scores are not paired")
	}
	d := make([]float64, len(x))
	for i := range x {
		d[i] = x[i] - y[i]
	}
	return d
}
