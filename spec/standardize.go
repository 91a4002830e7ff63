package spec

import (
	"fmt"
	"math"
)

// Sampling says how logits become a distribution. Following Leviathan et al.,
// section 2.2, every sampling scheme is plain sampling from a standardized
// distribution, so that the same Sampling applied to both models is all that
// speculative sampling needs to know of it.
//
// The order is that of Hugging Face transformers: temperature, then top-k,
// then top-p over what top-k left.
type Sampling struct {
	// Temperature divides the logits. Zero is greedy decoding: the one-hot
	// distribution of the largest logit, the lowest id among equals.
	Temperature float64 `json:"temperature"`
	// TopK keeps the k largest logits, and all that tie with the k-th. Zero
	// keeps all.
	TopK int `json:"top_k"`
	// TopP keeps the nucleus: the smallest set of most probable tokens that
	// holds at least this mass; among equals at its boundary lower ids come
	// first. One (or zero, the unset value) keeps all.
	TopP float64 `json:"top_p"`
}

// Validate returns an error that names the first setting out of its range.
func (s Sampling) Validate() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return fmt.Errorf("temperature %v is not a finite number of at least 0", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("top-k %d is negative", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("top-p %v is not between 0 and 1", s.TopP)
	}
	return nil
}

// Standardize fills d from one row of logits (length: the vocabulary). The
// logits are only read. -Inf forbids a token; NaN and +Inf are ErrNotANumber;
// a row of -Inf alone, or an empty one, is ErrNoMass.
func (s Sampling) Standardize(logits []float32, d *Dist) error {
	best, err := argmax(logits)
	if err != nil {
		return err
	}
	if cap(d.W) < len(logits) {
		d.W = make([]float32, len(logits))
	}
	d.W = d.W[:len(logits)]
	if s.Temperature == 0 {
		clear(d.W)
		d.W[best], d.Sum = 1, 1
		return nil
	}
	d.Sum = softmax(logits, logits[best], s.Temperature, d.W)
	if s.TopK > 0 && s.TopK < len(logits) {
		d.keepTopK(s.TopK)
	}
	if s.TopP > 0 && s.TopP < 1 {
		d.keepTopP(s.TopP)
	}
	return nil
}

// Margin returns the largest logit minus the second largest: how near a greedy
// choice was to falling otherwise. It is +Inf where only one is finite.
func Margin(logits []float32) float64 {
	first, second := math.Inf(-1), math.Inf(-1)
	for _, l := range logits {
		switch v := float64(l); {
		case v > first:
			first, second = v, first
		case v > second:
			second = v
		}
	}
	return first - second
}

// argmax returns the lowest index of the largest logit.
func argmax(logits []float32) (int, error) {
	best, top := -1, float32(math.Inf(-1))
	for i, l := range logits {
		if l > top {
			best, top = i, l
		} else if l != l {
			return 0, ErrNotANumber
		}
	}
	if best < 0 {
		return 0, ErrNoMass
	}
	if math.IsInf(float64(top), 1) {
		return 0, ErrNotANumber
	}
	return best, nil
}

// softmax writes exp((logit - top) / temperature) to w and returns the sum,
// which is at least 1: the largest logit's weight is 1.
func softmax(logits []float32, top float32, temperature float64, w []float32) float64 {
	inv, sum := 1/temperature, 0.0
	if math.IsInf(inv, 1) { // a subnormal temperature: the limit is one-hot on the maxima
		inv = math.MaxFloat64
	}
	for i, l := range logits {
		e := float32(0)
		if l == top {
			e = 1
		} else if x := float64(l-top) * inv; x > -104 { // below, exp underflows float32
			e = float32(math.Exp(x))
		}
		w[i] = e
		sum += float64(e)
	}
	return sum
}
