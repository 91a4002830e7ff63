package tensor

import (
	"encoding/binary"
	"math/bits"
)

// half reads a float16.
func half(src []byte) float32 { return Half(binary.LittleEndian.Uint16(src)) }

// Products are rounded before they are added: a compiler may join an
// unconverted product and a sum into one operation with other last bits.

func decodeQ4_0(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[18:] {
		d, q, y := half(src), src[2:18], dst[:32]
		for j, b := range q {
			y[j], y[j+16] = float32(int(b&15)-8)*d, float32(int(b>>4)-8)*d
		}
	}
}

func decodeQ4_1(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[20:] {
		d, m, q, y := half(src), half(src[2:]), src[4:20], dst[:32]
		for j, b := range q {
			y[j], y[j+16] = float32(float32(b&15)*d)+m, float32(float32(b>>4)*d)+m
		}
	}
}

func decodeQ5_0(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[22:] {
		d, high, q, y := half(src), binary.LittleEndian.Uint32(src[2:]), src[6:22], dst[:32]
		for j, b := range q {
			y[j] = float32(int(b&15|byte(high>>j&1)<<4)-16) * d
			y[j+16] = float32(int(b>>4|byte(high>>(j+16)&1)<<4)-16) * d
		}
	}
}

func decodeQ5_1(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[24:] {
		d, m, high, q, y := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:]), src[8:24], dst[:32]
		for j, b := range q {
			y[j] = float32(float32(b&15|byte(high>>j&1)<<4)*d) + m
			y[j+16] = float32(float32(b>>4|byte(high>>(j+16)&1)<<4)*d) + m
		}
	}
}

func decodeQ8_0(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[34:] {
		d, q, y := half(src), src[2:34], dst[:32]
		for j, b := range q {
			y[j] = float32(int8(b)) * d
		}
	}
}

// fourBits are the 16 values of IQ4_NL, denser around zero.
var fourBits = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func decodeIQ4NL(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[18:] {
		d, q, y := half(src), src[2:18], dst[:32]
		for j, b := range q {
			y[j], y[j+16] = d*fourBits[b&15], d*fourBits[b>>4]
		}
	}
}

// Blocks of 256 have 8 or 16 parts with scales of their own, which are integers
// times a scale of the whole block.

func decodeQ2K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[84:] {
		scales, q := src[:16], src[16:80]
		d, least := half(src[80:]), half(src[82:])
		for part := range 16 {
			s := scales[part]
			scale, minimum := d*float32(s&15), least*float32(s>>4)
			// Parts come in pairs: 32 bytes hold four pairs, two bits each.
			from, shift := q[part/8*32+part%2*16:][:16], part/2%4*2
			y := dst[part*16:][:16]
			for j, b := range from {
				y[j] = float32(scale*float32(b>>shift&3)) - minimum
			}
		}
	}
}

func decodeQ3K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[110:] {
		high, q, packed, d := src[:32], src[32:96], src[96:108], half(src[108:])
		for part := range 16 {
			low := packed[part%8] >> (part / 8 * 4) & 15
			top := packed[8+part%4] >> (part / 4 * 2) & 3
			scale := d * float32(int(low|top<<4)-32)
			from, shift := q[part/8*32+part%2*16:][:16], part/2%4*2
			mask := high[part%2*16:][:16]
			y := dst[part*16:][:16]
			for j, b := range from {
				y[j] = scale * float32(int(b>>shift&3|mask[j]>>(part/2)&1<<2)-4)
			}
		}
	}
}

// scalesOf reads the scale and the minimum of one of the 8 parts of Q4_K and
// Q5_K: 6 bits each, in 12 bytes.
func scalesOf(packed []byte, part int) (scale, minimum byte) {
	if part < 4 {
		return packed[part] & 63, packed[part+4] & 63
	}
	return packed[part+4]&15 | packed[part-4]>>6<<4, packed[part+4]>>4 | packed[part]>>6<<4
}

func decodeQ4K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[144:] {
		d, least, packed, q := half(src), half(src[2:]), src[4:16], src[16:144]
		for pair := range 4 {
			s0, m0 := scalesOf(packed, 2*pair)
			s1, m1 := scalesOf(packed, 2*pair+1)
			d0, min0, d1, min1 := d*float32(s0), least*float32(m0), d*float32(s1), least*float32(m1)
			y := dst[pair*64:][:64]
			for j, b := range q[pair*32:][:32] {
				y[j], y[j+32] = float32(d0*float32(b&15))-min0, float32(d1*float32(b>>4))-min1
			}
		}
	}
}

func decodeQ5K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[176:] {
		d, least, packed, high, q := half(src), half(src[2:]), src[4:16], src[16:48], src[48:176]
		for pair := range 4 {
			s0, m0 := scalesOf(packed, 2*pair)
			s1, m1 := scalesOf(packed, 2*pair+1)
			d0, min0, d1, min1 := d*float32(s0), least*float32(m0), d*float32(s1), least*float32(m1)
			y := dst[pair*64:][:64]
			for j, b := range q[pair*32:][:32] {
				top := high[j] >> (2 * pair)
				y[j], y[j+32] = float32(d0*float32(b&15|top&1<<4))-min0, float32(d1*float32(b>>4|top>>1&1<<4))-min1
			}
		}
	}
}

func decodeQ6K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[210:] {
		low, high, scales, d := src[:128], src[128:192], src[192:208], half(src[208:])
		for part := range 16 {
			half, quarter := part/8, part/2%4 // of 128 and of 32 numbers
			scale := d * float32(int8(scales[part]))
			ql := low[half*64+quarter%2*32+part%2*16:][:16]
			qh := high[half*32+part%2*16:][:16]
			y := dst[part*16:][:16]
			for j, b := range ql {
				y[j] = scale * float32(int(b>>(quarter/2*4)&15|qh[j]>>(2*quarter)&3<<4)-32)
			}
		}
	}
}

// product is a*b, or false where that is not an int of a sensible size: what a
// hostile file says of its sizes is multiplied by this alone.
func product(a, b int) (int, bool) {
	if a < 0 || b < 0 {
		return 0, false
	}
	high, low := bits.Mul64(uint64(a), uint64(b))
	return int(low), high == 0 && low < 1<<48
}
