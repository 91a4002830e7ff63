package ort

// #include <stdlib.h>
// #include "operators.h"
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
	"github.com/draftmill/draftmill/ort/kernels"
)

// matrices are the constant matrices of a rewritten graph, packed for our
// kernels. The graph names them by their addresses, so that they outlive its
// session.
type matrices struct {
	list  []C.dm_matrix // C memory
	owned []interface{ Free() }
	bytes int // of the packed matrices: what a pass over one token reads
}

// packed is a matrix as the kernels have it.
type packed interface {
	Address() unsafe.Pointer
	Bytes() int
	Free()
}

// takes says whether our kernels take a matrix. Of those in few bits they take
// what computes with activations of 8 bits (accuracy_level 4): the others promise
// more.
func takes(m *graph.Matrix) bool {
	if m.Bits == 0 {
		t := graph.ElementType(m.Weights.GetDataType())
		return m.Columns != nil || t == graph.Float32 || t == graph.Float16 || t == graph.BFloat16
	}
	scales := graph.ElementType(m.Scales.GetDataType())
	return m.Accuracy == 4 && (scales == graph.Float32 || scales == graph.Float16) && kernels.Takes(m.Bits, m.Block)
}

// packMatrices packs what the rewritten graph wants, from the model's files in
// the folder dir.
func packMatrices(dir string, wanted []*graph.Matrix, threads int) (_ *matrices, err error) {
	p := &matrices{}
	if len(wanted) == 0 {
		return p, nil
	}
	f := &initializers{dir: dir, files: map[string][]byte{}}
	pool := kernels.NewThreads(threads)
	defer func() {
		pool.Free()
		if err = errors.Join(err, f.close()); err != nil {
			p.free()
		}
	}()
	memory := C.calloc(C.size_t(len(wanted)), C.sizeof_dm_matrix)
	p.list = unsafe.Slice((*C.dm_matrix)(memory), len(wanted))
	for i, m := range wanted {
		if err := p.pack(&p.list[i], f, m, pool); err != nil {
			return nil, fmt.Errorf("matrix %s: %w", m.Name, err)
		}
		if err := f.forget(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// pack packs one matrix.
func (p *matrices) pack(to *C.dm_matrix, f *initializers, m *graph.Matrix, pool kernels.Threads) error {
	x, err := f.packed(m, pool)
	if err != nil {
		return err
	}
	p.owned = append(p.owned, x)
	p.bytes += x.Bytes()
	to.k, to.n, to.weights = C.int64_t(m.K), C.int64_t(m.N), x.Address()
	if m.Bits > 0 {
		to.quantized = 1
	}
	if m.Bias == nil {
		return nil
	}
	bias, err := f.floats(m.Bias, m.N)
	if err != nil {
		return err
	}
	to.bias = (*C.float)(C.malloc(C.size_t(4 * m.N)))
	copy(unsafe.Slice((*float32)(unsafe.Pointer(to.bias)), m.N), bias)
	return nil
}

// packed packs one matrix's weights.
func (f *initializers) packed(m *graph.Matrix, pool kernels.Threads) (packed, error) {
	if m.Bits == 0 {
		data, err := f.read(m.Weights, m.K*m.N)
		if err != nil {
			return nil, err
		}
		if m.Columns != nil {
			scales, err := f.floats(m.Columns, m.N)
			if err != nil {
				return nil, err
			}
			return kernels.PackFloats(byColumns(aligned[int8](data), scales), m.K, m.N, false, pool)
		}
		if t := graph.ElementType(m.Weights.GetDataType()); t != graph.Float32 {
			kind := kernels.Float16
			if t == graph.BFloat16 {
				kind = kernels.BFloat16
			}
			return kernels.PackHalves(aligned[uint16](data), kind, m.K, m.N, m.Transposed, pool)
		}
		return kernels.PackFloats(aligned[float32](data), m.K, m.N, m.Transposed, pool)
	}
	blocks := (m.K + m.Block - 1) / m.Block
	s := kernels.Source{N: m.N, K: m.K, Bits: m.Bits, Block: m.Block}
	var err error
	if s.Weights, err = f.read(m.Weights, m.N*blocks*m.Block*m.Bits/8); err != nil {
		return nil, err
	}
	if m.ZeroPoints != nil {
		if s.ZeroPoints, err = f.read(m.ZeroPoints, m.N*((blocks*m.Bits+7)/8)); err != nil {
			return nil, err
		}
	}
	if s.Scales, err = f.floats(m.Scales, m.N*blocks); err != nil {
		return nil, err
	}
	return kernels.Pack(s, pool)
}

// byColumns are integers times the number of their column.
func byColumns(w []int8, columns []float32) []float32 {
	out := make([]float32, len(w))
	for i, x := range w {
		out[i] = float32(x) * columns[i%len(columns)]
	}
	return out
}

// address is where the i-th matrix is.
func (p *matrices) address(i int) int64 { return int64(uintptr(unsafe.Pointer(&p.list[i]))) }

func (p *matrices) free() {
	for _, x := range p.owned {
		x.Free()
	}
	for i := range p.list {
		C.free(unsafe.Pointer(p.list[i].bias))
	}
	if len(p.list) > 0 {
		C.free(unsafe.Pointer(&p.list[0]))
	}
	p.list, p.owned = nil, nil
}

// initializers reads the constant tensors of a model, whose data graph.Read has
// left in the files of the folder.
type initializers struct {
	dir   string
	files map[string][]byte // mapped
}

// read is the data of a tensor of so many elements. They are in a mapped file,
// or in the model: valid until close.
func (f *initializers) read(x *onnxpb.TensorProto, elements int) ([]byte, error) {
	bytes := elements * graph.ElementType(x.GetDataType()).Size()
	location := graph.ExternalData(x, "location")
	if location == "" {
		if len(x.RawData) != bytes {
			return nil, fmt.Errorf("initializer %s has %d bytes, want %d", x.GetName(), len(x.RawData), bytes)
		}
		return x.RawData, nil
	}
	file, err := f.file(location)
	if err != nil {
		return nil, err
	}
	offset := 0
	if text := graph.ExternalData(x, "offset"); text != "" {
		if offset, err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("initializer %s: offset %q", x.GetName(), text)
		}
	}
	if offset < 0 || offset > len(file)-bytes {
		return nil, fmt.Errorf("initializer %s: bytes %d to %d are behind the end of %s", x.GetName(), offset, offset+bytes, location)
	}
	return file[offset : offset+bytes], nil
}

// floats is a tensor of a float type in float32, valid until close.
func (f *initializers) floats(x *onnxpb.TensorProto, n int) ([]float32, error) {
	data, err := f.read(x, n)
	if err != nil || n == 0 {
		return nil, err
	}
	switch t := graph.ElementType(x.GetDataType()); t {
	case graph.Float32:
		return aligned[float32](data), nil
	case graph.Float16, graph.BFloat16:
		half, out := aligned[uint16](data), make([]float32, n)
		widen(unsafe.Pointer(&out[0]), unsafe.Pointer(&half[0]), n, t)
		return out, nil
	default:
		return nil, fmt.Errorf("initializer %s is %s, want a float type", x.GetName(), t)
	}
}

// aligned are the numbers in data: in place, or a copy where they begin at an odd
// address, as they may inside a model file.
func aligned[T any](data []byte) []T {
	var number T
	size := unsafe.Sizeof(number)
	n := len(data) / int(size)
	if uintptr(unsafe.Pointer(&data[0]))%size == 0 {
		return unsafe.Slice((*T)(unsafe.Pointer(&data[0])), n)
	}
	out := make([]T, n)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), len(data)), data)
	return out
}

// small is read for a constant that a graph's rewriting asks for; nil where it cannot
// be read, which loading will say.
func (f *initializers) small(x *onnxpb.TensorProto) []byte {
	n := 1
	for _, d := range x.Dims {
		n *= int(d)
	}
	data, err := f.read(x, n)
	if err != nil {
		return nil
	}
	return slices.Clone(data)
}

func (f *initializers) file(location string) ([]byte, error) {
	if data, ok := f.files[location]; ok {
		return data, nil
	}
	data, err := graph.MapFile(filepath.Join(f.dir, location))
	if err != nil {
		return nil, fmt.Errorf("external data %s: %w", location, reason(err))
	}
	f.files[location] = data
	return data, nil
}

// forget drops the pages of the files that have been read, so that loading
// takes the memory of what is packed and not that of the files besides.
func (f *initializers) forget() (err error) {
	for _, data := range f.files {
		err = errors.Join(err, syscall.Madvise(data, syscall.MADV_DONTNEED))
	}
	return err
}

func (f *initializers) close() (err error) {
	for _, data := range f.files {
		err = errors.Join(err, syscall.Munmap(data))
	}
	f.files = nil
	return err
}
