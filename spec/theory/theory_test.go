package theory

import (
	"math"
	"testing"
)

// TestWorkedExamples holds the formulas to figures that the literature works
// out.
func TestWorkedExamples(t *testing.T) {
	for _, c := range []struct {
		alpha, c float64
		k        int
		want     float64
	}{
		{0.8, 0.05, 5, 2.951}, // expected speed-up at alpha 0.8, K 5, c 0.05
		{0.5, 0, 1, 1.5},
		{1, 0, 4, 5},
		{0, 0.1, 4, 1 / 1.4},
	} {
		if got := Speedup(c.alpha, c.c, c.k); math.Abs(got-c.want) > 5e-4 {
			t.Errorf("Speedup(%v, %v, %d) = %.4f, want %.4f", c.alpha, c.c, c.k, got, c.want)
		}
	}
}

// TestTokensPerLoopIsASeries compares the closed form with the sum that it
// stands for: 1 + alpha + ... + alpha^K.
func TestTokensPerLoopIsASeries(t *testing.T) {
	for alpha := 0.0; alpha <= 1.0001; alpha += 0.05 {
		for k := range 12 {
			sum := 0.0
			for i := range k + 1 {
				sum += math.Pow(math.Min(alpha, 1), float64(i))
			}
			if got := TokensPerLoop(math.Min(alpha, 1), k); math.Abs(got-sum) > 1e-9 {
				t.Errorf("TokensPerLoop(%.2f, %d) = %v, the series is %v", alpha, k, got, sum)
			}
		}
	}
}
