package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// chain is what every product must be, to the bit: fused multiply-adds over k in
// their order, then the bias, then the residual.
func chain(x, w []float32, k, n, row, column int, transposed bool, bias, residual []float32) float32 {
	var sum float32
	for i := range k {
		at := i*n + column
		if transposed {
			at = column*k + i
		}
		// The product is exact in float64; rounding the sum to odd there makes the
		// second rounding right.
		product, c := float64(x[row*k+i])*float64(w[at]), float64(sum)
		s := product + c
		part := s - product
		if e := (product - (s - part)) + (c - part); (e > 0 || e < 0) && math.Float64bits(s)&1 == 0 {
			s = math.Nextafter(s, math.Inf(1-2*b2i(e < 0)))
		}
		sum = float32(s)
	}
	if bias != nil {
		sum += bias[column]
	}
	if residual != nil {
		sum += residual[row*n+column]
	}
	return sum
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestFloatProductsAreOneChainOfFusedMultiplyAdds(t *testing.T) {
	threads := threadsFor(t, 2)
	shapes := [][2]int{{1, 1}, {3, 5}, {16, 32}, {64, 33}, {17, 100}, {100, 31}, {513, 65}, {1100, 40}}
	for seed, shape := range shapes {
		k, n := shape[0], shape[1]
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		const most = 70
		x, w, bias, residual := normal(r, most*k, 1), normal(r, k*n, 1), normal(r, n, 1), normal(r, most*n, 1)
		transposed := r.IntN(2) == 0
		want, wantAll := make([]float32, most*n), make([]float32, most*n)
		for i := range want {
			want[i] = chain(x, w, k, n, i/n, i%n, transposed, nil, nil)
			wantAll[i] = chain(x, w, k, n, i/n, i%n, transposed, bias, residual)
		}
		eachLevel(t, func(t *testing.T) {
			m, err := PackFloats(w, k, n, transposed, threads)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Free()
			for _, rows := range []int{1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 16, 25, 33, most} {
				pool := threads
				if rows%2 == 1 {
					pool = Threads{}
				}
				plain, all := make([]float32, rows*n), make([]float32, rows*n)
				FloatMatMul([]FloatProduct{{W: m, Y: plain}, {W: m, Bias: bias, Y: all, Residual: residual}}, x, rows, pool)
				if i := sameBits(plain, want); i >= 0 {
					t.Fatalf("%d x %d, %d rows: %g, not %g, at row %d, column %d", k, n, rows, plain[i], want[i], i/n, i%n)
				}
				if i := sameBits(all, wantAll); i >= 0 {
					t.Fatalf("%d x %d, %d rows, with bias and residual: %g, not %g, at row %d, column %d", k, n, rows, all[i], wantAll[i], i/n, i%n)
				}
			}
		})
	}
}

func TestFloatGatedIsTwoProductsAndAnActivation(t *testing.T) {
	threads := threadsFor(t, 2)
	const k, n, rows = 70, 75, 29
	r := rand.New(rand.NewPCG(1, 8))
	x, bias := normal(r, rows*k, 1), normal(r, n, 1)
	eachLevel(t, func(t *testing.T) {
		var m [2]*FloatMatrix
		for i := range m {
			var err error
			if m[i], err = PackFloats(normal(r, k*n, 0.3), k, n, false, threads); err != nil {
				t.Fatal(err)
			}
			defer m[i].Free()
		}
		for _, act := range activations {
			g, u, got := make([]float32, rows*n), make([]float32, rows*n), make([]float32, rows*n)
			gate, up := FloatProduct{W: m[0], Bias: bias, Y: g}, FloatProduct{W: m[1], Bias: bias, Y: u}
			FloatMatMul([]FloatProduct{gate, up}, x, rows, threads)
			Activate(act.act, g, u, g)
			FloatGated(gate, up, act.act, got, x, rows, threads)
			if i := sameBits(got, g); i >= 0 {
				t.Fatalf("%s: %g, not %g, at %d", act.name, got[i], g[i], i)
			}
		}
	})
}

// A row of NaN stays alone.
func TestFloatRowsDoNotReachOthers(t *testing.T) {
	const k, n, rows = 40, 50, 20
	r := rand.New(rand.NewPCG(2, 8))
	x, w := normal(r, rows*k, 1), normal(r, k*n, 1)
	eachLevel(t, func(t *testing.T) {
		m, err := PackFloats(w, k, n, true, Threads{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		want, got := make([]float32, rows*n), make([]float32, rows*n)
		FloatMatMul([]FloatProduct{{W: m, Y: want}}, x, rows, Threads{})
		broken := append([]float32(nil), x...)
		copy(broken[7*k:], fill(broken[:k], math.NaN()))
		FloatMatMul([]FloatProduct{{W: m, Y: got}}, broken, rows, Threads{})
		copy(got[7*n:8*n], want[7*n:])
		if i := sameBits(got, want); i >= 0 {
			t.Fatalf("row %d changed", i/n)
		}
	})
}

func TestHalvesAreWidenedExactly(t *testing.T) {
	threads := threadsFor(t, 2)
	halves := make([]uint16, 1<<16)
	for i := range halves {
		halves[i] = uint16(i)
	}
	for kind, widen := range map[FloatWeights]func(h uint16) float64{
		BFloat16: func(h uint16) float64 { return float64(math.Float32frombits(uint32(h) << 16)) },
		Float16: func(h uint16) float64 {
			exponent, mantissa := int(h>>10&31), float64(h&0x3ff)
			f := math.Ldexp(1+mantissa/1024, exponent-15)
			switch {
			case exponent == 31 && mantissa == 0:
				f = math.Inf(1)
			case exponent == 31:
				f = math.NaN()
			case exponent == 0:
				f = math.Ldexp(mantissa, -24)
			}
			if h>>15 == 1 {
				f = -f
			}
			return f
		},
	} {
		m, err := PackHalves(halves, kind, 1, len(halves), false, threads)
		if err != nil {
			t.Fatal(err)
		}
		y := make([]float32, len(halves))
		FloatMatMul([]FloatProduct{{W: m, Y: y}}, []float32{1}, 1, threads)
		m.Free()
		for i := range halves {
			want := widen(halves[i])
			if float64(y[i]) != want && (want == want || y[i] == y[i]) {
				t.Fatalf("%#x: %g, not %g", i, y[i], want)
			}
		}
	}
}
