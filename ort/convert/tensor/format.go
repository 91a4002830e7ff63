package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Format is how the numbers of a tensor are stored.
type Format uint8

// The formats. Those with a Q or IQ store blocks of few bits with scales.
const (
	F32 Format = iota
	F16
	BF16
	F8E4M3 // 1 sign, 4 exponent, 3 mantissa bits, no infinities
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	IQ4_NL
	formats
)

// layout is a format's name, its block in numbers and in bytes, and its decoder.
type layout struct {
	name            string
	elements, bytes int
	decode          func(dst []float32, src []byte)
}

var layouts = [formats]layout{
	F32:    {"F32", 1, 4, decodeF32},
	F16:    {"F16", 1, 2, decodeF16},
	BF16:   {"BF16", 1, 2, decodeBF16},
	F8E4M3: {"F8_E4M3", 1, 1, decodeF8},
	Q4_0:   {"Q4_0", 32, 18, decodeQ4_0},
	Q4_1:   {"Q4_1", 32, 20, decodeQ4_1},
	Q5_0:   {"Q5_0", 32, 22, decodeQ5_0},
	Q5_1:   {"Q5_1", 32, 24, decodeQ5_1},
	Q8_0:   {"Q8_0", 32, 34, decodeQ8_0},
	Q2_K:   {"Q2_K", 256, 84, decodeQ2K},
	Q3_K:   {"Q3_K", 256, 110, decodeQ3K},
	Q4_K:   {"Q4_K", 256, 144, decodeQ4K},
	Q5_K:   {"Q5_K", 256, 176, decodeQ5K},
	Q6_K:   {"Q6_K", 256, 210, decodeQ6K},
	IQ4_NL: {"IQ4_NL", 32, 18, decodeIQ4NL},
}

// String is the name that model files use.
func (f Format) String() string {
	if f >= formats {
		return fmt.Sprintf("format %d", uint8(f))
	}
	return layouts[f].name
}

// Block is how many numbers one block has, and how many bytes it takes. Floats
// are blocks of one.
func (f Format) Block() (elements, bytes int) { return layouts[f].elements, layouts[f].bytes }

// Float reports whether each number is stored by itself.
func (f Format) Float() bool { return f <= F8E4M3 }

// Bytes is what n numbers take, which must be whole blocks.
func (f Format) Bytes(n int) int { return n / layouts[f].elements * layouts[f].bytes }

// Decode writes the numbers that src stores; len(dst) is a whole number of
// blocks and src as long as they are.
func (f Format) Decode(dst []float32, src []byte) { layouts[f].decode(dst, src[:f.Bytes(len(dst))]) }

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = Half(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func decodeF8(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = eights[src[i]]
	}
}

// halves and eights are what the bits of float16 and of F8_E4M3 mean.
var (
	halves [1 << 16]float32
	eights [1 << 8]float32
)

func init() {
	for b := range halves {
		sign, exponent, mantissa := float64(1-b>>15*2), b>>10&31, float64(b&1023)
		switch exponent {
		case 0:
			halves[b] = float32(math.Copysign(math.Ldexp(mantissa, -24), sign))
		case 31:
			halves[b] = float32(math.Inf(int(sign)))
			if mantissa != 0 {
				halves[b] = float32(math.NaN())
			}
		default:
			halves[b] = float32(sign * math.Ldexp(1024+mantissa, exponent-25))
		}
	}
	for b := range eights {
		sign, exponent, mantissa := float64(1-b>>7*2), b>>3&15, float64(b&7)
		switch {
		case b&127 == 127:
			eights[b] = float32(math.NaN())
		case exponent == 0:
			eights[b] = float32(math.Copysign(math.Ldexp(mantissa, -9), sign))
		default:
			eights[b] = float32(sign * math.Ldexp(8+mantissa, exponent-10))
		}
	}
}

// Half is the float16 with these bits.
func Half(bits uint16) float32 { return halves[bits] }

// ToHalf is the float16 nearest to x, ties to even, as bits. What is too large
// becomes an infinity.
func ToHalf(x float32) uint16 {
	bits := math.Float32bits(x)
	sign := uint16(bits >> 16 & 0x8000)
	bits &= 0x7fffffff
	switch {
	case bits > 0x7f800000:
		return sign | 0x7e00
	case bits >= 0x477ff000: // 65520 and more
		return sign | 0x7c00
	case bits < 0x38800000: // below 2^-14: multiples of 2^-24
		return sign | uint16(math.Float32bits(math.Float32frombits(bits)+0.5)&0x7ff)
	}
	return sign | uint16((bits-0x38000000+0xfff+bits>>13&1)>>13)
}

// ToBFloat is the bfloat16 nearest to x, ties to even, as bits.
func ToBFloat(x float32) uint16 {
	bits := math.Float32bits(x)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
