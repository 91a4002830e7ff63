package spec

// kernel is the arithmetic that runs over whole vocabularies. There are two:
// native, compiled from kernel.c, and plain, the same in Go, which says what
// is meant, is what native is tested against, and takes its place in builds
// without cgo. Sums may differ between them in their last bits.
type kernel interface {
	// peak returns the lowest index of the largest logit, ErrNotANumber or
	// ErrNoMass.
	peak(logits []float32) (int, error)
	// exps writes 2^((logit - top) * scale) to w, the sums over blocks of
	// blockLen to blocks, and returns the sum of all. What is below 2^-126.5
	// is zero.
	exps(logits []float32, top, scale float64, w []float32, blocks []float64) float64
	// truncate fills d with what t leaves of the weights of exps: W, Sum and
	// ids.
	truncate(logits []float32, top, scale float64, t truncation, d *Dist)
	// overlap returns the sum of min(p, q).
	overlap(p, q *Dist) float64
	// surplus writes the sums of (q - p)+ over blocks to blocks and returns
	// their sum.
	surplus(p, q *Dist, blocks []float64) float64
	// overlaps returns the sums of min(p, q) and of min(p, c q).
	overlaps(p, q *Dist, c float64) (one, scaled float64)
	// candidates lists tokens of the blocks from .. to-1, ascending: all whose
	// E(x)/w(x) may be at most limit, and perhaps some more. No w of a block
	// exceeds its bound, which is 0 where all are. It returns their number.
	candidates(n Noise, w []float32, bound []float64, from, to int, limit float64, ids []int32) int
}

// truncation is what is left of a distribution, in this order.
type truncation struct {
	k     int     // keep the k largest logits and their ties; 0: all
	p     float64 // keep the nucleus of this mass; 1: all
	least float32 // keep weights of at least this
}
