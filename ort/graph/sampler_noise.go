package graph

import (
	"math"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// The noise of a race is made where the logits are: the very numbers of package
// spec (spec.Noise), by the same generator, from a few numbers a row.
//
// Philox4x32-10 (Salmon et al. 2011) multiplies words and takes their exclusive
// or. Multiplication is of uint64. The exclusive or of integers is no operator that
// runs on CUDA or WebGPU, so it is looked up. The bits of a byte, spread out to be
// the digits of a number in base 4, can be added three times without a carry; a
// table of 4^8 entries has the parities of the digits, which are the exclusive or
// of three bytes.
const (
	philox0 = 0xD2511F53 // multiplies the first counter word
	philox1 = 0xCD9E8D57 // and the third
	weyl0   = 0x9E3779B9 // is added to the first key word
	weyl1   = 0xBB67AE85 // and to the second
	rounds  = 10

	digits = 1 << 16 // 4^8

	// NoiseKeys is how many numbers of a row say what is added in the rounds: to two
	// words of four bytes each.
	NoiseKeys = rounds * 2 * 4

	noiseGroup = 32 // ids that share a smallest number, see spec.Noise
)

// spread makes the bits of a byte the digits of a number in base 4.
func spread(b uint32) (n int64) {
	for i := range 8 {
		n |= int64(b>>i&1) << (2 * i)
	}
	return n
}

// Noise writes what a sampler takes of a row's noise, NoiseKeys numbers, and
// returns the counter. of is a spec.Noise: the key of its blocks, two words, and the
// first two words of their counters.
func Noise(of [4]uint32, keys []int64) (counter int64) {
	key := [2]uint32{of[0], of[1]}
	for r := range rounds {
		for w, k := range key {
			for i := range 4 {
				// The byte at place i of a word looks up the table of its place.
				keys[(2*r+w)*4+i] = spread(k>>(8*i)&0xFF) + int64(i)*digits
			}
		}
		key[0] += weyl0
		key[1] += weyl1
	}
	for i := range 4 { // the counter's second word is added in the first round
		keys[i] += spread(of[3] >> (8 * i) & 0xFF)
	}
	return int64(of[2])
}

// noise makes numbers of the noise of rows.
type noise struct {
	*formula
	counter string   // uint64 [R, 1, 1, 1]
	keys    []string // of each round, int64 [R, 1, 2, 4]
}

func newNoise(f *formula) *noise {
	f.input(SamplerCounter, Int64, -1, 1)
	f.input(SamplerKeys, Int64, -1, NoiseKeys)
	keys := f.split(f.op("Reshape", SamplerKeys, f.ints(-1, rounds, 2, 4)), 1, rounds)
	return &noise{f, f.op("Unsqueeze", f.cast(SamplerCounter, Uint64), f.ints(2, 3)), keys}
}

// Places of a number are the last word of its counter.
const (
	groupPlace = iota
	tokenPlace
)

// philox makes the words of the blocks (counter, index, place), of indices that are
// int64 [R or 1, N]. bits are the 53 of the uniform number, uint64 [R, N]; third is
// the third word.
//
// A round takes products, each of 64 bits, of the third and of the first counter
// word. Their upper halves, the lower halves of the round before, and the key make
// the words that the next round multiplies.
func (n *noise) philox(index string, place int) (bits, third string) {
	index = n.op("Unsqueeze", n.cast(index, Uint64), n.ints(2, 3))
	products := n.op("Add", n.op("Mul", index, n.words("philox.third", []uint64{philox1, 0}, 2, 1)),
		n.op("Mul", n.counter, n.words("philox.first", []uint64{0, philox0}, 2, 1)))
	shifts := make([]uint64, 8)
	for i := range shifts {
		shifts[i] = 1 << (8 * i)
	}
	lower, words := "", ""
	for r, key := range n.keys {
		if r > 0 {
			crossed := n.along("Gather", 2, words, n.ints(1, 0))
			products = n.op("Mul", crossed, n.words("philox", []uint64{philox1, philox0}, 2, 1))
		} else if place != groupPlace {
			key = n.op("Add", key, n.longs("philox.place", []int64{0, 0, 0, 0, spread(uint32(place)), 0, 0, 0}, 2, 4))
		}
		bytes := n.op("Mod", n.op("Div", products, n.words("philox.bytes", shifts, 8)), n.word(256))
		halves := n.split(n.along("Gather", 0, n.spreads(), n.cast(bytes, Int64)), 3, 2)
		sum := halves[1]
		if r > 0 {
			sum = n.op("Add", sum, lower)
		}
		lower = halves[0]
		parts := n.split(n.along("Gather", 0, n.parities(), n.op("Add", sum, key)), 3, 4)
		words = n.op("Add", n.op("Add", parts[0], parts[1]), n.op("Add", parts[2], parts[3]))
	}
	word := n.split(words, 2, 2)
	product := n.split(products, 2, 2)[0]
	// The second word is the lower half of the product: shifted out of its upper half.
	upper := n.op("Mul", product, n.word(1<<32))
	bits = n.op("Div", n.op("Add", upper, word[0]), n.word(1<<11))
	return n.op("Squeeze", bits, n.ints(2, 3)), n.op("Squeeze", word[1], n.ints(2, 3))
}

// spreads is the table of spread.
func (n *noise) spreads() string {
	all := make([]int64, 256)
	for b := range all {
		all[b] = spread(uint32(b))
	}
	return n.longs("philox.spread", all, 256)
}

// parities is the table of the parities of digits in base 4, as the bytes of each
// place of a word.
func (n *noise) parities() string {
	const name = "philox.parity"
	if n.known[name] {
		return name
	}
	var byteOf [digits]uint64
	for s := range byteOf {
		for i := range 8 {
			byteOf[s] |= uint64(s>>(2*i)&1) << i
		}
	}
	var all []uint64
	for i := range 4 {
		for _, b := range byteOf {
			all = append(all, b<<(8*i))
		}
	}
	return n.words(name, all, 4*digits)
}

// exponential makes -log(1 - u) of the 53 bits of u, to a relative error of 1e-6
// everywhere: u and 1 - u are rounded after they are made. Below a half it is 2
// artanh f, f = u / (2 - u), by a polynomial in f^2 that is 4e-9 off at most; a
// device's logarithm is not exact enough near 1.
func (n *noise) exponential(bits string) string {
	u := n.op("Mul", n.cast(bits, Float32), n.float(0x1p-53))
	rest := n.op("Mul", n.cast(n.op("Sub", n.word(1<<53), bits), Float32), n.float(0x1p-53))
	f := n.op("Div", u, n.op("Add", rest, n.float(1)))
	z := n.op("Mul", f, f)
	sum := n.float(artanh[0])
	for _, c := range artanh[1:] {
		sum = n.op("Add", n.op("Mul", sum, z), n.float(c))
	}
	near := n.op("Mul", n.op("Add", f, f), sum)
	far := n.op("Mul", n.op("Log", rest), n.float(-1))
	return n.op("Where", n.op("Less", u, n.float(0.5)), near, far)
}

// artanh are the coefficients of artanh(sqrt z) / sqrt z for z up to 1/9, fitted for
// the least relative error.
var artanh = [...]float64{0.14080726872999344, 0.13982172354045963, 0.20012325666755937, 0.333331602032088, 1.000000003861989}

// groups are of each group of ids the bits of its smallest number, uint64 [R, G],
// and the id that has it, int64.
func (n *noise) groups(vocab int) (bits, first string) {
	count := int64(vocab+noiseGroup-1) / noiseGroup
	all := n.op("Range", n.int(0), n.int(count), n.int(1))
	bits, third := n.philox(n.op("Unsqueeze", all, n.ints(0)), groupPlace)
	first = n.cast(n.op("Mod", third, n.word(noiseGroup)), Int64)
	return bits, n.op("Add", first, n.op("Mul", all, n.int(noiseGroup)))
}

// smallest is a group's smallest number, of its bits.
func (n *noise) smallest(bits string) string {
	return n.op("Mul", n.exponential(bits), n.float(1./noiseGroup))
}

// behind is the number of tokens, float32 [R, N], of their own bits, their group's
// smallest number and the id that has it.
func (n *noise) behind(tokens, bits, smallest, first string) string {
	distance := n.op("Where", n.op("Equal", tokens, first), n.float(0), n.exponential(bits))
	return n.op("Add", smallest, distance)
}

// That n racers are too few has a chance of about (1 + n/32) e^(-n/32), and less for
// most weights: see race.
const (
	DefaultRacers = 512
	MaxRacers     = 2048
)

// race draws the token of the smallest noise over weight, and says by how much the
// second is behind it.
//
// A token's noise is at least its group's smallest number. So few tokens can win:
// those for which that number over the weight is smallest are the candidates, and
// noise is made for them alone. undecided flags rows in which another token might be
// among the first two: in which the last candidate's bound is below the second's
// number. The mass of all weights times that number has a gamma distribution, of
// shape 2, and 32 times it is how many bounds are below that number on average.
func (s *sampler) race(weights string) (token, gap, undecided string) {
	n := newNoise(s.formula)
	bits, first := n.groups(s.o.Vocab)
	smallest := n.smallest(bits)
	last := s.float(float64((s.o.Vocab - 1) / noiseGroup)) // of the tokens that fill the row up, too
	of := s.cast(s.op("Min", s.op("Floor", s.op("Mul", s.ids, s.float(1./noiseGroup))), last), Int64)

	count := min(int64(s.o.Racers), int64(s.o.Vocab))
	over := func(noise, weights string) string {
		return s.op("Where", s.op("Greater", weights, s.float(0)), s.op("Div", noise, weights), s.float(math.Inf(1)))
	}
	bounds, tokens := s.pick(over(s.along("Gather", 1, smallest, of), weights), count, intAttribute("largest", 0))
	group := s.along("Gather", 0, of, tokens)
	bits, _ = n.philox(tokens, tokenPlace)
	own := n.behind(tokens, bits, s.elements(smallest, group), s.elements(first, group))
	times, places := s.pick(over(own, s.elements(weights, tokens)), min(2, count), intAttribute("largest", 0))
	token = s.cast(s.elements(tokens, s.slice(places, 0, 1)), Float32)
	if s.o.Vocab == 1 {
		return token, s.op("Mul", s.sum(weights), s.float(math.Inf(1))), ""
	}
	second := s.slice(times, 1, 2)
	gap = s.op("Sub", s.op("Log", second), s.op("Log", s.slice(times, 0, 1)))
	if count < int64(s.o.Vocab) {
		undecided = s.op("Less", s.slice(bounds, count-1, count), second)
	}
	return token, gap, undecided
}

// Names of what NewNoise has beside SamplerCounter and SamplerKeys, which go in.
const (
	NoiseUniforms = "uniforms" // int64 [1, N], goes in: the 53 bits of uniform numbers

	NoiseGroups      = "groups"      // int64 [R, G], the bits of the groups' uniform numbers
	NoiseFirst       = "first"       // int64 [R, G], the id that has a group's smallest number
	NoiseTokens      = "tokens"      // int64 [R, vocabulary], the bits of the tokens' uniform numbers
	NoiseOut         = "noise"       // float32 [R, vocabulary], exponential
	NoiseExponential = "exponential" // float32 [1, N], of what goes in
)

// NewNoise makes a graph of the noise alone, of the whole vocabulary, by which it is
// held against package spec's.
func NewNoise(vocab int) *onnxpb.ModelProto {
	n := newNoise(newFormula())
	groups, first := n.groups(vocab)
	all := n.op("Range", n.int(0), n.int(int64(vocab)), n.int(1))
	of := n.op("Div", all, n.int(noiseGroup))
	tokens := n.op("Unsqueeze", all, n.ints(0))
	bits, _ := n.philox(tokens, tokenPlace)
	out := n.behind(tokens, bits, n.along("Gather", 1, n.smallest(groups), of), n.along("Gather", 1, first, of))
	n.input(NoiseUniforms, Int64, 1, -1)
	n.output(NoiseGroups, Int64, n.cast(groups, Int64), -1, -1)
	n.output(NoiseFirst, Int64, first, -1, -1)
	n.output(NoiseTokens, Int64, n.cast(bits, Int64), -1, int64(vocab))
	n.output(NoiseOut, Float32, out, -1, int64(vocab))
	n.output(NoiseExponential, Float32, n.exponential(n.cast(NoiseUniforms, Uint64)), 1, -1)
	return n.model("noise")
}
