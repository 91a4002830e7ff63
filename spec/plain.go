package spec

import "math"

// plain is the kernel in Go.
type plain struct{}

func (plain) peak(logits []float32) (int, error) {
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

func (plain) exps(logits []float32, top, scale float64, w []float32, blocks []float64) float64 {
	var sum float64
	for b := range blocks {
		var block float64
		for i := b * blockLen; i < min((b+1)*blockLen, len(logits)); i++ {
			w[i] = 0
			if x := (float64(logits[i]) - top) * scale; x > -126.5 && !math.IsInf(float64(logits[i]), -1) {
				w[i] = float32(math.Exp2(x))
			}
			block += float64(w[i])
		}
		blocks[b] = block
		sum += block
	}
	return sum
}

func (plain) overlap(p, q *Dist) float64 {
	var sum float64
	for i := range q.W {
		sum += min(p.Prob(int32(i)), q.Prob(int32(i)))
	}
	return sum
}

func (plain) surplus(p, q *Dist, blocks []float64) float64 {
	var sum float64
	for b := range blocks {
		var block float64
		for i := b * blockLen; i < min((b+1)*blockLen, len(q.W)); i++ {
			block += max(q.Prob(int32(i))-p.Prob(int32(i)), 0)
		}
		blocks[b] = block
		sum += block
	}
	return sum
}

func (k plain) overlaps(p, q *Dist, c float64) (one, scaled float64) {
	for i := range q.W {
		at, to := p.Prob(int32(i)), q.Prob(int32(i))
		one += min(at, to)
		scaled += min(at, c*to)
	}
	return one, scaled
}

// candidates bounds E(x) by the uniform behind its group's smallest number,
// which -log(1 - u) is not below, and its weights by the block's bound.
func (plain) candidates(n Noise, w []float32, bound []float64, from, to int, limit float64, ids []int32) int {
	found := 0
	for g := from * blockLen / noiseGroup; g < to*blockLen/noiseGroup; g++ {
		m := bound[g*noiseGroup/blockLen]
		if m <= 0 || g*noiseGroup >= len(w) {
			continue
		}
		u, _ := n.group(g)
		e := u / noiseGroup
		if e > limit*m*raceSlack {
			continue
		}
		least := float32(math.SmallestNonzeroFloat32)
		if l := e / limit / raceSlack; l >= 0x1p-126 {
			least = float32(l)
		}
		for i := g * noiseGroup; i < min((g+1)*noiseGroup, len(w)); i++ {
			if w[i] >= least {
				ids[found] = int32(i)
				found++
			}
		}
	}
	return found
}
