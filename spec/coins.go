package spec

// Purpose separates the decisions that are made at one position, so that no
// two of them ever share a coin.
type Purpose uint8

const (
	// DraftCoin draws x~ from p.
	DraftCoin Purpose = iota + 1
	// AcceptCoin decides whether x~ is kept.
	AcceptCoin
	// ResidualCoin draws the recovered token from (q - p)+.
	ResidualCoin
	// BonusCoin draws a token from q itself: the bonus token of a fully
	// accepted loop, and every token of autoregressive sampling.
	BonusCoin
	// noisePurpose is that of [Coins.Noise].
	noisePurpose
)

// Uniforms supplies the coins of one sequence: the variate in [0, 1) for one
// purpose at one absolute position, the same one however often it is asked
// for. [Coins] is the one for production; tests integrate over others.
type Uniforms interface {
	Uniform(purpose Purpose, position int) float64
	// Noise is the noise that the rule coupled draws the token at a position
	// with, whoever draws it. It does not depend on the loop.
	Noise(position int) Noise
}

// Coins is the supply of uniform variates of one sequence. It holds no state:
// a coin is a pure function of its coordinates, so that a redelivered shard,
// another batch or another worker draws the same ones, and a log can be
// replayed without the models.
type Coins struct {
	Seed   uint64 // the job's seed
	Row    uint64 // index of the row in the dataset
	Sample uint32 // which of the row's samples; below 2^24
}

// MaxSamples bounds Coins.Sample: its 24 bits share a counter word with the
// purpose.
const MaxSamples = 1 << 24

// Uniform returns the coin for one purpose at one absolute position of the
// sequence (prompt tokens included), in [0, 1) with 53 random bits.
//
// The counter of Philox4x32-10 is (position, sample and purpose, row low, row
// high) and its key is the seed; all coordinates fit without hashing, so that
// distinct coordinates never collide.
func (c Coins) Uniform(purpose Purpose, position int) float64 {
	w := c.philox(purpose, position)
	return uniform(w[0], w[1])
}

func (c Coins) philox(purpose Purpose, position int) [4]uint32 {
	return philox4x32(
		[4]uint32{uint32(position), c.Sample<<8 | uint32(purpose), uint32(c.Row), uint32(c.Row >> 32)},
		[2]uint32{uint32(c.Seed), uint32(c.Seed >> 32)})
}

// uniform maps two words to [0, 1): the upper 53 of their 64 bits, times 2^-53.
func uniform(low, high uint32) float64 {
	return float64((uint64(high)<<32|uint64(low))>>11) * 0x1p-53
}

// philox4x32 is the Philox4x32-10 bijection of Salmon et al. 2011, "Parallel
// random numbers: as easy as 1, 2, 3": ten rounds over a 128-bit counter.
func philox4x32(ctr [4]uint32, key [2]uint32) [4]uint32 {
	a, b, c, d := ctr[0], ctr[1], ctr[2], ctr[3]
	k0, k1 := key[0], key[1]
	for range 10 {
		x, y := uint64(a)*0xD2511F53, uint64(c)*0xCD9E8D57
		a, b, c, d = uint32(y>>32)^b^k0, uint32(y), uint32(x>>32)^d^k1, uint32(x)
		k0 += 0x9E3779B9
		k1 += 0xBB67AE85
	}
	return [4]uint32{a, b, c, d}
}
