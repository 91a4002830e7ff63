package convert

import (
	"fmt"
	"math"
)

// rotary is how positions turn queries and keys (Su et al. 2021, RoFormer), with
// the ways of reaching beyond the length of training that checkpoints use.
type rotary struct {
	base    float64
	kind    string  // "", or: linear, llama3, yarn, longrope
	factor  float64 // of the context
	trained int     // tokens of a sequence in training: original_max_position_embeddings

	lowFactor, highFactor float64   // llama3
	fast, slow            float64   // yarn: rotations beyond which nothing, or everything, is interpolated
	exact                 bool      // yarn: bounds are not rounded to whole dimensions
	magnitude             float64   // of cosines and sines, 0: as the kind says, which for longrope is 1
	divisors              []float32 // of each frequency; given by the file (GGUF), or longrope's short ones
}

func (r *rotary) check(headSize int) error {
	if !(r.base > 1) || math.IsInf(r.base, 0) {
		return fmt.Errorf("rotary embeddings with base %g", r.base)
	}
	if n := len(r.divisors); n > 0 && n != headSize/2 {
		return fmt.Errorf("%d factors of rotary embeddings for %d frequencies", n, headSize/2)
	}
	switch r.kind {
	case "", "longrope":
	case "linear", "yarn", "llama3":
		if !(r.factor >= 1) || math.IsInf(r.factor, 0) {
			return fmt.Errorf("rotary embeddings scaled (%s) by a factor of %g", r.kind, r.factor)
		}
		if r.kind != "linear" && r.trained < 1 {
			return fmt.Errorf("rotary embeddings scaled (%s) without original_max_position_embeddings", r.kind)
		}
		if r.kind == "llama3" && !(r.highFactor > r.lowFactor && r.lowFactor > 0) {
			return fmt.Errorf("rotary embeddings scaled (llama3) between %g and %g", r.lowFactor, r.highFactor)
		}
	default:
		return fmt.Errorf("rotary embeddings scaled by %q are not supported; linear, llama3, yarn and longrope are", r.kind)
	}
	for _, d := range r.divisors {
		if !(d > 0) || math.IsInf(float64(d), 0) {
			return fmt.Errorf("a factor of %g of rotary embeddings", d)
		}
	}
	return nil
}

// frequencies are the angles by which a position turns the pairs of a head, and
// the factor of cosines and sines. What transformers computes in float32 is computed
// in float32 here, in the same order: with heads whose size is no power of two the
// exponents alone move an angle at position 4000 by 1e-4. Powers are rounded from
// float64; PyTorch's own are off by one last bit at times, and not the same with all
// processors.
func (r *rotary) frequencies(headSize int) (angles []float32, magnitude float32) {
	angles = make([]float32, headSize/2)
	factor := float32(r.factor)
	for i := range angles {
		power := float32(math.Pow(r.base, float64(float32(2*i)/float32(headSize))))
		if r.kind == "longrope" && len(r.divisors) > 0 {
			angles[i] = 1 / float32(r.divisors[i]*power)
			continue
		}
		f := 1 / power
		switch r.kind {
		case "linear":
			f /= factor
		case "llama3":
			f = r.bend(f)
		case "yarn":
			stay := r.stay(i, headSize)
			f = float32(1/float32(factor*power)*(1-stay)) + float32(f*stay)
		}
		if len(r.divisors) > 0 {
			f /= r.divisors[i]
		}
		angles[i] = f
	}
	of := 1.0
	if r.kind == "yarn" && r.factor > 1 {
		of = 0.1*math.Log(r.factor) + 1
	}
	if r.magnitude > 0 {
		of = r.magnitude
	}
	return angles, float32(of)
}

// bend is Llama 3's scaling of a frequency: long waves are stretched, short ones
// are not, and those between in part.
func (r *rotary) bend(f float32) float32 {
	wave := float32(2*math.Pi) / f
	factor := float32(r.factor)
	switch trained := float64(r.trained); {
	case wave > float32(trained/r.lowFactor):
		return f / factor
	case wave < float32(trained/r.highFactor):
		return f
	default:
		smooth := (float32(trained)/wave - float32(r.lowFactor)) / float32(r.highFactor-r.lowFactor)
		return float32((1-smooth)*f)/factor + float32(smooth*f)
	}
}

// stay is how much of a frequency YaRN leaves as it was (Peng et al. 2023).
func (r *rotary) stay(i, headSize int) float32 {
	bound := func(rotations float64) float64 {
		return float64(headSize) * math.Log(float64(r.trained)/(rotations*2*math.Pi)) / (2 * math.Log(r.base))
	}
	low, high := bound(r.fast), bound(r.slow)
	if !r.exact {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(headSize-1))
	if low == high {
		high += 0.001
	}
	return 1 - min(max((float32(i)-float32(low))/float32(high-low), 0), 1)
}

// rotaryTable writes f, cosine or sine, of the angles of all positions. Angles are
// products in float32, f is rounded from float64, to within half of its last bit.
func rotaryTable(angles []float32, magnitude float32, context int, t element, f func(float64) float64) filler {
	return func(out *filling) error {
		return out.parallelRows(context, len(angles)*t.width(), func() func(int, []byte) {
			mine := make([]float32, len(angles))
			return func(position int, dst []byte) {
				for i, a := range angles {
					mine[i] = float32(f(float64(float32(position)*a))) * magnitude
				}
				putFloats(dst, mine, t)
			}
		})
	}
}
