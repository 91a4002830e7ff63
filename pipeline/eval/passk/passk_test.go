package passk

import (
	"math"
	"slices"
	"testing"
)

// enumerated is the share of all choices of k of n samples, the first c of
// which passed, that hold one that passed.
func enumerated(n, c, k int) float64 {
	all, good := 0, 0
	for set := range 1 << n {
		size, passed := 0, false
		for i := range n {
			if set>>i&1 == 1 {
				size++
				passed = passed || i < c
			}
		}
		if size == k {
			all++
			if passed {
				good++
			}
		}
	}
	return float64(good) / float64(all)
}

func TestEstimateIsTheShareOfChoices(t *testing.T) {
	for n := 1; n <= 10; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				if got, want := Estimate(n, c, k), enumerated(n, c, k); math.Abs(got-want) > 1e-12 {
					t.Errorf("Estimate(%d, %d, %d) = %v, all choices give %v", n, c, k, got, want)
				}
			}
		}
	}
}

// TestEstimateIsUnbiased: its mean over the law of c is 1 - (1 - p)^k.
func TestEstimateIsUnbiased(t *testing.T) {
	for _, p := range []float64{0.01, 0.3, 0.9} {
		for _, k := range []int{1, 10, 100} {
			n := 120
			var mean float64
			for c := 0; c <= n; c++ {
				ln, _ := math.Lgamma(float64(n + 1))
				lc, _ := math.Lgamma(float64(c + 1))
				lr, _ := math.Lgamma(float64(n - c + 1))
				mean += math.Exp(ln-lc-lr+float64(c)*math.Log(p)+float64(n-c)*math.Log(1-p)) * Estimate(n, c, k)
			}
			if want := 1 - math.Pow(1-p, float64(k)); math.Abs(mean-want) > 1e-9 {
				t.Errorf("p %v, k %d: mean %v, want %v", p, k, mean, want)
			}
		}
	}
}

func TestKs(t *testing.T) {
	for n, want := range map[int][]int{1: {1}, 9: {1}, 10: {1, 10}, 99: {1, 10}, 200: {1, 10, 100}} {
		if got := Ks(n); !slices.Equal(got, want) {
			t.Errorf("Ks(%d) = %v", n, got)
		}
	}
}
