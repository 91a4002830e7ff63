package spec

// Standardizer turns a row of logits for the token after prefix into the
// distribution that it is drawn from. One function serves the target and every
// drafter: p and q are standardized alike.
type Standardizer func(logits []float32, prefix []int32, d *Dist) error

// Drafter knows a law of the next token that no model has to be run for: an
// n-gram table ([NGram.Drafter]), a copy of what followed the same words
// before ([Lookup]), or none at all ([Uniform]). It is used by one goroutine
// at a time.
//
// Whoever drafts draws the token from the law that is returned. That makes any
// Drafter lossless: [Verify] needs of p only that it is what was drawn from,
// and a bad law costs acceptance, never truth.
type Drafter interface {
	// Law fills p with the distribution to draw the token after prefix from.
	// It is a function of prefix alone. It returns false, and leaves p as it
	// may be, where there is nothing to propose.
	Law(prefix []int32, standardize Standardizer, p *Dist) (ok bool, err error)
}

// Uniform drafts every token of the vocabulary with the same probability. It
// is the draft that knows nothing: what every other one is to be measured
// against, and what an adaptive lookahead must not be harmed by.
type Uniform struct{ Vocab int }

// Law implements [Drafter].
func (u Uniform) Law(_ []int32, _ Standardizer, p *Dist) (bool, error) {
	p.resize(u.Vocab)
	for i := range p.W {
		p.W[i] = 1
	}
	p.Sum = float64(u.Vocab)
	return u.Vocab > 0, nil
}
