package convert

import "math"

// Weights of few bits, as MatMulNBits stores them: a row is cut into blocks, and
// a number is scale * (q - zero) with an unsigned q of 4 or 8 bits, one scale for
// a block, and one zero, which is half the range unless zero points are given.
//
// Rounding to nearest with the scale that just covers a block's largest number
// wastes the range on one outlier. The scale here is searched: each of a few
// ranges around the largest number gives integers; for these the scale with the
// least squared error is known in closed form, sum(w x q) / sum(w q q), and the
// range with the least error is taken. Then all numbers are rounded again with
// that scale, the scale is fitted to these integers, which can only be better, it
// is rounded itself (rounding.go), and the integers are those of the rounded scale.
//
// An error counts with the weight w = |x|. What matters is the error of a layer's
// output, not of its weights: inputs differ much in size, and a trained model has
// its large weights where large inputs come. Plain squares (w = 1) give less
// error in the weights and more in the output; docs/quantization.md has both.
// With symmetric blocks of 32 and 4 bits, the weighted error of normally
// distributed weights is 0.83 of that of absolute maximum / 7 (root mean square), and
// 0.92 of that of the largest number / -8; Laplace's 0.83 and 0.93
// (quantize_test.go).
//
// Every product is rounded to float32 before it is added, so that results are the
// same to the bit on all processors and for any number of them.

// scheme is how a weight is quantized.
type scheme struct {
	bits, block int
	asymmetric  bool
}

func (s scheme) blocks(cols int) int { return (cols + s.block - 1) / s.block }

// rowBytes is what the integers of a row take.
func (s scheme) rowBytes(cols int) int { return s.blocks(cols) * s.block * s.bits / 8 }

// zeroBytes is what the zero points of a row take.
func (s scheme) zeroBytes(cols int) int { return (s.blocks(cols)*s.bits + 7) / 8 }

// maxBlock is the longest block.
const maxBlock = 256

// row quantizes a row; x is padded by zeros to whole blocks in place of what
// the last block lacks. q, scales and zeros have the sizes above; zeros is not
// used where the scheme is symmetric. Scales are numbers that round leaves as they
// are; one that is infinite is refused by who asked, and its integers are nothing.
func (s scheme) row(x []float32, q []byte, scales []float32, zeros []byte, round rounding) {
	var pad [maxBlock]float32
	var integers [maxBlock]byte
	clear(zeros)
	for b := range s.blocks(len(x)) {
		block := x[b*s.block:]
		if len(block) >= s.block {
			block = block[:s.block]
		} else {
			clear(pad[:])
			copy(pad[:], block)
			block = pad[:s.block]
		}
		n := integers[:s.block]
		var zero byte
		if s.asymmetric {
			scales[b], zero = s.between(block, n, round)
			if s.bits == 4 {
				zeros[b/2] |= zero << (b % 2 * 4)
			} else {
				zeros[b] = zero
			}
		} else {
			scales[b] = s.around(block, n, round)
		}
		s.pack(q[b*s.block*s.bits/8:], n)
	}
}

// pack stores the integers of a block.
func (s scheme) pack(q, n []byte) {
	if s.bits == 8 {
		copy(q, n)
		return
	}
	for j := 0; j < len(n)/2; j++ {
		q[j] = n[2*j] | n[2*j+1]<<4
	}
}

// Adding roundBias to a float32 of less than 2^22 leaves its nearest integer,
// ties to even, in the low bits; roundBits are those of zero.
const (
	roundBias = 3 << 22
	roundBits = 0x4B400000
)

func nearest(x, scale float32, low, high int32) int32 {
	return max(min(int32(math.Float32bits(float32(x*scale)+roundBias))-roundBits, high), low)
}

// ranges are those tried for 4 bits: what the largest number of a block is to
// become. Tried on normal, Laplace and real weights; twelve ranges gain another
// half percent.
var ranges = [4]float32{-8.6, -8.1, -7.7, -7.1}

// around quantizes a block symmetrically.
func (s scheme) around(x []float32, q []byte, round rounding) (scale float32) {
	var largest, size float32
	for _, v := range x {
		if a := magnitude(v); a > size {
			size, largest = a, v
		}
	}
	half := int32(1) << (s.bits - 1)
	inverse := 1 / largest
	if size == 0 || math.IsInf(float64(inverse), 0) { // zeros, or as good as
		return s.settle(x, 0, half, q)
	}
	unit := inverse
	if s.bits == 8 {
		inverse *= -128
	} else {
		inverse = 1 / bestRange(x, inverse)
	}
	fitted, _ := s.fit(x, unit, inverse, half)
	return s.settle(x, round(fitted), half, q)
}

func magnitude(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func infinite(x float32) bool { return math.IsInf(float64(x), 0) }

// weigh is how much an error of a number counts. unit makes it one for the
// largest number of the block, so that nothing leaves the range of float32.
func weigh(x, unit float32) float32 {
	return magnitude(float32(x * unit))
}

// bestRange is the best of the scales that ranges lead to. inverse is that of the
// largest number.
func bestRange(x []float32, inverse float32) float32 {
	i0, i1, i2, i3 := ranges[0]*inverse, ranges[1]*inverse, ranges[2]*inverse, ranges[3]*inverse
	var a0, a1, a2, a3, b0, b1, b2, b3 float32
	for _, v := range x {
		n0, n1, n2, n3 := nearest(v, i0, -8, 7), nearest(v, i1, -8, 7), nearest(v, i2, -8, 7), nearest(v, i3, -8, 7)
		w := weigh(v, inverse)
		wv := float32(w * v)
		a0 += float32(wv * float32(n0))
		a1 += float32(wv * float32(n1))
		a2 += float32(wv * float32(n2))
		a3 += float32(wv * float32(n3))
		b0 += float32(w * float32(n0*n0))
		b1 += float32(w * float32(n1*n1))
		b2 += float32(w * float32(n2*n2))
		b3 += float32(w * float32(n3*n3))
	}
	// The squared error is sum(w x x) - sum(w x q)^2 / sum(w q q).
	scale, best := a0/b0, a0/b0*a0
	for _, c := range [3]struct{ a, b float32 }{{a1, b1}, {a2, b2}, {a3, b3}} {
		if fit := c.a / c.b; fit*c.a > best {
			scale, best = fit, fit*c.a
		}
	}
	return scale
}

// widths are the parts of a block's range that are tried with zero points of 4
// bits. The zero point is an integer, so that a little more than the range may fit
// better than the range.
var widths = [...]float32{1.06, 1.03, 1, 0.97, 0.92, 0.86}

// between quantizes a block with a zero point.
func (s scheme) between(x []float32, q []byte, round rounding) (scale float32, zero byte) {
	var low, high float32 // zero is always among what can be stored
	for _, v := range x {
		low, high = min(low, v), max(high, v)
	}
	top := int32(1)<<s.bits - 1
	if width := high - low; width == 0 || infinite(float32(top)/width) {
		return s.settle(x, 0, 0, q), 0
	}
	unit := 1 / max(high, -low)
	best, chosen := float32(-1), int32(0)
	try := func(inverse float32, z int32) {
		if fit, gain := s.fit(x, unit, inverse, z); gain > best {
			scale, chosen, best = fit, z, gain
		}
	}
	tried := widths[:]
	if s.bits == 8 {
		tried = []float32{1}
	}
	for _, part := range tried {
		inverse := float32(top) / ((high - low) * part)
		try(inverse, nearest(-low*part, inverse, 0, top))
	}
	if s.bits == 4 { // the neighbours of the best zero point
		inverse, z := 1/scale, chosen
		try(inverse, max(z-1, 0))
		try(inverse, min(z+1, top))
	}
	scale, _ = s.fit(x, unit, 1/scale, chosen)
	return s.settle(x, round(scale), chosen, q), byte(chosen)
}

// fit rounds a block with a zero point; scale is the best for these integers, and
// gain is what the squared error is less than that of zeros.
func (s scheme) fit(x []float32, unit, inverse float32, zero int32) (scale, gain float32) {
	top := int32(1)<<s.bits - 1
	var sum, squares float32
	for _, v := range x {
		n := nearest(v, inverse, -zero, top-zero)
		w := weigh(v, unit)
		sum += float32(float32(w*v) * float32(n))
		squares += float32(w * float32(n*n))
	}
	if squares == 0 {
		return 0, 0
	}
	scale = sum / squares
	return scale, scale * sum
}

// settle rounds a block with its final scale and zero point. It returns the scale,
// zero where that is nearly what it was.
func (s scheme) settle(x []float32, scale float32, zero int32, q []byte) float32 {
	inverse := 1 / scale
	if infinite(inverse) || infinite(scale) {
		inverse = 0
		if !infinite(scale) {
			scale = 0
		}
	}
	top := int32(1)<<s.bits - 1
	for i, v := range x {
		q[i] = byte(nearest(v, inverse, -zero, top-zero) + zero)
	}
	return scale
}
