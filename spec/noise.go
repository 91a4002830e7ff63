package spec

import "math"

// Noise is the noise of one position of one sequence: for every token id one
// number from the exponential distribution of mean 1, all independent. It is
// what the rule coupled draws with: of weights w, the token with the smallest
// E(x) / w(x) has the distribution w / sum w (an exponential race; with g =
// -log E it is the Gumbel-max trick, argmax of log w + g).
//
// The numbers come in groups of 32 ids (id div 32). Of each group the
// smallest number is drawn first, together with the id that has it; the others
// follow it by exponential distances of their own:
//
//	E(x) = e / 32          for the group's first id, e exponential
//	E(x) = e / 32 + e(x)   for the others, e(x) exponential
//
// This is the distribution of 32 independent numbers: their minimum is
// exponential of mean 1/32, all ids have it with the same chance, and the
// exponential distribution has no memory. It lets a race pass over a group
// whose smallest number is too large for the group's mass, without a number
// for each of its ids.
//
// Noise is a pure function of its coordinates, as [Coins] are. Every operation
// is one of IEEE 754's in float64, in a fixed order, so that all machines make
// the same bits. What it holds are the key of its blocks, two words, and the first
// two words of their counters; whoever has them can make the numbers elsewhere.
type Noise [4]uint32

// Noise returns the noise of an absolute position of the sequence.
//
// A first block of Philox4x32-10, with the counter of [Coins.Uniform] and a
// purpose of its own, gives four words. Two are the key, and two a half of the
// counter, of the blocks that the numbers are made from; the other half is the
// number's place. Both steps are bijections, so that two different places
// never share a counter and key.
func (c Coins) Noise(position int) Noise { return c.philox(noisePurpose, position) }

// noiseGroup is how many ids share a group (SPEC_GROUP in kernel.h).
const noiseGroup = 32

// Places are the last counter word: groups of ids, and ids.
const (
	groupPlace = iota
	tokenPlace
)

func (n Noise) words(index, place uint32) [4]uint32 {
	return philox4x32([4]uint32{n[2], n[3], index, place}, [2]uint32{n[0], n[1]})
}

// group returns the uniform behind the smallest number of a group, and the id
// that has it.
func (n Noise) group(g int) (u float64, first int32) {
	w := n.words(uint32(g), groupPlace)
	return uniform(w[0], w[1]), int32(g*noiseGroup + int(w[2]%noiseGroup))
}

// token returns the uniform behind the distance of id x from its group's
// smallest number.
func (n Noise) token(x int32) float64 {
	w := n.words(uint32(x), tokenPlace)
	return uniform(w[0], w[1])
}

// At returns E(x), the number of token x.
func (n Noise) At(x int32) float64 {
	u, first := n.group(int(x) / noiseGroup)
	e := exponential(u) / noiseGroup
	if x != first {
		e += exponential(n.token(x))
	}
	return e
}

// exponential maps u in [0, 1) to -log(1 - u), which is at least u.
//
// With 1 - u = 2^k m and m within a factor sqrt 2 of 1, log m = 2 artanh f, f =
// (m - 1) / (m + 1), by its series up to f^21. Conversions to float64 keep
// compilers from fusing a product with a sum.
func exponential(u float64) float64 {
	m, k := math.Frexp(1 - u)
	if m < math.Sqrt2/2 {
		m, k = 2*m, k-1
	}
	f := (m - 1) / (m + 1)
	z := float64(f * f)
	sum := 0.0
	for _, c := range oddReciprocals {
		sum = float64(sum*z) + c
	}
	return max(0, -(float64(float64(2*f)*sum) + float64(float64(k)*math.Ln2)))
}

var oddReciprocals = [...]float64{1. / 21, 1. / 19, 1. / 17, 1. / 15, 1. / 13, 1. / 11, 1. / 9, 1. / 7, 1. / 5, 1. / 3, 1}
