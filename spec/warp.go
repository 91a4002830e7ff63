package spec

import "math"

// warp fills d from one processed row of logits: temperature, then the
// truncations.
func (s *Sampling) warp(k kernel, logits []float32, d *Dist) error {
	at, err := k.peak(logits)
	if err != nil {
		return err
	}
	if s.Greedy() {
		d.setOneHot(len(logits), int32(at))
		d.logits = logits
		return nil
	}
	top := float64(logits[at])
	if t := s.truncation(len(logits)); t != (truncation{p: 1}) {
		k.truncate(logits, top, s.scale(), t, d)
		d.form = sparse
		return nil
	}
	d.resize(len(logits))
	d.blocks = grow(d.blocks, blocksOf(len(logits)))
	d.Sum = k.exps(logits, top, s.scale(), d.W, d.blocks)
	d.form = blocked
	return nil
}

// scale is what a difference of logits is multiplied by to become a power of
// two. It is bounded so that no product is a number that is none: at
// temperatures as small as that the law is one-hot on the largest logits all
// the same.
func (s *Sampling) scale() float64 {
	return math.Min(math.Log2E/s.Temperature, 1e200)
}

func (s *Sampling) truncation(vocab int) truncation {
	t := truncation{p: 1, least: float32(s.MinP)}
	if float64(t.least) < s.MinP {
		t.least = math.Nextafter32(t.least, 2)
	}
	if s.TopK < vocab {
		t.k = s.TopK
	}
	if s.TopP > 0 {
		t.p = s.TopP
	}
	return t
}
