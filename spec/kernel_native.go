//go:build cgo

package spec

/*
#cgo CFLAGS: -O3 -ffast-math
#cgo LDFLAGS: -lm
#cgo noescape spec_peak
#cgo noescape spec_exps
#cgo noescape spec_truncate
#cgo noescape spec_overlap
#cgo noescape spec_surplus
#cgo nocallback spec_peak
#cgo nocallback spec_exps
#cgo nocallback spec_truncate
#cgo nocallback spec_overlap
#cgo nocallback spec_surplus
#cgo noescape spec_overlaps
#cgo noescape spec_candidates
#cgo nocallback spec_overlaps
#cgo nocallback spec_candidates
#include "kernel.h"
*/
import "C"

// native is the kernel of kernel.c. C sees Go's slices for the length of a
// call and keeps nothing.
type native struct{}

func (native) peak(logits []float32) (int, error) {
	if len(logits) == 0 {
		return 0, ErrNoMass
	}
	switch at := C.spec_peak(cFloats(logits), C.int64_t(len(logits))); at {
	case C.SPEC_NOT_A_NUMBER:
		return 0, ErrNotANumber
	case C.SPEC_NO_MASS:
		return 0, ErrNoMass
	default:
		return int(at), nil
	}
}

func (native) exps(logits []float32, top, scale float64, w []float32, blocks []float64) float64 {
	return float64(C.spec_exps(cFloats(logits), C.int64_t(len(logits)), C.double(top), C.double(scale), cFloats(w), (*C.double)(&blocks[0])))
}

func (native) truncate(logits []float32, top, scale float64, t truncation, d *Dist) {
	n := len(logits)
	d.blank(n)
	d.ids, d.keys = grow(d.ids, n+C.SPEC_SLACK), grow(d.keys, n)
	var sum C.double
	kept := C.spec_truncate(cFloats(logits), C.int64_t(n), C.double(top), C.double(scale), C.int64_t(t.k), C.double(t.p), C.float(t.least),
		(*C.int32_t)(&d.ids[0]), (*C.int32_t)(&d.keys[0]), cFloats(d.W), &sum)
	d.ids, d.Sum = d.ids[:kept], float64(sum)
}

func (native) overlap(p, q *Dist) float64 {
	return float64(C.spec_overlap(cFloats(p.W), C.double(p.Sum), cFloats(q.W), C.double(q.Sum), C.int64_t(len(q.W))))
}

func (native) surplus(p, q *Dist, blocks []float64) float64 {
	return float64(C.spec_surplus(cFloats(p.W), C.double(p.Sum), cFloats(q.W), C.double(q.Sum), C.int64_t(len(q.W)), (*C.double)(&blocks[0])))
}

func (native) overlaps(p, q *Dist, c float64) (one, scaled float64) {
	var out C.double
	one = float64(C.spec_overlaps(cFloats(p.W), C.double(p.Sum), cFloats(q.W), C.double(q.Sum), C.double(c), C.int64_t(len(q.W)), &out))
	return one, float64(out)
}

func (native) candidates(n Noise, w []float32, bound []float64, from, to int, limit float64, ids []int32) int {
	return int(C.spec_candidates((*C.uint32_t)(&n[0]), cFloats(w), C.int64_t(len(w)), (*C.double)(&bound[0]), C.int64_t(from), C.int64_t(to),
		C.double(limit), (*C.int32_t)(&ids[0])))
}

// instructions limits the instruction set to a level and returns the one that
// is used from now on. It is for tests, while nothing else runs.
func instructions(atMost int) int { return int(C.spec_level(C.int(atMost))) }

func cFloats(x []float32) *C.float { return (*C.float)(&x[0]) }
