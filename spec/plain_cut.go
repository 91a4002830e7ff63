package spec

import "slices"

// truncate selects by comparing: a quickselect by rank for top-k and one by
// mass for top-p, linear where a sort is not.
func (k plain) truncate(logits []float32, top, scale float64, t truncation, d *Dist) {
	d.resize(len(logits))
	d.blocks = grow(d.blocks, blocksOf(len(logits)))
	d.Sum = k.exps(logits, top, scale, d.W, d.blocks)
	d.ids = slices.Grow(d.ids[:0], len(d.W))
	for i, w := range d.W {
		if w > 0 {
			d.ids = append(d.ids, int32(i))
		}
	}
	if t.k > 0 && t.k < len(d.ids) {
		least := kthLargest(logits, d.ids, t.k)
		d.drop(func(i int32) bool { return logits[i] < least })
		d.Sum = d.sum(d.ids)
	}
	if t.p < 1 {
		kept := d.nucleus(t.p * d.Sum)
		for _, i := range d.ids[kept:] {
			d.W[i] = 0
		}
		d.ids = d.ids[:kept]
	}
	if t.least > 0 {
		d.drop(func(i int32) bool { return d.W[i] < t.least })
	}
	slices.Sort(d.ids)
	d.Sum = d.sum(d.ids)
}

// drop takes the tokens that below holds of out of d.ids.
func (d *Dist) drop(below func(i int32) bool) {
	d.ids = slices.DeleteFunc(d.ids, func(i int32) bool {
		if below(i) {
			d.W[i] = 0
			return true
		}
		return false
	})
}

func (d *Dist) sum(ids []int32) float64 {
	var sum float64
	for _, i := range ids {
		sum += float64(d.W[i])
	}
	return sum
}

// kthLargest returns the k-th largest of the values at ids, and reorders ids.
func kthLargest(v []float32, ids []int32, k int) float32 {
	in := ids
	for {
		pivot := median(v, in)
		above, equal := partition(v, in, pivot)
		switch {
		case k <= above:
			in = in[:above]
		case k <= above+equal:
			return pivot
		default:
			k -= above + equal
			in = in[above+equal:]
		}
	}
}

// nucleus reorders d.ids so that the smallest set of largest weights that hold
// at least need comes first, and returns its size.
func (d *Dist) nucleus(need float64) (kept int) {
	in := d.ids
	for len(in) > 0 {
		pivot := median(d.W, in)
		above, equal := partition(d.W, in, pivot)
		mass := d.sum(in[:above])
		if mass >= need {
			in = in[:above]
			continue
		}
		need -= mass
		kept += above
		// The ties: lower ids first, until the mass is there.
		ties := in[above : above+equal]
		slices.Sort(ties)
		for range ties {
			if need <= 0 {
				return kept
			}
			need -= float64(pivot)
			kept++
		}
		if need <= 0 {
			return kept
		}
		in = in[above+equal:]
	}
	return kept
}

// median is that of the first, middle and last value: deterministic, so that
// equal inputs are cut equally.
func median(v []float32, in []int32) float32 {
	a, b, c := v[in[0]], v[in[len(in)/2]], v[in[len(in)-1]]
	return max(min(a, b), min(max(a, b), c))
}

// partition reorders in by its values: larger than the pivot, equal to it,
// smaller. It returns the lengths of the first two parts.
func partition(v []float32, in []int32, pivot float32) (above, equal int) {
	lo, mid, hi := 0, 0, len(in)
	for mid < hi {
		switch x := v[in[mid]]; {
		case x > pivot:
			in[lo], in[mid] = in[mid], in[lo]
			lo++
			mid++
		case x < pivot:
			hi--
			in[mid], in[hi] = in[hi], in[mid]
		default:
			mid++
		}
	}
	return lo, mid - lo
}
