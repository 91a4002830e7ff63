package app

import "testing"

// TestReadBandwidth: every word is read once, and a machine of today reads more
// than a hundred megabytes and less than ten terabytes a second.
func TestReadBandwidth(t *testing.T) {
	for n := range 40 {
		words := make([]uint64, n)
		for i := range words {
			words[i] = uint64(i + 1)
		}
		if got, want := read(words), uint64(n*(n+1)/2); got != want {
			t.Errorf("%d words: %d, want %d", n, got, want)
		}
	}
	for _, weights := range []int{0, 3 << 20, 20<<20 + 7} {
		if b, err := readBandwidth(weights); err != nil || b < 1e8 || b > 1e13 {
			t.Errorf("%d bytes: %v a second, %v", weights, b, err)
		}
	}
}
