package spec

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

// TestPhiloxVectors holds the bijection to the vectors that Random123
// publishes for philox4x32-10.
func TestPhiloxVectors(t *testing.T) {
	ones := uint32(math.MaxUint32)
	for _, v := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{ones, ones, ones, ones}, [2]uint32{ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox4x32(v.ctr, v.key); got != v.want {
			t.Errorf("philox(%x, %x) = %x, want %x", v.ctr, v.key, got, v.want)
		}
	}
}

// TestCoinsNeverShareADraw draws a block of coordinates and looks for a value
// that appears twice: 53 random bits make an accident here less likely than
// one in a million.
func TestCoinsNeverShareADraw(t *testing.T) {
	seen := map[float64][5]uint64{}
	for seed := range uint64(2) {
		for row := range uint64(6) {
			for sample := range uint32(4) {
				c := Coins{Seed: seed, Row: row, Sample: sample}
				for position := range 200 {
					for _, purpose := range []Purpose{DraftCoin, AcceptCoin, ResidualCoin, BonusCoin} {
						u := c.Uniform(purpose, position)
						at := [5]uint64{seed, row, uint64(sample), uint64(position), uint64(purpose)}
						if before, ok := seen[u]; ok {
							t.Fatalf("%v and %v share the coin %v", before, at, u)
						}
						if u < 0 || u >= 1 {
							t.Fatalf("coin %v of %v lies outside [0, 1)", u, at)
						}
						seen[u] = at
					}
				}
			}
		}
	}
}

// standardize is one row at the beginning of a sequence.
func standardize(s Sampling, logits []float32, d *Dist) error {
	c, err := NewChain(s, len(logits), nil)
	if err != nil {
		return err
	}
	return c.Standardize(logits, nil, d)
}

// reference is the standardization by sorting, in float64: slow and plain.
func reference(s Sampling, logits []float32) []float64 {
	n := len(logits)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return logits[order[a]] > logits[order[b]] })
	pr := make([]float64, n)
	top := float64(logits[order[0]])
	var sum float64
	for i, l := range logits {
		if s.Temperature > 0 {
			pr[i] = math.Exp((float64(l) - top) / s.Temperature)
		}
	}
	if s.Temperature == 0 {
		pr[order[0]] = 1
	}
	if s.TopK > 0 && s.TopK < n {
		threshold := logits[order[s.TopK-1]]
		for i, l := range logits {
			if l < threshold {
				pr[i] = 0
			}
		}
	}
	for _, v := range pr {
		sum += v
	}
	if s.TopP > 0 && s.TopP < 1 {
		need := s.TopP * sum
		for _, i := range order {
			if need <= 0 {
				pr[i] = 0
			}
			need -= pr[i]
		}
	}
	sum = 0
	for _, v := range pr {
		sum += v
	}
	for i := range pr {
		pr[i] /= sum
	}
	return pr
}

func TestStandardizeAgreesWithTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var d Dist
	for trial := range 3000 {
		n := 1 + r.IntN(300)
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(r.NormFloat64() * 4)
			if r.IntN(10) == 0 {
				logits[i] = float32(math.Inf(-1))
			}
		}
		logits[r.IntN(n)] = 1
		s := Sampling{Temperature: []float64{0, 0.3, 0.8, 1, 2}[trial%5], TopK: []int{0, 1, 5, 50}[r.IntN(4)], TopP: []float64{0, 0.1, 0.5, 0.95, 1}[r.IntN(5)]}
		if err := standardize(s, logits, &d); err != nil {
			t.Fatal(err)
		}
		for i, want := range reference(s, logits) {
			if got := d.Prob(int32(i)); math.Abs(got-want) > 1e-6*want+1e-12 {
				t.Fatalf("trial %d, %+v, vocabulary %d: token %d has %g, the reference %g", trial, s, n, i, got, want)
			}
		}
	}
}

func TestTiesAndBoundaries(t *testing.T) {
	for _, c := range []struct {
		name   string
		s      Sampling
		logits []float32
		keep   []int32
	}{
		{"greedy takes the lowest id among equals", Sampling{}, []float32{1, 3, 3, 2}, []int32{1}},
		{"top-k keeps what ties with the k-th", Sampling{Temperature: 1, TopK: 2}, []float32{1, 2, 3, 2}, []int32{1, 2, 3}},
		{"top-p stops where the mass is reached", Sampling{Temperature: 1, TopP: 0.5}, []float32{0, 0, 0, 0}, []int32{0, 1}},
		{"top-p takes the token that crosses", Sampling{Temperature: 1, TopP: 0.51}, []float32{0, 0, 0, 0}, []int32{0, 1, 2}},
		{"top-p keeps at least one", Sampling{Temperature: 1, TopP: 1e-9}, []float32{0, 5, 0, 0}, []int32{1}},
		{"top-k before top-p", Sampling{Temperature: 1, TopK: 2, TopP: 0.9}, []float32{0, 0, -1, -1, -1}, []int32{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Dist
			if err := standardize(c.s, c.logits, &d); err != nil {
				t.Fatal(err)
			}
			var kept []int32
			for i, w := range d.W {
				if w > 0 {
					kept = append(kept, int32(i))
				}
			}
			if !slices.Equal(kept, c.keep) {
				t.Errorf("kept %v, want %v", kept, c.keep)
			}
		})
	}
}

func TestHostileLogits(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name   string
		logits []float32
		want   error
	}{
		{"NaN", []float32{0, nan, 1}, ErrNotANumber},
		{"NaN first", []float32{nan, 1}, ErrNotANumber},
		{"+Inf", []float32{0, inf}, ErrNotANumber},
		{"all -Inf", []float32{-inf, -inf}, ErrNoMass},
		{"empty", nil, ErrNoMass},
		{"huge", []float32{math.MaxFloat32, -math.MaxFloat32}, nil},
		{"subnormal", []float32{math.SmallestNonzeroFloat32, 0}, nil},
	} {
		for _, temperature := range []float64{0, 1e-320, 0.8, 1e300} {
			var d Dist
			err := standardize(Sampling{Temperature: temperature, TopK: 2, TopP: 0.9}, c.logits, &d)
			if !errors.Is(err, c.want) {
				t.Errorf("%s at temperature %g: error %v, want %v", c.name, temperature, err, c.want)
			}
			if err == nil && !(d.Sum >= 1 && !math.IsInf(d.Sum, 0)) {
				t.Errorf("%s at temperature %g: sum %v", c.name, temperature, d.Sum)
			}
		}
	}
}

func TestVerifyRefusesWhatCannotBe(t *testing.T) {
	good := Dist{W: []float32{1, 1}, Sum: 2}
	for _, c := range []struct {
		name    string
		drafted []int32
		p, q    []Dist
		want    error
	}{
		{"p = 0 at the drafted token", []int32{1}, []Dist{{W: []float32{1, 0}, Sum: 1}}, []Dist{good, good}, ErrImpossibleDraft},
		{"an id outside the vocabulary", []int32{2}, []Dist{good}, []Dist{good, good}, ErrShape},
		{"a negative id", []int32{-1}, []Dist{good}, []Dist{good, good}, ErrShape},
		{"other vocabularies", []int32{0}, []Dist{good}, []Dist{{W: []float32{1, 1, 1}, Sum: 3}, good}, ErrShape},
		{"a target row too few", []int32{0}, []Dist{good}, []Dist{good}, ErrShape},
		{"no mass", []int32{0}, []Dist{{W: []float32{0, 0}}}, []Dist{good, good}, ErrNoMass},
	} {
		var out Outcome
		if err := Verify(Rejection, c.drafted, c.p, c.q, Coins{}, 0, &out); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
}

// TestDraftOutsideTheTargetsSupport: a token that the target cannot draw is
// never emitted, whatever the coin says.
func TestDraftOutsideTheTargetsSupport(t *testing.T) {
	p := []Dist{{W: []float32{1, 1}, Sum: 2}}
	q := []Dist{{W: []float32{0, 1}, Sum: 1}, {W: []float32{1, 1}, Sum: 2}}
	for row := range uint64(1000) {
		var out Outcome
		if err := Verify(Rejection, []int32{0}, p, q, Coins{Row: row}, 0, &out); err != nil {
			t.Fatal(err)
		}
		if out.Accepted != 0 || out.Token != 1 || out.Kind != Recovered {
			t.Fatalf("row %d: outcome %+v", row, out)
		}
	}
}
