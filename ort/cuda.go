package ort

// #include <stdlib.h>
// #include "cuda.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// DeviceMemory is how much memory, in bytes, the model's device has free, and how
// much it has. It is an error where that is not known: on the CPU, whose memory is
// the machine's, and on WebGPU.
func (m *Model) DeviceMemory() (free, total int, err error) {
	d := m.session.device
	if d.kind != cudaDevice {
		return 0, 0, fmt.Errorf("device %s does not say how much memory it has: set ort.cache_mb", d.name)
	}
	free, total, err = cudaMemory(cudaDriver, d.index)
	if err != nil {
		return 0, 0, fmt.Errorf("device %s: ask for its memory: %w", d.name, err)
	}
	return free, total, nil
}

// cudaDriver is the library of CUDA's driver.
const cudaDriver = "libcuda.so.1"

// cudaMemory asks the driver's library.
func cudaMemory(library string, device int) (free, total int, err error) {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	var available, all C.size_t
	if err := goError(C.dm_cuda_memory(name, C.int(device), &available, &all)); err != nil {
		return 0, 0, err
	}
	if all == 0 || available > all {
		return 0, 0, errors.New("the driver's numbers make no sense")
	}
	return int(available), int(all), nil
}
