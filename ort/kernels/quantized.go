package kernels

// #include <stdlib.h>
// #include "quantized.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// Source is a quantized matrix as com.microsoft.MatMulNBits has it; see dm_qsource
// in quantized.h. N columns of K weights each lie in blocks of Block weights along K.
type Source struct {
	N, K, Bits, Block int
	Weights           []byte    // [N][blocks][Block * Bits / 8]
	Scales            []float32 // [N][blocks]; or
	HalfScales        []uint16  // the same in float16
	ZeroPoints        []byte    // [N][ceil(blocks * Bits / 8)], or nil
}

// Matrix is a packed matrix in C's memory. Free releases it.
type Matrix struct {
	c    *C.dm_qmatrix
	n, k int
}

// Pack packs a matrix for the kernels; the source is not needed afterwards.
func Pack(s Source, t Threads) (*Matrix, error) {
	if s.N <= 0 || s.K <= 0 || s.Block <= 0 || s.Bits <= 0 {
		return nil, fmt.Errorf("pack a matrix of %d columns of %d weights, %d bits in blocks of %d: sizes must be positive",
			s.N, s.K, s.Bits, s.Block)
	}
	blocks := (s.K + s.Block - 1) / s.Block
	scales := len(s.Scales)
	if s.HalfScales != nil {
		scales = len(s.HalfScales)
	}
	if len(s.Weights) != s.N*blocks*s.Block*s.Bits/8 || scales != s.N*blocks ||
		s.ZeroPoints != nil && len(s.ZeroPoints) != s.N*((blocks*s.Bits+7)/8) {
		return nil, fmt.Errorf("pack a matrix of %d columns of %d weights, %d bits in blocks of %d: "+
			"%d bytes of weights, %d scales and %d bytes of zero points do not fit that",
			s.N, s.K, s.Bits, s.Block, len(s.Weights), scales, len(s.ZeroPoints))
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	c := C.dm_qsource{n: C.size_t(s.N), k: C.size_t(s.K), bits: C.int(s.Bits), block: C.int(s.Block)}
	c.weights = (*C.uint8_t)(pinned(&pin, s.Weights))
	c.zero_points = (*C.uint8_t)(pinned(&pin, s.ZeroPoints))
	if s.HalfScales != nil {
		c.half, c.scales = 1, pinned(&pin, s.HalfScales)
	} else {
		c.scales = pinned(&pin, s.Scales)
	}
	if why := C.dm_qrefuses(&c); why != nil {
		return nil, errors.New("pack a matrix: " + C.GoString(why))
	}
	m := C.dm_qpack(&c, t.c)
	if m == nil {
		return nil, fmt.Errorf("pack a matrix of %d columns of %d weights: out of memory", s.N, s.K)
	}
	return &Matrix{c: m, n: s.N, k: s.K}, nil
}

// Free releases the matrix.
func (m *Matrix) Free() {
	C.dm_qfree(m.c)
	m.c = nil
}

// Bytes is the size of the packed weights, scales and zero points.
func (m *Matrix) Bytes() int { return int(C.dm_qbytes(m.c)) }

// Product is one matrix that an input is multiplied with; see dm_qproduct.
type Product struct {
	W        *Matrix
	Bias     []float32 // [N], or nil
	Y        []float32 // [rows][N]
	Residual []float32 // [rows][N], added to Y, or nil
}

// MatMul multiplies x, [rows][K], with matrices of the same K and block.
func MatMul(products []Product, x []float32, rows int, t Threads) {
	if len(products) == 0 || rows == 0 {
		return
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	c := make([]C.dm_qproduct, len(products))
	for i, p := range products {
		c[i] = p.c(&pin)
		_ = p.Y[rows*p.W.n-1]
	}
	w := products[0].W
	_ = x[rows*w.k-1]
	scratch := w.scratch(rows)
	defer C.free(scratch)
	C.dm_qmatmul(&c[0], C.size_t(len(c)), (*C.float)(unsafe.SliceData(x)), C.size_t(w.k), C.size_t(rows), scratch, t.c)
}

// Gated computes y = activation(x gate) * (x up), the gated part of an MLP; y is
// [rows][N].
func Gated(gate, up Product, activation Activation, y, x []float32, rows int, t Threads) {
	if rows == 0 {
		return
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	c := make([]C.dm_qproduct, 2)
	c[0], c[1] = gate.c(&pin), up.c(&pin)
	w := gate.W
	_, _ = x[rows*w.k-1], y[rows*w.n-1]
	scratch := w.scratch(rows)
	defer C.free(scratch)
	C.dm_qgated(&c[0], &c[1], C.dm_activation(activation), (*C.float)(unsafe.SliceData(y)), C.size_t(w.n),
		(*C.float)(unsafe.SliceData(x)), C.size_t(w.k), C.size_t(rows), scratch, t.c)
}

func (p Product) c(pin *runtime.Pinner) C.dm_qproduct {
	return C.dm_qproduct{w: p.W.c, bias: (*C.float)(pinned(pin, p.Bias)),
		y: (*C.float)(pinned(pin, p.Y)), ldy: C.size_t(p.W.n),
		residual: (*C.float)(pinned(pin, p.Residual)), ldr: C.size_t(p.W.n)}
}

func (m *Matrix) scratch(rows int) unsafe.Pointer {
	return C.malloc(C.dm_qscratch(C.size_t(rows), C.size_t(m.k), C.dm_qblock(m.c)))
}

// pinned is the address of a slice's first element, held in place until pin is
// released; nil of an empty slice.
func pinned[T any](pin *runtime.Pinner, s []T) unsafe.Pointer {
	if len(s) == 0 {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(s))
	pin.Pin(p)
	return p
}
