package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// narrow gives the layer a cache of 8 bits. Its scales fit keys and values of about 1,
// some of which go farther than the integers reach.
func (l *layer) narrow(r *rand.Rand) {
	l.KScale, l.VScale = nil, nil
	for range l.KVHeads * l.HeadSize {
		l.KScale = append(l.KScale, float32(1.5+2*r.Float64())/127)
		l.VScale = append(l.VScale, float32(1.5+2*r.Float64())/127)
	}
}

// integers are what the cache holds of a sequence's keys or values, by token, KV head
// and channel, and the same times their scales.
func (l *layer) integers(s int, cache []int8, scale []float32) (all [][][]float64, wide [][][]float64) {
	for p := range l.sequences[s] {
		block := int(l.BlockTable[s*l.MaxBlocks+p/l.BlockSize])
		row := (block*l.BlockSize + p%l.BlockSize) * l.KVHeads * l.HeadSize
		var n, w [][]float64
		for h := range l.KVHeads {
			var a, b []float64
			for i := range l.HeadSize {
				x := float64(cache[row+h*l.HeadSize+i])
				a, b = append(a, x), append(b, x*float64(scale[h*l.HeadSize+i]))
			}
			n, w = append(n, a), append(w, b)
		}
		all, wide = append(all, n), append(wide, w)
	}
	return all, wide
}

// TestAttentionOfEightBits: the cache holds the nearest integers, with ends where they
// reach no farther, and the output is the definition's for what they stand for. All
// levels have the same bits.
func TestAttentionOfEightBits(t *testing.T) {
	threads := threadsFor(t, 2)
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 21))
		lengths := []int{1 + r.IntN(60), 1 + r.IntN(60)}
		if seed == 0 {
			lengths[0] = 250 + r.IntN(270)
		}
		l := draw(r, lengths)
		for l.Heads*l.HeadSize > 1600 { // the portable level is slow
			l = draw(r, lengths)
		}
		l.narrow(r)
		name := fmt.Sprintf("seed %d: %d/%d heads of %d, rotary %d, norm %v, lengths %v", seed, l.Heads, l.KVHeads, l.HeadSize, l.RotaryDim, l.KNorm != nil, lengths)
		hidden := l.Heads * l.HeadSize
		var first []float32
		clamped := 0
		eachLevel(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 22))
			l.paged(r)
			var all []float32
			for s, n := range lengths {
				got := l.fill(t, r, threads, s, n)
				all = append(all, got...)
				keys, values := l.cached(s)
				near := func(what string, found, want [][][]float64, scale []float32) {
					t.Helper()
					for p := range want {
						for h := range want[p] {
							for i, x := range want[p][h] {
								x /= float64(scale[h*l.HeadSize+i])
								if math.Abs(x) > 128 {
									clamped++
								}
								if off := math.Abs(found[p][h][i] - max(-128, min(127, x))); !(off <= 0.501) {
									t.Fatalf("%s: %s of token %d, head %d, channel %d: %g in place of %g", name, what, p, h, i, found[p][h][i], x)
								}
							}
						}
					}
				}
				k, wideKeys := l.integers(s, l.KeyCache8, l.KScale)
				v, wideValues := l.integers(s, l.ValueCache8, l.VScale)
				near("key", k, keys, l.KScale)
				near("value", v, values, l.VScale)
				for p, row := range l.exactOf(s, wideKeys, wideValues) {
					for i, w := range row {
						if g := float64(got[p*hidden+i]); !(math.Abs(g-w) <= 3e-5) {
							t.Fatalf("%s: sequence %d, token %d, channel %d: %g, not %g", name, s, p, i, g, w)
						}
					}
				}
			}
			if first == nil {
				first = all
			} else if i := sameBits(first, all); i >= 0 {
				t.Fatalf("%s: other bits than on the portable level at %d", name, i)
			}
		})
		if clamped == 0 {
			t.Errorf("%s: nothing went farther than the integers", name)
		}
	}
}

// TestAttentionRounds: halves go to the even integer, and what is no number to the end.
func TestAttentionRounds(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	key := []float32{0.5, 1.5, -0.5, -2.5, 200, -200, nan, inf, -inf, 126.5, -127.5, 127.4, 0, 3, -3, 0.49}
	want := []int8{0, 2, 0, -2, 127, -128, -128, 127, -128, 126, -128, 127, 0, 3, -3, 0}
	ones := make([]float32, len(key))
	for i := range ones {
		ones[i] = 1
	}
	eachLevel(t, func(t *testing.T) {
		a := Attention{Heads: 1, KVHeads: 1, HeadSize: len(key), BlockSize: 16, MaxBlocks: 1, BlockTable: []int32{0},
			KScale: ones, VScale: ones, KeyCache8: make([]int8, 16*len(key)), ValueCache8: make([]int8, 16*len(key)),
			Cumulative: []int32{0, 1}, Past: []int32{0}, Query: key, Key: key, Value: key, Output: make([]float32, len(key))}
		if err := a.Attend(Threads{}); err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if a.KeyCache8[i] != w || a.ValueCache8[i] != w {
				t.Errorf("%g became %d and %d, want %d", key[i], a.KeyCache8[i], a.ValueCache8[i], w)
			}
		}
		for _, bad := range []float32{0, -1, nan, inf} {
			b := a
			b.VScale = append([]float32{bad}, ones[1:]...)
			if err := b.Attend(Threads{}); err == nil || !strings.Contains(err.Error(), "is not a positive number") {
				t.Errorf("a scale of %g: got %v", bad, err)
			}
		}
		b := a
		b.VScale = nil
		if err := b.Attend(Threads{}); err == nil || !strings.Contains(err.Error(), "alone") {
			t.Errorf("no scales of values: got %v", err)
		}
	})
}
