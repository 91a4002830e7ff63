package ort

// #include "operators.h"
import "C"

import (
	"sync"
	"unsafe"

	"github.com/draftmill/draftmill/ort/kernels"
)

var operators struct {
	sync.Mutex
	domain unsafe.Pointer // OrtCustomOpDomain; lives as long as the process
}

// useOperators makes our operators known to sessions with these options.
func useOperators(rt *C.dm_runtime, options unsafe.Pointer) error {
	operators.Lock()
	defer operators.Unlock()
	if operators.domain == nil {
		if err := goError(C.dm_operators_open(rt, (*C.dm_kernels)(kernels.Table()), &operators.domain)); err != nil {
			return err
		}
	}
	return goError(C.dm_operators_use(rt, options, operators.domain))
}
