package spec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// dists are distributions of every form over a vocabulary.
func dists(t testing.TB, r *rand.Rand, vocab int, spread float64) map[string]*Dist {
	row := make([]float32, vocab)
	for i := range row {
		row[i] = float32(r.NormFloat64() * spread)
	}
	all := map[string]*Dist{}
	for name, s := range map[string]Sampling{
		"dense": {Temperature: 1}, "cold": {Temperature: 0.01}, "nucleus": {Temperature: 1, TopP: 0.9}, "top-k": {Temperature: 1, TopK: 3}, "greedy": {},
	} {
		chain, err := NewChain(s, vocab, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := &Dist{}
		if err := chain.Standardize(row, nil, d); err != nil {
			t.Fatal(err)
		}
		all[name] = d
	}
	byHand := &Dist{W: slices.Clone(all["nucleus"].W), Sum: all["nucleus"].Sum}
	flat := &Dist{W: make([]float32, vocab), Sum: float64(vocab)}
	for i := range flat.W {
		flat.W[i] = 1
	}
	all["by hand"], all["flat"] = byHand, flat
	return all
}

// TestRaceIsTheSmallest: the race passes over most tokens and finds what a look
// at every one of them finds, with both kernels on every instruction set.
func TestRaceIsTheSmallest(t *testing.T) {
	defer instructions(4)
	r := rand.New(rand.NewPCG(5, 5))
	for _, vocab := range []int{1, 3, 255, 256, 257, 5000, 40_000} {
		for _, spread := range []float64{0.01, 3, 12} {
			for name, d := range dists(t, r, vocab, spread) {
				for range 4 {
					n := Coins{Seed: r.Uint64(), Row: r.Uint64()}.Noise(r.IntN(1 << 24))
					want, best, second := int32(-1), math.Inf(1), math.Inf(1)
					for x, w := range d.W {
						if w <= 0 {
							continue
						}
						if s := n.At(int32(x)) / float64(w); s < best {
							want, best, second = int32(x), s, best
						} else if s < second {
							second = s
						}
					}
					for _, level := range []int{1, 3, 4} {
						for _, k := range []kernel{plain{}, native{}} {
							instructions(level)
							one, both := d.race(k, n, false), d.race(k, n, true)
							if one.x != want || one.best != best || both.x != want || both.best != best || both.second != second {
								t.Fatalf("%s over %d, %T, level %d: token %d %v %v, the smallest is %d %v %v", name, vocab, k, level, both.x, both.best, both.second, want, best, second)
							}
						}
					}
				}
			}
		}
	}
}

// TestRaceTies: equal numbers go to the lowest id, weight zero never wins, and
// the gap is +Inf where nothing else was possible.
func TestRaceTies(t *testing.T) {
	n := Coins{}.Noise(7)
	d := &Dist{W: make([]float32, 600), Sum: 1}
	d.W[300] = 1
	if x, gap := d.Race(n); x != 300 || !math.IsInf(gap, 1) {
		t.Errorf("a certain token: %d, gap %v", x, gap)
	}
	r := racer{noise: n, runnerUp: true, group: -1, x: -1, best: math.Inf(1), second: math.Inf(1)}
	w := func(x int32) float64 { return n.At(x) * 1024 } // E/w is the same for all, exactly
	for _, x := range []int32{400, 9, 500, 3} {
		r.enter(x, w(x))
	}
	if r.x != 3 || r.best != r.second {
		t.Errorf("of equals %d wins, %v %v", r.x, r.best, r.second)
	}
}

// TestNoiseIsExponential holds the parts of a group, and groups and positions
// to each other, to independent exponentials of mean 1: their distribution
// function, and the correlations of neighbours.
func TestNoiseIsExponential(t *testing.T) {
	const positions = 2000
	var bins [20]float64
	var sum, square, near, far, next float64
	total := 0.0
	for at := range positions {
		n, after := Coins{Seed: 3}.Noise(at), Coins{Seed: 3}.Noise(at+1)
		for x := int32(200); x < 300; x++ {
			e := n.At(x)
			bins[min(int(-20*math.Expm1(-e)), 19)]++
			sum, square, total = sum+e, square+e*e, total+1
			near += (e - 1) * (n.At(x+1) - 1)
			far += (e - 1) * (n.At(x+32) - 1)
			next += (e - 1) * (after.At(x) - 1)
		}
	}
	chi := 0.0
	for _, c := range bins {
		chi += (c - total/20) * (c - total/20) / (total / 20)
	}
	if chi > 50 { // 19 degrees: 1 in 10^4
		t.Errorf("chi-square %.1f of 19 degrees: %v", chi, bins)
	}
	five := 5 / math.Sqrt(total)
	for name, v := range map[string]float64{
		"mean": sum/total - 1, "second moment": (square/total - 2) / math.Sqrt(20),
		"neighbours": near / total, "groups": far / total, "positions": next / total,
	} {
		if math.Abs(v) > five {
			t.Errorf("%s is off by %.5f, five deviations are %.5f", name, v, five)
		}
	}
}

// TestExponential holds the logarithm to the library's, and to its bound.
func TestExponential(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 200_000 {
		u := r.Float64()
		if i%2 == 0 {
			u *= math.Exp2(-float64(r.IntN(53)))
			u = math.Floor(u*0x1p53) * 0x1p-53
		}
		got, want := exponential(u), -math.Log1p(-u)
		if math.Abs(got-want) > 8e-16*want || got < u {
			t.Fatalf("-log(1 - %v) is %v, want %v", u, got, want)
		}
	}
	if e := exponential(1 - 0x1p-53); math.Abs(e-53*math.Ln2) > 1e-14 {
		t.Error(e)
	}
}

// TestNoiseVectors are the test vectors of storage/FORMAT.md.
func TestNoiseVectors(t *testing.T) {
	for _, c := range []struct {
		coins    Coins
		position int
		x, first int32
		e        float64
	}{
		{Coins{}, 0, 0, 22, 0.4194932996935845},
		{Coins{}, 0, 22, 22, 0.01221417719330624},
		{Coins{Seed: 1, Row: 2, Sample: 3}, 4, 5, 17, 0.5987961362296099},
		{Coins{Seed: 1, Row: 2, Sample: 3}, 4, 151_935, 151_924, 0.5105381225022791},
		{Coins{Seed: 1<<64 - 1, Row: 1 << 40, Sample: 7}, 100_000, 256, 281, 1.9100934771795532},
	} {
		n := c.coins.Noise(c.position)
		if _, first := n.group(int(c.x) / noiseGroup); first != c.first || n.At(c.x) != c.e {
			t.Errorf("%+v at %d: E(%d) = %v and the group's first is %d, want %v and %d", c.coins, c.position, c.x, n.At(c.x), first, c.e, c.first)
		}
	}
}
