package spec

import "slices"

// cut selects by comparing: a quickselect by rank for top-k and one by mass
// for top-p, linear where a sort is not.
func (plain) cut(d *Dist, t truncation) {
	d.ids = slices.Grow(d.ids[:0], len(d.W))
	for i, w := range d.W {
		if w > 0 {
			d.ids = append(d.ids, int32(i))
		}
	}
	if t.k > 0 && t.k < len(d.ids) {
		least := d.kthLargest(t.k)
		d.drop(func(w float32) bool { return w < least })
		d.Sum = d.sum(d.ids)
	}
	if t.p < 1 {
		kept := d.nucleus(t.p * d.Sum)
		for _, i := range d.ids[kept:] {
			d.W[i] = 0
		}
		d.ids = d.ids[:kept]
	}
	if t.floor > 0 {
		d.drop(func(w float32) bool { return w < t.floor })
	}
	slices.Sort(d.ids)
	d.Sum = d.sum(d.ids)
}

// drop takes the weights that below holds of out of d.ids, and zeroes them.
func (d *Dist) drop(below func(float32) bool) {
	d.ids = slices.DeleteFunc(d.ids, func(i int32) bool {
		if below(d.W[i]) {
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

// kthLargest returns the k-th largest weight of d.ids, and reorders them.
func (d *Dist) kthLargest(k int) float32 {
	in := d.ids
	for {
		pivot := d.pivot(in)
		above, equal := d.partition(in, pivot)
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
		pivot := d.pivot(in)
		above, equal := d.partition(in, pivot)
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

// pivot is the median of the first, middle and last weight: deterministic, so
// that equal inputs are cut equally.
func (d *Dist) pivot(in []int32) float32 {
	a, b, c := d.W[in[0]], d.W[in[len(in)/2]], d.W[in[len(in)-1]]
	return max(min(a, b), min(max(a, b), c))
}

// partition reorders in to: larger than the pivot, equal to it, smaller. It
// returns the lengths of the first two parts.
func (d *Dist) partition(in []int32, pivot float32) (above, equal int) {
	lo, mid, hi := 0, 0, len(in)
	for mid < hi {
		switch w := d.W[in[mid]]; {
		case w > pivot:
			in[lo], in[mid] = in[mid], in[lo]
			lo++
			mid++
		case w < pivot:
			hi--
			in[mid], in[hi] = in[hi], in[mid]
		default:
			mid++
		}
	}
	return lo, mid - lo
}
