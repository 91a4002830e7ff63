package convert

import (
	"math"

	"github.com/draftmill/draftmill/ort/convert/tensor"
)

// rounding is what the scales of a matrix are rounded to: a few bits are enough for
// them, once the integers are those of the rounded scale, and the kernels then read
// less (ort/kernels/quantized_internal.h). On real weights the weighted error grows
// by 0.2 percent at most.
type rounding func(scale float32) float32

// rounded says what scales of a type are rounded to.
func (s scheme) rounded(t element) rounding {
	switch {
	case t == bfloat16Type:
		return func(x float32) float32 { return math.Float32frombits(uint32(tensor.ToBFloat(x)) << 16) }
	case s.asymmetric && s.bits == 4:
		return roundShort
	}
	return roundHalf
}

func roundHalf(x float32) float32 { return tensor.Half(tensor.ToHalf(x)) }

// roundShort leaves 7 bits of float16's mantissa of 10, so that scale and zero point
// fit in 16 bits together.
func roundShort(x float32) float32 {
	h := tensor.ToHalf(x)
	return tensor.Half((h + 3 + h>>3&1) &^ 7)
}

func notRounded(x float32) float32 { return x }

// tooCoarse reports whether rounding is too coarse for a matrix whose largest rounded
// scale has that magnitude: beyond the range of float16, or altogether below its
// normal numbers. Small scales beside larger ones become subnormal numbers, and the
// smallest zero, such as those of tokens that were never trained: at 4 bits no weight
// is off by more than 2^-18 by that (15 steps of half of 2^-21), while other blocks
// of its matrix have steps of 2^-14 and more.
func tooCoarse(largest float32) bool {
	const leastNormal = 1.0 / (1 << 14)
	return largest < leastNormal || infinite(largest)
}
