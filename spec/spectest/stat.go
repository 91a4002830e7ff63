package spectest

import "math"

// ChiSquareZ returns how many standard deviations a chi-square sum lies above
// its expectation, by the cube-root transformation of Wilson and Hilferty
// (1931), which is close to normal from a few degrees of freedom on.
func ChiSquareZ(sum, degrees float64) float64 {
	if degrees < 1 {
		return 0
	}
	v := 2 / (9 * degrees)
	return (math.Cbrt(sum/degrees) - (1 - v)) / math.Sqrt(v)
}
