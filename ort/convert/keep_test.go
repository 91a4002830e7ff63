package convert

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/draftmill/draftmill/ort/convert/tensor"
)

// TestKeptBlocks: the integers, scales and zero points that are taken over from
// GGUF's blocks mean the numbers that the blocks do, also where a block's scale
// is 0 and where its minimum lies far from its range.
func TestKeptBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const blocks = 64
	for format, c := range map[tensor.Format]struct{ bytes, bits, halves int }{
		tensor.Q4_0: {18, 4, 1}, tensor.Q4_1: {20, 4, 2}, tensor.Q8_0: {34, 8, 1},
	} {
		src := make([]byte, blocks*c.bytes)
		for b := range blocks {
			block := src[b*c.bytes:][:c.bytes]
			for i := range block {
				block[i] = byte(rng.Uint32())
			}
			for h := range c.halves {
				value := float32(rng.NormFloat64()) * []float32{0.01, 1, 20}[rng.IntN(3)]
				if h == 0 && b == 5 && c.halves == 1 {
					value = 0
				}
				binary.LittleEndian.PutUint16(block[2*h:], tensor.ToHalf(value))
			}
		}
		want := make([]float32, blocks*32)
		format.Decode(want, src)
		q, scales, zeros := make([]byte, blocks*32*c.bits/8), make([]float32, blocks), make([]float32, blocks)
		keep(format, src, q, scales, zeros)
		for i, w := range want {
			b := i / 32
			n := int(q[i*c.bits/8])
			if c.bits == 4 {
				n = n >> (i % 2 * 4) & 15
			}
			zero := float64(int(1) << (c.bits - 1))
			if format == tensor.Q4_1 {
				zero = float64(zeros[b])
			}
			got := float64(scales[b]) * (float64(n) - zero)
			size := math.Abs(float64(scales[b])) * (16 + math.Abs(zero)) // of what is subtracted
			if math.Abs(got-float64(w)) > 1e-6*size {
				t.Fatalf("%v: number %d is %v, want %v", format, i, got, w)
			}
		}
	}
}
