package stat

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

type golden struct {
	Proportions []struct {
		Passed, N       int64
		Level           float64
		Wilson, Clopper [2]float64
	}
	Disagreements []struct {
		OnlyX int64 `json:"only_x"`
		OnlyY int64 `json:"only_y"`
		P     float64
	}
	Pairs []struct {
		X, Y        []float64
		TOST        []struct{ Margin, P float64 }
		Interval90  [2]float64
		Detectable  []struct{ Level, Power, Difference float64 }
		Permutation *float64
		Quantiles   [][2]float64
	}
}

func load(t *testing.T) *golden {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{}
	if err := json.Unmarshal(data, g); err != nil {
		t.Fatal(err)
	}
	return g
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-6) {
		t.Errorf("%s = %.9f, scipy or statsmodels has %.9f", what, got, want)
	}
}

func TestProportionsAsStatsmodels(t *testing.T) {
	for _, c := range load(t).Proportions {
		w, e := Wilson(c.Passed, c.N, c.Level), ClopperPearson(c.Passed, c.N, c.Level)
		near(t, "Wilson low", w.Low, c.Wilson[0])
		near(t, "Wilson high", w.High, c.Wilson[1])
		near(t, "Clopper-Pearson low", e.Low, c.Clopper[0])
		near(t, "Clopper-Pearson high", e.High, c.Clopper[1])
	}
}

func TestMcNemarAsStatsmodels(t *testing.T) {
	for _, c := range load(t).Disagreements {
		near(t, "McNemar", McNemar(c.OnlyX, c.OnlyY), c.P)
	}
}

func TestPairsAsScipyAndStatsmodels(t *testing.T) {
	exact := 0
	for _, c := range load(t).Pairs {
		for _, want := range c.TOST {
			got := TOST(c.X, c.Y, want.Margin)
			near(t, "TOST p", got.P, want.P)
			near(t, "TOST low", got.CI.Low, c.Interval90[0])
			near(t, "TOST high", got.CI.High, c.Interval90[1])
			inside := got.CI.Low > -want.Margin && got.CI.High < want.Margin
			if inside != got.Within() {
				t.Errorf("interval %v within %v is %v, but p = %v", got.CI, want.Margin, inside, got.P)
			}
		}
		for _, want := range c.Detectable {
			near(t, "minimal detectable difference", MinimalDetectable(c.X, c.Y, want.Level, want.Power), want.Difference)
		}
		d := differences(c.X, c.Y)
		slices.Sort(d)
		for _, q := range c.Quantiles {
			near(t, "quantile", quantile(d, q[0]), q[1])
		}
		if c.Permutation != nil {
			exact++
			near(t, "permutation p", Permutation(c.X, c.Y, 0, 1), *c.Permutation)
		}
	}
	if exact < 4 {
		t.Errorf("only %d exact permutation tests were compared", exact)
	}
}

// TestRandomPermutationsAgreeWithAll: what random signs give for more rows
// comes near what a normal law says of many.
func TestRandomPermutationsAgreeWithAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	x, y := make([]float64, 400), make([]float64, 400)
	for i := range x {
		x[i], y[i] = rng.NormFloat64()+0.08, rng.NormFloat64()
	}
	mean, deviation := meanDeviation(differences(x, y))
	want := math.Erfc(math.Abs(mean) / deviation * math.Sqrt(400) / math.Sqrt2)
	if got := Permutation(x, y, 20_000, 1); math.Abs(got-want) > 0.02 {
		t.Errorf("permutation p = %.4f, the normal law says %.4f", got, want)
	}
	if got := Permutation(x, x, 100, 1); got != 1 {
		t.Errorf("equal scores: p = %v", got)
	}
}

// TestBootstrapOfFewRows compares with the law of the resampled mean, which
// can be enumerated: rows 0, 1, 2 of scores 0, 0, 1.
func TestBootstrapOfFewRows(t *testing.T) {
	x, y := []float64{1, 1, 1}, []float64{1, 1, 0}
	// The mean is j/3 with binomial chances 8/27, 12/27, 6/27, 1/27: its
	// quantiles at 10% and 90% are 0 and 2/3.
	got := Bootstrap(x, y, Draws, 7, 0.8)
	if got.Low != 0 || math.Abs(got.High-2.0/3) > 1e-12 || math.Abs(got.Mean-1.0/3) > 1e-12 {
		t.Errorf("interval %+v", got)
	}
	if again := Bootstrap(x, y, Draws, 7, 0.8); again != got {
		t.Errorf("the same seed gave %+v and %+v", got, again)
	}
	if same := Bootstrap(x, x, Draws, 7, 0.95); same != (Interval{}) {
		t.Errorf("equal scores: %+v", same)
	}
}

// TestBootstrapCoverage simulates many experiments of HumanEval's size, five
// samples a row, whose true difference is known: 95% intervals hold it in 93%
// to 97% of them.
func TestBootstrapCoverage(t *testing.T) {
	const experiments, rows, samples, lift = 2000, 164, 5, 0.04
	rng := rand.New(rand.NewPCG(11, 13))
	x, y := make([]float64, rows), make([]float64, rows)
	held := 0
	for e := range experiments {
		for i := range rows {
			p := rng.Float64() * (1 - lift)
			x[i], y[i] = 0, 0
			for range samples {
				if rng.Float64() < p+lift {
					x[i] += 1.0 / samples
				}
				if rng.Float64() < p {
					y[i] += 1.0 / samples
				}
			}
		}
		if ci := Bootstrap(x, y, 1000, uint64(e), 0.95); ci.Low <= lift && lift <= ci.High {
			held++
		}
	}
	share := float64(held) / experiments
	t.Logf("coverage %.1f%% of %d experiments", 100*share, experiments)
	if share < 0.93 || share > 0.97 {
		t.Errorf("95%% intervals held the truth in %.1f%% of %d experiments", 100*share, experiments)
	}
}

// TestDetectableIsDetected: a difference of the size that MinimalDetectable
// names, in that many rows, is found by the test about as often as it says.
func TestDetectableIsDetected(t *testing.T) {
	const rows = 100
	rng := rand.New(rand.NewPCG(17, 19))
	size := detectable(1, rows, 0.95, 0.8)
	found, experiments := 0, 4000
	for range experiments {
		var sum float64
		for range rows {
			sum += size + rng.NormFloat64()
		}
		if math.Abs(sum/rows)*math.Sqrt(rows) > 1.959964 {
			found++
		}
	}
	if share := float64(found) / float64(experiments); math.Abs(share-0.8) > 0.02 {
		t.Errorf("found in %.3f of the experiments, not in 0.8", share)
	}
	x, y := []float64{1, 0, 1, 0, 1, 1}, []float64{0, 0, 1, 1, 1, 0}
	n := RowsFor(x, y, 0.05, 0.95, 0.8)
	_, deviation := meanDeviation(differences(x, y))
	if detectable(deviation, float64(n), 0.95, 0.8) > 0.05 || detectable(deviation, float64(n-1), 0.95, 0.8) <= 0.05 {
		t.Errorf("%d rows are not the fewest", n)
	}
}

func BenchmarkBootstrap(b *testing.B) {
	x, y := make([]float64, 164), make([]float64, 164)
	for i := range x {
		x[i], y[i] = float64(i%6)/5, float64(i%5)/5
	}
	for b.Loop() {
		Bootstrap(x, y, Draws, 1, 0.95)
	}
}
