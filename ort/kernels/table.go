package kernels

// #include "table.h"
import "C"

import "unsafe"

// Table is the address of the kernels' functions, a dm_kernels of table.h, for
// C code of other packages. It is valid as long as the process.
func Table() unsafe.Pointer { return unsafe.Pointer(&C.dm_kernels_table) }

// Takes reports whether matrices of so many bits in blocks of this size can be
// packed.
func Takes(bits, block int) bool {
	s := C.dm_qsource{n: 1, k: C.size_t(max(1, block)), bits: C.int(bits), block: C.int(block)}
	return C.dm_qrefuses(&s) == nil
}

// Address is the packed matrix in C, a dm_qmatrix, valid until Free.
func (m *Matrix) Address() unsafe.Pointer { return unsafe.Pointer(m.c) }

// Address is the packed matrix in C, a dm_fmatrix, valid until Free.
func (m *FloatMatrix) Address() unsafe.Pointer { return unsafe.Pointer(m.c) }
