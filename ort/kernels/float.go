package kernels

// #include <stdlib.h>
// #include "float.h"
import "C"

import (
	"errors"
	"runtime"
	"unsafe"
)

// FloatMatrix is a packed matrix of float32 weights; see dm_fmatrix in float.h.
type FloatMatrix struct {
	c    *C.dm_fmatrix
	k, n int
}

// FloatWeights are the kinds of numbers that PackFloats takes.
type FloatWeights int

// The kinds; the narrow ones are given as their bits.
const (
	Float32  FloatWeights = C.DM_FLOAT32
	Float16  FloatWeights = C.DM_FLOAT16
	BFloat16 FloatWeights = C.DM_BFLOAT16
)

// PackFloats packs [k, n] float32 weights, or [n, k] where transposed. Free gives
// the memory back.
func PackFloats(w []float32, k, n int, transposed bool, t Threads) (*FloatMatrix, error) {
	return packFloats(unsafe.Pointer(unsafe.SliceData(w)), len(w), Float32, k, n, transposed, t)
}

// PackHalves does the same with float16 or bfloat16 weights.
func PackHalves(w []uint16, kind FloatWeights, k, n int, transposed bool, t Threads) (*FloatMatrix, error) {
	return packFloats(unsafe.Pointer(unsafe.SliceData(w)), len(w), kind, k, n, transposed, t)
}

func packFloats(w unsafe.Pointer, count int, kind FloatWeights, k, n int, transposed bool, t Threads) (*FloatMatrix, error) {
	if k <= 0 || n <= 0 || count != k*n {
		return nil, errors.New("packing a matrix: its sizes are not those of its weights")
	}
	ld, turned := n, 0
	if transposed {
		ld, turned = k, 1
	}
	c := C.dm_fpack(w, C.dm_ftype(kind), C.size_t(k), C.size_t(n), C.size_t(ld), C.int(turned), t.c)
	if c == nil {
		return nil, errors.New("packing a matrix: out of memory")
	}
	return &FloatMatrix{c, k, n}, nil
}

// Free gives the memory back; nobody may use the matrix any more.
func (m *FloatMatrix) Free() { C.dm_ffree(m.c); m.c = nil }

// Bytes is the size of the packed weights.
func (m *FloatMatrix) Bytes() int { return int(C.dm_fbytes(m.c)) }

// FloatProduct is one matrix that an input is multiplied with.
type FloatProduct struct {
	W        *FloatMatrix
	Bias     []float32 // [n], or nil
	Y        []float32 // [rows, n]
	Residual []float32 // [rows, n], added to Y, or nil
}

func (p FloatProduct) c(pin *runtime.Pinner) C.dm_fproduct {
	return C.dm_fproduct{w: p.W.c, bias: floats(pin, p.Bias), y: floats(pin, p.Y), ldy: C.size_t(p.W.n),
		residual: floats(pin, p.Residual), ldr: C.size_t(p.W.n)}
}

// FloatMatMul multiplies x, [rows, k], with matrices of the same k.
func FloatMatMul(products []FloatProduct, x []float32, rows int, t Threads) {
	if len(products) == 0 || rows == 0 {
		return
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	c := make([]C.dm_fproduct, len(products))
	for i, p := range products {
		c[i] = p.c(&pin)
		_ = p.Y[rows*p.W.n-1]
	}
	k := products[0].W.k
	_ = x[rows*k-1]
	scratch := floatScratch(rows, k, t)
	defer C.free(scratch)
	C.dm_fmatmul(&c[0], C.size_t(len(c)), (*C.float)(&x[0]), C.size_t(k), C.size_t(rows), scratch, t.c)
}

// FloatGated computes y = act(x gate) * (x up); y is [rows, n].
func FloatGated(gate, up FloatProduct, act Activation, y, x []float32, rows int, t Threads) {
	if rows == 0 {
		return
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	c := []C.dm_fproduct{gate.c(&pin), up.c(&pin)}
	w := gate.W
	_, _ = x[rows*w.k-1], y[rows*w.n-1]
	scratch := floatScratch(rows, w.k, t)
	defer C.free(scratch)
	C.dm_fgated(&c[0], &c[1], C.dm_activation(act), (*C.float)(&y[0]), C.size_t(w.n),
		(*C.float)(&x[0]), C.size_t(w.k), C.size_t(rows), scratch, t.c)
}

func floatScratch(rows, k int, t Threads) unsafe.Pointer {
	threads := C.int(1)
	if t.c != nil {
		threads = t.c.threads
	}
	return C.malloc(C.dm_fscratch(C.size_t(rows), C.size_t(k), threads))
}
