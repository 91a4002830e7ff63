package ort

import (
	"math"

	"github.com/draftmill/draftmill/ort/graph"
)

// widenByDefinition reads sign, exponent and fraction of IEEE 754's binary16 or
// of bfloat16.
func widenByDefinition(h uint16, t graph.ElementType) float32 {
	fraction, bias := 10, 15
	if t == graph.BFloat16 {
		fraction, bias = 7, 127
	}
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	exponent := int(h&0x7fff) >> fraction
	f := float64(int(h) & (1<<fraction - 1))
	switch {
	case exponent == 2*bias+1 && f == 0:
		return float32(math.Inf(int(sign)))
	case exponent == 2*bias+1:
		return float32(math.NaN())
	case exponent == 0:
		return float32(sign * math.Ldexp(f, 1-bias-fraction))
	}
	return float32(sign * math.Ldexp(f+float64(int(1)<<fraction), exponent-bias-fraction))
}
