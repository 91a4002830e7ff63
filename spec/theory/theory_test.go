package theory

import (
	"math"
	"testing"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s = %.6f, want %.6f", what, got, want)
	}
}

// TestWorkedExamples holds the formulas to figures that the literature works
// out, to the digits that it prints.
func TestWorkedExamples(t *testing.T) {
	near(t, "alpha 0.8, K 5, c 0.05", Speedup(0.8, 0.05, 5), 2.951, 5e-4)
	// Acceptance as r', the part of the K+1 places of a loop that become
	// tokens, at K = 4. 14.1 and 1.8 ms are the times of Chen et al.'s pair.
	for _, c := range []struct{ r, target, draft, want float64 }{
		{0.8, 14.1, 1.8, 2.65},
		{0.62, 14.1, 1.8, 2.05},
		{0.8125, 73.3, 11.9, 2.46},
	} {
		near(t, "r'", SpeedupAt(c.r*5, c.draft/c.target, 4), c.want, 5e-3)
		costs := Costs{Draft: c.draft, Score: []float64{c.target, c.target, c.target, c.target, c.target}}
		near(t, "r' by costs", costs.SpeedupAt(c.r*5, 4), c.want, 5e-3)
	}
	// The bigram of section 3.6: alpha 0.2 for nothing, K = 3.
	near(t, "bigram", Speedup(0.2, 0, 3), 1.25, 5e-3)
	// Table 1 of Leviathan et al.: operations and speed at c = c-hat = 0.
	for _, c := range []struct {
		alpha             float64
		k                 int
		operations, speed float64
	}{
		{0.6, 2, 1.53, 1.96}, {0.7, 3, 1.58, 2.53}, {0.8, 2, 1.23, 2.44},
		{0.8, 5, 1.63, 3.69}, {0.9, 2, 1.11, 2.71}, {0.9, 10, 1.60, 6.86},
	} {
		near(t, "operations", Operations(c.alpha, 0, c.k), c.operations, 5e-3)
		near(t, "speed", Speedup(c.alpha, 0, c.k), c.speed, 5e-3)
	}
	// 1 operation of the draft for 10 of the target: 5 (1 + 0.1) + 1 for 3.689 tokens.
	near(t, "operations with a draft", Operations(0.8, 0.1, 5), 6.5/3.68928, 1e-9)
}

// tokens is the expected number of tokens per loop for alpha 0.1 .. 0.9 (down)
// and K 3 .. 9 (across), to six digits.
var tokens = [9][7]float64{
	{1.111000, 1.111100, 1.111110, 1.111111, 1.111111, 1.111111, 1.111111},
	{1.248000, 1.249600, 1.249920, 1.249984, 1.249997, 1.249999, 1.250000},
	{1.417000, 1.425100, 1.427530, 1.428259, 1.428478, 1.428543, 1.428563},
	{1.624000, 1.649600, 1.659840, 1.663936, 1.665574, 1.666230, 1.666492},
	{1.875000, 1.937500, 1.968750, 1.984375, 1.992188, 1.996094, 1.998047},
	{2.176000, 2.305600, 2.383360, 2.430016, 2.458010, 2.474806, 2.484883},
	{2.533000, 2.773100, 2.941170, 3.058819, 3.141173, 3.198821, 3.239175},
	{2.952000, 3.361600, 3.689280, 3.951424, 4.161139, 4.328911, 4.463129},
	{3.439000, 4.095100, 4.685590, 5.217031, 5.695328, 6.125795, 6.513216},
}

// TestTokensPerLoop compares the closed form with a literal table, with the
// series that it stands for, 1 + alpha + .. + alpha^K, and with the mean of the
// capped geometric variable.
func TestTokensPerLoop(t *testing.T) {
	for i, row := range tokens {
		alpha := float64(i+1) / 10
		for j, want := range row {
			k := j + 3
			got := TokensPerLoop(alpha, k)
			near(t, "the table's entry", got, want, 6e-7)
			series, mean, power := 0.0, 0.0, 1.0
			for n := range k + 1 {
				series += power
				if n < k {
					mean += float64(n+1) * power * (1 - alpha) // n accepted, then a rejection
				} else {
					mean += float64(k+1) * power
				}
				power *= alpha
			}
			near(t, "the series", got, series, 1e-12)
			near(t, "the mean", got, mean, 1e-12)
		}
	}
	for _, c := range []struct {
		alpha float64
		k     int
		want  float64
	}{{0, 5, 1}, {1, 5, 6}, {0.3, 0, 1}, {1, 0, 1}, {1 - 1e-14, 9, 10}, {1e-300, 4, 1}} {
		near(t, "at the border", TokensPerLoop(c.alpha, c.k), c.want, 1e-9)
	}
}

// TestPays: exactly where alpha exceeds c there is a lookahead that pays, and
// it gains what Corollary 3.9 promises.
func TestPays(t *testing.T) {
	for a := range 51 {
		for b := range 61 {
			alpha, c := float64(a)/50, float64(b)/50
			best := 1.0
			for k := range 200 {
				best = max(best, Speedup(alpha, c, k))
			}
			if Pays(alpha, c) != (best > 1+1e-12) {
				t.Errorf("alpha %v, c %v: pays is %v, the best lookahead gains %v", alpha, c, Pays(alpha, c), best)
			}
			if Pays(alpha, c) && best < (1+alpha)/(1+c)-1e-12 {
				t.Errorf("alpha %v, c %v: %v is less than Corollary 3.9 promises", alpha, c, best)
			}
			if o := Oracle(alpha, c); o < best-1e-9 {
				t.Errorf("alpha %v, c %v: the oracle's %v is below %v", alpha, c, o, best)
			}
		}
	}
}

func TestBreakEven(t *testing.T) {
	for _, c := range []float64{0, 0.01, 0.05, 0.3, 0.9, 0.999} {
		last := 0.0
		for k := 1; k <= 30; k++ {
			alpha, ok := BreakEven(c, k)
			if !ok || alpha < last-1e-12 || alpha > 1 {
				t.Fatalf("c %v, K %d: break-even %v, %v after %v", c, k, alpha, ok, last)
			}
			last = alpha // a longer lookahead asks for more
			near(t, "speed-up at break-even", Speedup(alpha, c, k), 1, 1e-9)
			if Speedup(alpha+1e-6, c, k) <= 1 {
				t.Errorf("c %v, K %d: nothing is gained above break-even", c, k)
			}
		}
	}
	at := func(c float64, k int, want float64) {
		alpha, _ := BreakEven(c, k)
		near(t, "break-even", alpha, want, 1e-9)
	}
	at(0.3, 1, 0.3)
	at(0.3, 2, (math.Sqrt(1+8*0.3)-1)/2) // alpha + alpha^2 = 2 c
	for _, k := range []int{0, 1, 5} {
		if _, ok := BreakEven(1, k); ok {
			t.Errorf("a draft as slow as its target pays at K = %d", k)
		}
	}
	if _, ok := BreakEven(0.1, 0); ok {
		t.Error("autoregressive sampling pays")
	}
}

// TestOptimalK tries every lookahead.
func TestOptimalK(t *testing.T) {
	const limit = 64
	for _, c := range []float64{0.01, 0.02, 0.05, 0.1, 0.5} {
		last := 0
		for a := range 100 {
			alpha := float64(a) / 100
			k := OptimalK(alpha, c, limit)
			for other := range limit + 1 {
				if Speedup(alpha, c, other) > Speedup(alpha, c, k) {
					t.Fatalf("alpha %v, c %v: K = %d is better than %d", alpha, c, other, k)
				}
			}
			if k < last || (k > 0) != Pays(alpha, c) {
				t.Errorf("alpha %v, c %v: K = %d, after %d", alpha, c, k, last)
			}
			last = k
		}
	}
	for _, c := range []struct {
		alpha, c float64
		k        int
	}{{0.8, 0.05, 8}, {0.6, 0.1, 3}, {0.9, 0.02, 19}, {0.9, 0, limit}, {0.2, 0.3, 0}, {0, 0, 0}} {
		if k := OptimalK(c.alpha, c.c, limit); k != c.k {
			t.Errorf("alpha %v, c %v: K = %d, want %d", c.alpha, c.c, k, c.k)
		}
	}
}

// TestOracle checks the bound at its ends, and that the gain over the best
// fixed lookahead reaches the 60% that section 3.5 speaks of, and not more, for
// the costs of its Figure 3.
func TestOracle(t *testing.T) {
	near(t, "free", Oracle(0.75, 0), 4, 1e-12)
	near(t, "0.8 at 0.05", Oracle(0.8, 0.05), 1/0.24, 1e-12)
	near(t, "no gain", Oracle(0.1, 1.5), 1, 0)
	if !math.IsInf(Oracle(1, 0), 1) {
		t.Error("a perfect draft for nothing is bounded")
	}
	worst := 0.0
	for _, c := range []float64{0.01, 0.02, 0.05, 0.1} {
		for a := 50; a <= 95; a++ {
			alpha := float64(a) / 100
			worst = max(worst, Oracle(alpha, c)/Speedup(alpha, c, OptimalK(alpha, c, 1000)))
		}
	}
	if worst < 1.5 || worst > 1.65 {
		t.Errorf("an oracle gains up to %.2f of the best fixed lookahead", worst)
	}
}

// TestMeasuredCosts: a target that is not flat changes what is best.
func TestMeasuredCosts(t *testing.T) {
	flat, steep := Uniform(0.02, 8), Costs{Draft: 0.1, Score: []float64{5.9, 7.4, 8.8, 10.3, 11.7, 13.2}}
	for k := range 9 {
		near(t, "a flat curve", flat.Speedup(0.7, k), Speedup(0.7, 0.02, k), 1e-12)
	}
	near(t, "a loop's time", steep.Loop(4), 12.1, 1e-12)
	near(t, "a steep curve", steep.Speedup(0.8, 4), 3.3616*5.9/12.1, 1e-9)
	if k := steep.OptimalK(0.8); k != 3 {
		t.Errorf("steep costs at alpha 0.8: K = %d, want 3", k)
	}
	if k := steep.OptimalK(0.2); k != 0 {
		t.Errorf("steep costs at alpha 0.2: K = %d, want 0", k)
	}
	alpha, ok := steep.BreakEven(1)
	near(t, "break-even at K = 1", alpha, 7.5/5.9-1, 1e-9)
	if !ok {
		t.Error("no break-even on a curve that has one")
	}
	cheaper := Costs{Draft: 0, Score: []float64{2, 1.5}} // timers are noisy
	if alpha, ok := cheaper.BreakEven(1); !ok || alpha != 0 {
		t.Errorf("break-even %v, %v where every acceptance pays", alpha, ok)
	}
	if (Costs{}).MaxK() != -1 {
		t.Error("an empty curve has a lookahead")
	}
}
