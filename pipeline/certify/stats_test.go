package certify

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestDetectableAgreesWithTables: noncentralities for power 0.8 and 0.9 at
// level 0.05 from published tables of the noncentral chi-square distribution.
func TestDetectableAgreesWithTables(t *testing.T) {
	for _, c := range []struct {
		df            int
		power, lambda float64
	}{{1, 0.8, 7.849}, {1, 0.9, 10.507}, {2, 0.8, 9.635}, {5, 0.9, 16.469}, {10, 0.8, 16.241}} {
		const n = 1000
		d := detectable(n, c.df, 0.05, c.power)
		if got := 4 * n * d * d; math.Abs(got-c.lambda) > 2e-3 {
			t.Errorf("df %d, power %v: noncentrality %.3f, tables say %.3f", c.df, c.power, got, c.lambda)
		}
	}
}

// TestChiSquareHasItsLaw draws from laws that differ from draw to draw and
// checks that p-values are uniform when the law is right, and tiny when not.
func TestChiSquareHasItsLaw(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	simulate := func(bias float64) (below int) {
		const runs = 400
		for range runs {
			sum := newTally(5)
			for range 400 {
				p := make([]float64, 5)
				var total float64
				for i := range p {
					p[i] = r.ExpFloat64() / float64(i+1)
					total += p[i]
				}
				for i := range p {
					p[i] /= total
				}
				draw := append([]float64(nil), p...)
				shift := math.Min(bias, draw[1])
				draw[0] += shift
				draw[1] -= shift
				u, cell := r.Float64(), 4
				for i, q := range draw {
					if u -= q; u < 0 {
						cell = i
						break
					}
				}
				sum.add(p, cell)
			}
			if stat, df := sum.chiSquare(); pValue(stat, df) < 0.1 {
				below++
			}
		}
		return below
	}
	if n := simulate(0); n < 22 || n > 62 { // 40 expected of 400, 3.5 standard deviations
		t.Errorf("%d of 400 p-values lie below 0.1", n)
	}
	if n := simulate(0.12); n < 390 {
		t.Errorf("a bias is seen in %d of 400 runs only", n)
	}
}

func TestCertainCells(t *testing.T) {
	sum := newTally(3)
	for range 100 {
		sum.add([]float64{1, 0, 0}, 0)
	}
	if stat, df := sum.chiSquare(); df != 0 || stat != 0 {
		t.Errorf("a certain law gives %v with %d degrees of freedom", stat, df)
	}
}

func TestHolm(t *testing.T) {
	got := holm([]float64{0.01, 0.04, 0.03, 0.005}, 0.05)
	want := []bool{true, false, false, true}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("hypothesis %d: rejected %v", i, got[i])
		}
	}
}

// TestRareDrawsAreNoProof: where nearly every draw is certain of its cell, a single
// one elsewhere proves nothing, however many draws there are; a dozen does.
func TestRareDrawsAreNoProof(t *testing.T) {
	for rare, proof := range map[int]bool{0: false, 1: false, 2: false, 12: true} {
		sum := newTally(3)
		for i := range 5000 {
			cell := i % 2 // both cells are expected thousands of times
			p := []float64{1e-5, 1e-5, 0}
			p[cell] = 1 - 1e-5
			if i < 2*rare && i%2 == 0 {
				cell = 1
			}
			sum.add(p, cell)
		}
		stat, df := sum.chiSquare()
		if p := sum.p(stat, df); df != 1 || (p < 1e-5) != proof {
			t.Errorf("%d rare draws: chi-square %.1f with %d degrees of freedom, p = %.2g", rare, stat, df, p)
		}
	}
}
