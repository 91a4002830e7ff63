package convert

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/draftmill/draftmill/ort/convert/gguf"
	"github.com/draftmill/draftmill/ort/convert/safetensors"
	"github.com/draftmill/draftmill/ort/convert/tensor"
)

// decode is what MatMulNBits makes of a row.
func (s scheme) decode(q []byte, scales []float32, zeros []byte, cols int) []float32 {
	x := make([]float32, cols)
	for i := range x {
		n, zero := int(q[i*s.bits/8]), 1<<(s.bits-1)
		b := i / s.block
		if s.bits == 4 {
			n = n >> (i % 2 * 4) & 15
		}
		if s.asymmetric {
			if zero = int(zeros[b*s.bits/8]); s.bits == 4 {
				zero = zero >> (b % 2 * 4) & 15
			}
		}
		x[i] = scales[b] * float32(n-zero)
	}
	return x
}

// roundTrip quantizes a row and decodes it.
func (s scheme) roundTrip(x []float32, round rounding) []float32 {
	q, scales, zeros := make([]byte, s.rowBytes(len(x))), make([]float32, s.blocks(len(x))), make([]byte, s.zeroBytes(len(x)))
	s.row(x, q, scales, zeros, round)
	return s.decode(q, scales, zeros, len(x))
}

// plain is rounding with the scale that just covers a block: its largest
// magnitude becomes 7, or where signed, its largest number becomes -8.
func plain(x []float32, block int, signed bool) []float32 {
	y := make([]float32, len(x))
	for at := 0; at < len(x); at += block {
		var largest float64
		part := x[at:min(at+block, len(x))]
		for _, v := range part {
			if math.Abs(float64(v)) > math.Abs(largest) {
				largest = float64(v)
			}
		}
		scale := math.Abs(largest) / 7
		if signed {
			scale = largest / -8
		}
		for i, v := range part {
			y[at+i] = float32(scale * max(min(math.RoundToEven(float64(v)/scale), 7), -8))
		}
	}
	return y
}

// weighted is the squared error, each weighted with the magnitude of its number.
func weighted(x, y []float32) (sum float64) {
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		sum += d * d * math.Abs(float64(x[i]))
	}
	return sum
}

func randoms(n int, draw func(*rand.Rand) float64) []float32 {
	rng, x := rand.New(rand.NewPCG(1, 2)), make([]float32, n)
	for i := range x {
		x[i] = float32(draw(rng))
	}
	return x
}

func normal(r *rand.Rand) float64  { return r.NormFloat64() }
func laplace(r *rand.Rand) float64 { return r.ExpFloat64() * float64(r.IntN(2)*2-1) }

// TestSearchBeatsAbsoluteMaximum: the error that quantize.go states.
func TestSearchBeatsAbsoluteMaximum(t *testing.T) {
	for _, c := range []struct {
		name                string
		draw                func(*rand.Rand) float64
		block               int
		ofMaximum, ofSigned float64 // root mean square error, of that of the two plain ways
	}{
		{"normal", normal, 32, 0.86, 0.965}, {"normal", normal, 64, 0.86, 0.965}, {"normal", normal, 128, 0.86, 0.965},
		{"Laplace", laplace, 32, 0.86, 0.965}, {"Laplace", laplace, 128, 0.86, 0.965},
	} {
		x := randoms(1<<16, c.draw)
		four, zeros, eights := scheme{bits: 4, block: c.block}, scheme{bits: 4, block: c.block, asymmetric: true}, scheme{bits: 8, block: c.block}
		got := weighted(x, four.roundTrip(x, four.rounded(float32Type)))
		a, b := math.Sqrt(got/weighted(x, plain(x, c.block, false))), math.Sqrt(got/weighted(x, plain(x, c.block, true)))
		t.Logf("%s, blocks of %d: %.3f of absolute maximum, %.3f of maximum / -8", c.name, c.block, a, b)
		if a > c.ofMaximum || b > c.ofSigned {
			t.Errorf("%s, blocks of %d: %.3f and %.3f, want %.2f and %.2f", c.name, c.block, a, b, c.ofMaximum, c.ofSigned)
		}
		if zero := weighted(x, zeros.roundTrip(x, zeros.rounded(float32Type))); zero > got {
			t.Errorf("%s, blocks of %d: zero points make it worse: %g, %g", c.name, c.block, zero, got)
		}
		if eight := weighted(x, eights.roundTrip(x, eights.rounded(float32Type))); eight > got/150 {
			t.Errorf("%s, blocks of %d: 8 bits err by %g, 4 by %g", c.name, c.block, eight, got)
		}
	}
}

// TestQuantizeEdges: zeros, ones, tiny and huge numbers, rows that are no whole
// blocks; what fits exactly stays exact.
func TestQuantizeEdges(t *testing.T) {
	for _, s := range []scheme{{4, 32, false}, {4, 32, true}, {8, 64, false}, {8, 64, true}, {4, 128, false}} {
		for _, c := range []struct {
			name string
			x    []float32
			off  float64 // of the largest number
		}{
			{"zeros", make([]float32, 40), 0},
			{"one number", []float32{-3}, 1e-6},
			{"one outlier", append(make([]float32, 45), 1000), 1e-6},
			{"denormal", []float32{1e-45, -1e-45, 1e-40}, 1.1},
			{"huge", []float32{1e30, -1e30, 5e29}, 0.1},
			{"all alike", []float32{2, 2, 2, 2, 2}, 1e-6},
		} {
			y := s.roundTrip(c.x, notRounded)
			largest := 0.0
			for _, v := range c.x {
				largest = max(largest, math.Abs(float64(v)))
			}
			for i := range y {
				if off := math.Abs(float64(y[i]) - float64(c.x[i])); !(off <= c.off*largest) {
					t.Errorf("%+v, %s: number %d is %g, want %g", s, c.name, i, y[i], c.x[i])
				}
			}
		}
	}
	exact := make([]float32, 64)
	for i := range exact {
		exact[i] = float32(i%16-8) * 0.25
	}
	for i, y := range (scheme{4, 32, false}).roundTrip(exact, roundHalf) {
		if y != exact[i] {
			t.Fatalf("number %d is %g, want %g", i, y, exact[i])
		}
	}
}

// TestRounding: scales are numbers of the few bits that are stored, nearest, and
// the integers are those of the rounded scale.
func TestRounding(t *testing.T) {
	for _, c := range []struct {
		x, half, short float32
	}{
		{1 + 1.0/2048 + 1.0/(1<<20), 1 + 1.0/1024, 1}, {-1.0 / 3, -0.33325195, -0.33398438}, {3.0 / 256, 3.0 / 256, 3.0 / 256}, {1 + 3.0/256, 1 + 3.0/256, 1 + 1.0/64},
		{1.0 / (1 << 24), 1.0 / (1 << 24), 0}, {5.0 / (1 << 22), 5.0 / (1 << 22), 1.0 / (1 << 20)}, {65519, 65504, float32(math.Inf(1))}, {65240, 65248, 65280}, {1e6, float32(math.Inf(1)), float32(math.Inf(1))}, {0, 0, 0},
	} {
		if h, s := roundHalf(c.x), roundShort(c.x); h != c.half || s != c.short {
			t.Errorf("%g: %g and %g, want %g and %g", c.x, h, s, c.half, c.short)
		}
	}
	for _, s := range []scheme{{4, 32, false}, {4, 32, true}, {8, 32, false}, {8, 32, true}} {
		x := randoms(1<<12, normal)
		q, scales, zeros := make([]byte, s.rowBytes(len(x))), make([]float32, s.blocks(len(x))), make([]byte, s.zeroBytes(len(x)))
		round := s.rounded(float32Type)
		s.row(x, q, scales, zeros, round)
		y := s.decode(q, scales, zeros, len(x))
		inner := 0
		for i := range x {
			scale := scales[i/s.block]
			if round(scale) != scale || scale == 0 {
				t.Fatalf("%+v: the scale %g is not rounded", s, scale)
			}
			if math.Abs(float64(y[i]-x[i])) <= 0.5001*math.Abs(float64(scale)) {
				inner++
			}
		}
		if inner < len(x)*93/100 { // the others are cut off
			t.Errorf("%+v: %d of %d numbers are rounded to the nearest", s, inner, len(x))
		}
	}
}

// TestCoarseScales: what float16 cannot hold keeps float32; a few tiny blocks among
// others do not make a matrix keep it.
func TestCoarseScales(t *testing.T) {
	const rows, cols = 8, 64
	for _, c := range []struct {
		name    string
		size    func(row int) float32 // of a row's numbers
		rounded bool
	}{
		{"ordinary", func(int) float32 { return 0.05 }, true},
		{"one dead row", func(r int) float32 { return []float32{1e-20, 0.05}[min(r, 1)] }, true},
		{"one small row", func(r int) float32 { return []float32{1e-6, 0.05}[min(r, 1)] }, true},
		{"small", func(int) float32 { return 1e-5 }, false},
		{"tiny", func(int) float32 { return 1e-20 }, false},
		{"large", func(int) float32 { return 1e7 }, false},
		{"one large row", func(r int) float32 { return []float32{1e7, 0.05}[min(r, 1)] }, false},
		{"zeros", func(int) float32 { return 0 }, true},
	} {
		for _, s := range []scheme{{4, 32, false}, {4, 32, true}, {8, 32, false}} {
			x := randoms(rows*cols, normal)
			for i := range x {
				x[i] *= c.size(i / cols)
			}
			q, scales, zeros := fillBlocks(t, x, rows, cols, s, float32Type)
			round, all := s.rounded(float32Type), true
			for _, scale := range scales {
				all = all && round(scale) == scale
			}
			if all != c.rounded {
				t.Errorf("%s, %+v: rounded %v", c.name, s, all)
			}
			for r := range rows {
				row := x[r*cols:][:cols]
				y := s.decode(q[r*s.rowBytes(cols):], scales[r*s.blocks(cols):], zeros[min(len(zeros), r*s.zeroBytes(cols)):], cols)
				for i := range row {
					allowed := 0.2 * 3 * float64(c.size(r)) // a step and more of 4 bits
					if c.rounded {
						allowed += 1.0 / (1 << 18)
					}
					if off := math.Abs(float64(y[i]) - float64(row[i])); !(off <= allowed) {
						t.Fatalf("%s, %+v: number %d of row %d is %g, want %g", c.name, s, i, r, y[i], row[i])
					}
				}
			}
		}
	}
	huge := make([]float32, 64)
	huge[3] = 1e7
	if err := tryFillBlocks(t, huge, 1, 64, scheme{4, 32, false}, float16Type, nil); err == nil {
		t.Error("numbers too large for scales of float16 are no error")
	}
	huge[5] = float32(math.NaN())
	if err := tryFillBlocks(t, huge, 1, 64, scheme{4, 32, false}, float32Type, nil); err == nil {
		t.Error("NaN is no error")
	}
}

// fillBlocks quantizes a matrix as an import does.
func fillBlocks(t *testing.T, x []float32, rows, cols int, s scheme, scaleType element) (q []byte, scales []float32, zeros []byte) {
	t.Helper()
	var data [3][]byte
	if err := tryFillBlocks(t, x, rows, cols, s, scaleType, &data); err != nil {
		t.Fatal(err)
	}
	scales = make([]float32, rows*s.blocks(cols))
	tensor.F32.Decode(scales, data[1])
	return data[0], scales, data[2]
}

func tryFillBlocks(t *testing.T, x []float32, rows, cols int, s scheme, scaleType element, data *[3][]byte) error {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m := matrix(&tensor.Tensor{Name: "w", Format: tensor.F32, Shape: []int{rows, cols}, Data: floatBytes(x, float32Type)})
	sizes := []int{rows * s.rowBytes(cols), rows * s.blocks(cols) * scaleType.width()}
	if s.asymmetric {
		sizes = append(sizes, rows*s.zeroBytes(cols))
	}
	f, done, want := &filling{ctx: t.Context(), file: file}, int64(0), int64(0)
	for _, size := range sizes {
		f.blobs = append(f.blobs, blob{offset: want, size: int64(size)})
		want += int64(size)
	}
	var mu sync.Mutex
	f.done = func(n int64) { mu.Lock(); done += n; mu.Unlock() }
	if err := f.blocks(m, s, false, scaleType); err != nil {
		return err
	}
	if done != want {
		t.Errorf("%d bytes are said to be written, want %d", done, want)
	}
	for i, size := range sizes {
		data[i] = make([]byte, size)
		if _, err := file.ReadAt(data[i], f.blobs[i].offset); err != nil {
			t.Fatal(err)
		}
	}
	return nil
}

// TestKeep: integers and scales of GGUF give the very numbers that they give
// there.
func TestKeep(t *testing.T) {
	f, err := gguf.Open("testdata/formats/formats.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, s := range map[string]scheme{"Q4_0": {4, 32, false}, "Q4_1": {4, 32, false}, "Q8_0": {8, 32, false}} {
		x := f.Tensors[name]
		for r := range x.Rows() {
			q, scales, zeros := make([]byte, s.rowBytes(x.Cols())), make([]float32, s.blocks(x.Cols())), make([]float32, s.blocks(x.Cols()))
			keep(x.Format, x.Row(r), q, scales, zeros)
			got, want := s.decode(q, scales, nil, x.Cols()), make([]float32, x.Cols())
			x.Format.Decode(want, x.Row(r))
			for i := range want {
				allowed := 0.0
				if name == "Q4_1" { // the minimum is a zero point here, which may have a fraction
					got[i] += scales[i/32] * (8 - zeros[i/32])
					allowed = 4e-6 * math.Abs(float64(scales[i/32]*(16+float32(math.Abs(float64(zeros[i/32]))))))
				}
				if off := math.Abs(float64(got[i]) - float64(want[i])); off > allowed {
					t.Fatalf("%s: number %d of row %d is %g, want %g", name, i, r, got[i], want[i])
				}
			}
		}
	}
}

// TestHalves: rounding to 16 bits undoes decoding, and rounds to nearest.
func TestHalves(t *testing.T) {
	for bits := range 1 << 16 {
		x := tensor.Half(uint16(bits))
		if back := tensor.ToHalf(x); back != uint16(bits) && x == x {
			t.Fatalf("%#x is %g is %#x", bits, x, back)
		}
	}
	for _, c := range []struct {
		x          float32
		half, bf16 uint16
	}{{1 + 1.0/2048, 0x3c00, 0x3f80}, {1 + 3.0/2048, 0x3c02, 0x3f80}, {65519, 0x7bff, 0x4780}, {65520, 0x7c00, 0x4780}, {1e-8, 0, 0x322c}, {-2.5, 0xc100, 0xc020}, {1 + 1.0/256, 0x3c04, 0x3f80}, {1 + 3.0/256, 0x3c0c, 0x3f82}} {
		if h, b := tensor.ToHalf(c.x), tensor.ToBFloat(c.x); h != c.half || b != c.bf16 {
			t.Errorf("%g: %#x and %#x, want %#x and %#x", c.x, h, b, c.half, c.bf16)
		}
	}
}

// TestFactors: 8-bit floats with one factor, one for each row, and one for each
// block of 128 x 128.
func TestFactors(t *testing.T) {
	f, err := safetensors.Open("testdata/formats/formats.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, 256*256)
	for i := range data {
		data[i] = byte(i*7) & 0x7e // numbers all
	}
	w := &tensor.Tensor{Name: "w", Format: tensor.F8E4M3, Shape: []int{256, 256}, Data: data}
	factor := func(suffix string, values []float32, shape ...int) *tensor.Tensor {
		return &tensor.Tensor{Name: "w" + suffix, Format: tensor.F32, Shape: shape, Data: floatBytes(values, float32Type)}
	}
	rows := make([]float32, 256)
	for i := range rows {
		rows[i] = float32(i + 1)
	}
	for _, c := range []struct {
		scale *tensor.Tensor
		of    func(row, col int) float32
	}{
		{factor("_scale", []float32{3}), func(int, int) float32 { return 3 }},
		{factor("_scale", rows, 256, 1), func(r, _ int) float32 { return float32(r + 1) }},
		{factor("_scale_inv", []float32{1, 2, 3, 4}, 2, 2), func(r, c int) float32 { return float32(r/128*2 + c/128 + 1) }},
	} {
		s := &source{model: &model{}, tensors: map[string]*tensor.Tensor{"w": w, c.scale.Name: c.scale}, used: map[string]bool{}}
		m := matrix(w)
		if m.parts[0].scale, err = s.scaling(w); err != nil {
			t.Fatal(err)
		}
		plain, got := make([]float32, 256), make([]float32, 256)
		for r := range 256 {
			w.Format.Decode(plain, w.Row(r))
			m.read(got, r)
			for col := range got {
				if got[col] != plain[col]*c.of(r, col) {
					t.Fatalf("%v: row %d, column %d: %g, want %g times %g", c.scale, r, col, got[col], plain[col], c.of(r, col))
				}
			}
		}
	}
	s := &source{model: &model{}, tensors: map[string]*tensor.Tensor{"w": w}, used: map[string]bool{}}
	if _, err := s.scaling(w); err == nil {
		t.Error("8-bit floats without factors are no error")
	}
}

func BenchmarkQuantize(b *testing.B) {
	x := randoms(1<<16, normal)
	for _, c := range []struct {
		name string
		s    scheme
	}{{"int4", scheme{4, 32, false}}, {"int4-zeros", scheme{4, 32, true}}, {"int8", scheme{8, 32, false}}} {
		b.Run(c.name, func(b *testing.B) {
			q, scales, zeros := make([]byte, c.s.rowBytes(len(x))), make([]float32, c.s.blocks(len(x))), make([]byte, c.s.zeroBytes(len(x)))
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				c.s.row(x, q, scales, zeros, c.s.rounded(float32Type))
			}
		})
	}
}
