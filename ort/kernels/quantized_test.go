package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/ort/convert/tensor"
	"github.com/draftmill/draftmill/ort/kernels"
)

// shape is a class of matrices.
type shape struct {
	n, k, bits, block int
	zeros             bool
	scales            scales
}

// scales are the numbers that a matrix's scales are made of.
type scales int

const (
	wide   scales = iota // float32
	halves               // float16
	short                // float16, positive, the last three bits clear
)

func (s shape) String() string {
	name := fmt.Sprintf("%dx%d/bits%d/block%d", s.n, s.k, s.bits, s.block)
	if s.zeros {
		name += "/zeros"
	}
	name += [...]string{"", "/halves", "/short"}[s.scales]
	return name
}

// shapes are: columns not a multiple of 16, one block, a padded last block, every
// block and width, with and without zero points, and every form of scales.
func shapes() []shape {
	all := []shape{
		{1, 32, 4, 32, false, wide}, {15, 96, 4, 32, true, wide}, {16, 64, 4, 32, false, halves},
		{17, 1536, 4, 32, false, wide}, {257, 160, 4, 32, true, wide}, {40, 33, 4, 32, true, wide},
		{33, 31, 8, 32, false, wide}, {19, 200, 4, 128, true, halves}, {70, 1000, 8, 256, true, wide},
	}
	for _, bits := range []int{4, 8} {
		for _, block := range []int{32, 64, 128, 256} {
			for _, zeros := range []bool{false, true} {
				for _, scales := range []scales{wide, halves, short} {
					all = append(all, shape{37, 3 * block, bits, block, zeros, scales})
				}
			}
		}
	}
	return all
}

// source makes a matrix of random weights.
func (s shape) source(r *rand.Rand) kernels.Source {
	blocks := (s.k + s.block - 1) / s.block
	src := kernels.Source{N: s.n, K: s.k, Bits: s.bits, Block: s.block,
		Weights: make([]byte, s.n*blocks*s.block*s.bits/8), Scales: make([]float32, s.n*blocks)}
	for i := range src.Weights {
		src.Weights[i] = byte(r.Uint32())
	}
	for i := range src.Scales {
		src.Scales[i] = float32(r.NormFloat64()) * 0.02
		switch s.scales {
		case halves:
			src.Scales[i] = float32(r.IntN(2047)-1023) / (1 << 16)
		case short: // from subnormal numbers to 8
			src.Scales[i] = float32(math.Ldexp(float64(r.IntN(256)), r.IntN(17)-21))
		}
	}
	if s.zeros {
		src.ZeroPoints = make([]byte, s.n*((blocks*s.bits+7)/8))
		for i := range src.ZeroPoints {
			src.ZeroPoints[i] = byte(r.Uint32())
		}
	}
	return src
}

// reference computes the product by its definition, in float64 but for the
// quantization of the activations. It also gives what an error is relative to: the
// sum of the terms' magnitudes.
func reference(s kernels.Source, x []float32, rows int) (y, size []float64) {
	blocks := (s.K + s.Block - 1) / s.Block
	y, size = make([]float64, rows*s.N), make([]float64, rows*s.N)
	perByte := 8 / s.Bits
	for r := range rows {
		for b := range blocks {
			from := x[r*s.K+b*s.Block : r*s.K+min(s.K, (b+1)*s.Block)]
			var most float32
			for _, v := range from {
				most = max(most, float32(math.Abs(float64(v))))
			}
			if most == 0 {
				continue
			}
			scale, inverse := most/127, 127/most
			q := make([]int, len(from))
			for i, v := range from {
				q[i] = int(math.RoundToEven(float64(v) * float64(inverse)))
			}
			for n := range s.N {
				zero := 1 << (s.Bits - 1)
				if s.ZeroPoints != nil {
					stride := (blocks*s.Bits + 7) / 8
					zero = int(s.ZeroPoints[n*stride+b/perByte]) >> (b % perByte * s.Bits) & (1<<s.Bits - 1)
				}
				sum := 0
				for i := range from {
					at := (n*blocks+b)*s.Block + i
					w := int(s.Weights[at/perByte]) >> (at % perByte * s.Bits) & (1<<s.Bits - 1)
					sum += q[i] * (w - zero)
				}
				term := float64(sum) * float64(scale) * float64(s.Scales[n*blocks+b])
				y[r*s.N+n] += term
				size[r*s.N+n] += math.Abs(term)
			}
		}
	}
	return y, size
}

func activations(r *rand.Rand, rows, k int) []float32 {
	x := make([]float32, rows*k)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Exp(r.NormFloat64()))
	}
	return x
}

func pack(t testing.TB, s kernels.Source, threads kernels.Threads) *kernels.Matrix {
	t.Helper()
	m, err := kernels.Pack(s, threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

// onLevels runs a test on every instruction set that the processor has.
func onLevels(t *testing.T, test func(t *testing.T)) {
	for _, level := range kernels.Levels() {
		t.Run(level.String(), func(t *testing.T) {
			if err := kernels.Use(level); err != nil {
				t.Fatal(err)
			}
			defer kernels.Use(kernels.Best()) //nolint:errcheck // the best level always runs
			test(t)
		})
	}
}

func threads(t testing.TB, n int) kernels.Threads {
	all := kernels.NewThreads(n)
	t.Cleanup(all.Free)
	return all
}

func TestQuantizedMatMulIsTheReference(t *testing.T) {
	two := threads(t, 2)
	const most = 40
	for _, s := range shapes() {
		r := rand.New(rand.NewPCG(1, 2))
		src := s.source(r)
		w := pack(t, src, two)
		x := activations(r, most, s.k)
		bias, residual := activations(r, 1, s.n), activations(r, most, s.n)
		want, size := reference(src, x, most)
		onLevels(t, func(t *testing.T) {
			for _, rows := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 24, 31, 33, most} {
				y := make([]float32, rows*s.n)
				kernels.MatMul([]kernels.Product{{W: w, Bias: bias, Y: y, Residual: residual}}, x, rows, two)
				for i := range y {
					b, res := float64(bias[i%s.n]), float64(residual[i])
					if d := math.Abs(float64(y[i]) - (want[i] + b + res)); !(d <= 1e-5*(size[i]+math.Abs(b)+math.Abs(res))) {
						t.Fatalf("%v, %d rows: y[%d][%d] = %v, want %v", s, rows, i/s.n, i%s.n, y[i], want[i]+b+res)
					}
				}
			}
		})
	}
}

// Every level, any number of rows, threads and products: the same bits as the
// portable path has for a row alone.
func TestQuantizedRowsAreTheSameInAnyCompany(t *testing.T) {
	two, three := threads(t, 2), threads(t, 3)
	r := rand.New(rand.NewPCG(3, 4))
	const most = 150
	for _, s := range shapes() {
		src := s.source(r)
		w := pack(t, src, two)
		other := pack(t, shape{53, s.k, 4, s.block, false, wide}.source(r), kernels.Threads{})
		x := activations(r, most, s.k)
		if err := kernels.Use(kernels.Portable); err != nil {
			t.Fatal(err)
		}
		want := make([]float32, most*s.n)
		for row := range most {
			kernels.MatMul([]kernels.Product{{W: w, Y: want[row*s.n : (row+1)*s.n]}}, x[row*s.k:(row+1)*s.k], 1, kernels.Threads{})
		}
		onLevels(t, func(t *testing.T) {
			for _, c := range []struct {
				first, rows int
				threads     kernels.Threads
			}{
				{0, 1, kernels.Threads{}}, {7, 2, two}, {3, 3, three}, {1, 4, two}, {9, 5, two}, {20, 6, two}, {30, 7, two},
				{40, 8, three}, {2, 9, two}, {5, 12, two}, {11, 15, two}, {16, 16, two}, {3, 17, two}, {70, 23, three},
				{4, 40, kernels.Threads{}}, {2, 129, two}, {0, most, two},
			} {
				y := make([]float32, c.rows*s.n)
				ys := make([]float32, c.rows*53)
				kernels.MatMul([]kernels.Product{{W: other, Y: ys}, {W: w, Y: y}}, x[c.first*s.k:], c.rows, c.threads)
				for i, v := range y {
					if math.Float32bits(v) != math.Float32bits(want[c.first*s.n+i]) {
						t.Fatalf("%v, row %d of %d from %d: %v, alone and portable %v", s, i/s.n, c.rows, c.first, v, want[c.first*s.n+i])
					}
				}
			}
		})
	}
}

func TestQuantizedGatedProduct(t *testing.T) {
	two := threads(t, 2)
	functions := map[kernels.Activation]func(float64) float64{
		kernels.SiLU:    func(x float64) float64 { return x / (1 + math.Exp(-x)) },
		kernels.GELUErf: func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) },
		kernels.GELUTanh: func(x float64) float64 {
			return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
		},
	}
	r := rand.New(rand.NewPCG(5, 6))
	s := shape{85, 192, 4, 32, true, wide}
	gate, up := pack(t, s.source(r), two), pack(t, s.source(r), two)
	const most = 40
	x := activations(r, most, s.k)
	gateBias, upBias := activations(r, 1, s.n), activations(r, 1, s.n)
	for activation, f := range functions {
		var portable []float32
		onLevels(t, func(t *testing.T) {
			for _, rows := range []int{1, 2, 5, 8, 9, 16, 17, most} {
				g, u, y := make([]float32, rows*s.n), make([]float32, rows*s.n), make([]float32, rows*s.n)
				kernels.MatMul([]kernels.Product{{W: gate, Bias: gateBias, Y: g}, {W: up, Bias: upBias, Y: u}}, x, rows, two)
				kernels.Gated(kernels.Product{W: gate, Bias: gateBias}, kernels.Product{W: up, Bias: upBias}, activation, y, x, rows, two)
				for i := range y {
					want := f(float64(g[i])) * float64(u[i])
					if d := math.Abs(float64(y[i]) - want); !(d <= 4e-7*math.Abs(float64(g[i])*float64(u[i]))) {
						t.Fatalf("activation %d, %d rows: y[%d] = %v, want %v", activation, rows, i, y[i], want)
					}
					if portable != nil && math.Float32bits(y[i]) != math.Float32bits(portable[i]) {
						t.Fatalf("activation %d, %d rows: y[%d] = %v, portable %v", activation, rows, i, y[i], portable[i])
					}
				}
				if rows == most && portable == nil {
					portable = y
				}
			}
		})
	}
}

// A row with an infinity or NaN is spoiled, its neighbours are not; zeros and the
// largest numbers are nothing special.
func TestQuantizedExtremes(t *testing.T) {
	two := threads(t, 2)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	onLevels(t, func(t *testing.T) {
		for _, bits := range []int{4, 8} {
			for _, zeros := range []bool{false, true} {
				s := shape{35, 512, bits, 128, zeros, short}
				r := rand.New(rand.NewPCG(7, 8))
				src := s.source(r)
				// The largest sums: all weights at the far end, zero points at the other.
				for i := range src.Weights {
					src.Weights[i] = 255
				}
				for i := range src.ZeroPoints {
					src.ZeroPoints[i] = 0
				}
				w := pack(t, src, two)
				const rows = 21
				x := activations(r, rows, s.k)
				for i := range s.k {
					x[1*s.k+i] = 0
					x[2*s.k+i] = -3e38
					x[3*s.k+i] = 1e-42
					x[4*s.k+i] = 127
				}
				clean := make([]float32, rows*s.n)
				kernels.MatMul([]kernels.Product{{W: w, Y: clean}}, x, rows, two)
				want, size := reference(src, x, rows)
				for i := range want {
					if row := i / s.n; row == 3 {
						continue
					}
					if d := math.Abs(float64(clean[i]) - want[i]); !(d <= 1e-5*size[i]) && size[i] < math.MaxFloat32 {
						t.Fatalf("%v: y[%d][%d] = %v, want %v", s, i/s.n, i%s.n, clean[i], want[i])
					}
				}
				x[0], x[9*s.k+100], x[20*s.k+s.k-1] = nan, inf, -inf
				y := make([]float32, rows*s.n)
				kernels.MatMul([]kernels.Product{{W: w, Y: y}}, x, rows, two)
				for i, v := range y {
					row := i / s.n
					if spoiled := row == 0 || row == 9 || row == 20; spoiled != math.IsNaN(float64(v)) ||
						!spoiled && math.Float32bits(v) != math.Float32bits(clean[i]) {
						t.Fatalf("%v: y[%d][%d] = %v, before the infinities %v", s, row, i%s.n, v, clean[i])
					}
				}
			}
		}
	})
}

// A block of 16 columns takes 32 bytes of scales where they are float16, and zero
// points of 4 bits none beside them where there is room. Float16 in the source packs
// to the same.
func TestPackedSizes(t *testing.T) {
	const columns, blocks = 64, 16
	for _, c := range []struct {
		zeros  bool
		scales scales
		want   int // bytes of a column's block
	}{{false, wide, 20}, {false, halves, 18}, {false, short, 18}, {true, wide, 21}, {true, halves, 19}, {true, short, 18}} {
		src := shape{columns, blocks * 32, 4, 32, c.zeros, c.scales}.source(rand.New(rand.NewPCG(9, 10)))
		if got := pack(t, src, kernels.Threads{}).Bytes(); got != columns*blocks*c.want {
			t.Errorf("%+v: %d bytes, want %d", c, got, columns*blocks*c.want)
		}
		if c.scales == wide {
			continue
		}
		half := src
		half.Scales, half.HalfScales = nil, make([]uint16, len(src.Scales))
		for i, scale := range src.Scales {
			half.HalfScales[i] = tensor.ToHalf(scale)
		}
		x, rows := activations(rand.New(rand.NewPCG(11, 12)), 3, src.K), 3
		var ys [2][]float32
		for i, src := range []kernels.Source{src, half} {
			ys[i] = make([]float32, rows*columns)
			kernels.MatMul([]kernels.Product{{W: pack(t, src, kernels.Threads{}), Y: ys[i]}}, x, rows, kernels.Threads{})
		}
		if !slices.Equal(ys[0], ys[1]) {
			t.Errorf("%+v: the same scales in float16 make another product", c)
		}
	}
}

func TestPackRefuses(t *testing.T) {
	for _, s := range []shape{{8, 64, 2, 32, false, wide}, {8, 64, 4, 16, false, wide}, {0, 64, 4, 32, false, wide}, {8, 0, 4, 32, false, wide}} {
		if m, err := kernels.Pack(s.source(rand.New(rand.NewPCG(1, 1))), kernels.Threads{}); err == nil {
			m.Free()
			t.Errorf("%v was packed", s)
		} else {
			t.Log(err)
		}
	}
	few := shape{8, 64, 4, 32, false, wide}.source(rand.New(rand.NewPCG(1, 1)))
	few.Scales = few.Scales[1:]
	if _, err := kernels.Pack(few, kernels.Threads{}); err == nil {
		t.Error("a matrix with too few scales was packed")
	}
}
