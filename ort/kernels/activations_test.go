package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// eachLevel runs a test on every level that this processor has.
func eachLevel(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, level := range Levels() {
		t.Run(level.String(), func(t *testing.T) {
			if err := Use(level); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = Use(Best()) }()
			test(t)
		})
	}
}

func sameBits(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
			return i
		}
	}
	return -1
}

var activations = []struct {
	name  string
	act   Activation
	exact func(x float64) float64
}{
	{"SiLU", SiLU, func(x float64) float64 { return x / (1 + math.Exp(-x)) }},
	{"GELU", GELUErf, func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) }},
	{"GELU tanh", GELUTanh, func(x float64) float64 {
		return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}},
}

func TestActivationsAreAccurateAndDoNotDependOnTheirPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x, with := make([]float32, 20011), make([]float32, 20011)
	for i := range x {
		x[i], with[i] = float32(r.NormFloat64()*4), float32(r.NormFloat64())
	}
	copy(x, []float32{0, float32(math.Copysign(0, -1)), 1e-30, -1e-30, 30, -30, 88, -88, 150, -150, 1e30, -1e30, float32(math.Inf(1))})
	for _, a := range activations {
		t.Run(a.name, func(t *testing.T) {
			var first []float32
			eachLevel(t, func(t *testing.T) {
				y, gated := make([]float32, len(x)), make([]float32, len(x))
				Activate(a.act, x, nil, y)
				Activate(a.act, x, with, gated)
				for i := range x {
					want := a.exact(float64(x[i]))
					// Far below zero the rounding of the exponent's argument shows.
					bound := 1e-37 + 1e-6*math.Abs(want)
					if x[i] < -3 {
						bound *= 20
					}
					if diff := math.Abs(float64(y[i]) - want); !(diff <= bound) && !math.IsInf(want, 0) {
						t.Fatalf("of %g: %g, not %g", x[i], y[i], want)
					}
					if gated[i] != y[i]*with[i] && y[i]*with[i] == y[i]*with[i] {
						t.Fatalf("of %g times %g: %g, not %g", x[i], with[i], gated[i], y[i]*with[i])
					}
				}
				if first == nil {
					first = y
				} else if i := sameBits(first, y); i >= 0 {
					t.Fatalf("of %g: %x here and %x on the portable level", x[i], y[i], first[i])
				}
				for n := range 40 {
					at := r.IntN(len(x) - 40)
					part := make([]float32, n)
					Activate(a.act, x[at:at+n], nil, part)
					if i := sameBits(part, y[at:]); i >= 0 {
						t.Fatalf("of %g: other bits among %d numbers", x[at+i], n)
					}
				}
				nan := []float32{float32(math.NaN()), 1}
				Activate(a.act, nan, nil, nan)
				if nan[0] == nan[0] || nan[1] != nan[1] {
					t.Fatalf("of NaN and 1: %v", nan)
				}
			})
		})
	}
}
