package spec

import "slices"

// keepTopK zeroes every weight below the k-th largest. Ties with it stay.
func (d *Dist) keepTopK(k int) {
	d.candidates()
	if len(d.order) <= k {
		return
	}
	threshold := d.kthLargest(k)
	d.Sum = 0
	for i, w := range d.W {
		if w < threshold {
			d.W[i] = 0
		} else {
			d.Sum += float64(w)
		}
	}
}

// kthLargest returns the k-th largest weight among the candidates, by
// quickselect.
func (d *Dist) kthLargest(k int) float32 {
	in := d.order
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

// keepTopP keeps the nucleus of mass top and zeroes the rest. It is a
// quickselect by mass instead of by rank: linear where a sort is not.
func (d *Dist) keepTopP(top float64) {
	d.candidates()
	in, need := d.order, top*d.Sum // what the nucleus has still to hold, out of in
	kept := 0                      // d.order[:kept] is known to lie inside
	for len(in) > 0 {
		pivot := d.pivot(in)
		above, equal := d.partition(in, pivot)
		var mass float64
		for _, i := range in[:above] {
			mass += float64(d.W[i])
		}
		if mass >= need {
			in = in[:above]
			continue
		}
		need -= mass
		kept += above
		// The ties: lower ids first, until the mass is there.
		ties := in[above : above+equal]
		slices.Sort(ties)
		for n := range ties {
			if need <= 0 {
				ties = ties[:n]
				break
			}
			need -= float64(pivot)
			kept++
		}
		if need <= 0 {
			break
		}
		in = in[above+equal:]
	}
	for _, i := range d.order[kept:] {
		d.W[i] = 0
	}
	d.Sum = 0
	for _, w := range d.W {
		d.Sum += float64(w)
	}
}

// candidates lists the tokens of positive weight in d.order.
func (d *Dist) candidates() {
	d.order = slices.Grow(d.order[:0], len(d.W))
	for i, w := range d.W {
		if w > 0 {
			d.order = append(d.order, int32(i))
		}
	}
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
