package ort

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"sync/atomic"
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"
)

// waits counts the runs that were waited for.
var waits atomic.Int64

// Waits is how often the host has waited for a device until now, in all of this
// process: for runs whose outputs it reads, and for room where inputs pass through.
// Runs on the CPU end before they return; they count as they would on a device.
func Waits() int64 { return waits.Load() }

// launch binds what goes in and out, and runs. A run that is not waited for leaves
// everything on the device: what runs there next finds it, as the runs of a device
// follow each other, and the host goes on at once.
func (d *device) launch(h *C.dm_run_handles, ins, outs []C.dm_view, wait bool) error {
	if err := d.follow(h, wait); err != nil {
		return err
	}
	if d.stream == nil {
		return goError(C.dm_forward(d.runtime, h, first(ins), C.size_t(len(ins)), first(outs), C.size_t(len(outs))))
	}
	staged, err := d.stream.stage(d.memory, ins)
	defer staged.end()
	if err != nil {
		return err
	}
	before := d.stream.launched(staged.piece)
	err = goError(C.dm_forward(d.runtime, h, first(ins), C.size_t(len(ins)), first(outs), C.size_t(len(outs))))
	if err == nil && wait {
		d.stream.waited(before)
	}
	return err
}

// again runs what is bound n times.
func (d *device) again(h *C.dm_run_handles, n int, wait bool) error {
	if err := d.follow(h, wait); err != nil {
		return err
	}
	return goError(C.dm_loop(d.runtime, h, C.size_t(n)))
}

func first(views []C.dm_view) *C.dm_view {
	if len(views) == 0 {
		return nil
	}
	return &views[0]
}

// follow says whether the next run is waited for.
func (d *device) follow(h *C.dm_run_handles, wait bool) error {
	if wait {
		waits.Add(1)
	}
	if d.onCPU() {
		return nil
	}
	h.synchronize = synchronizeNothing
	if wait {
		h.synchronize = synchronizeBoth
		if d.stream != nil { // what goes in is there in time, without it
			h.synchronize = synchronizeOutputs
		}
	}
	quiet := C.int(1)
	if wait {
		quiet = 0
	}
	if h.quiet == quiet || h.options == nil {
		return nil
	}
	value := "0"
	if quiet == 1 {
		value = "1"
	}
	h.quiet = quiet
	return d.option(h.options, "disable_synchronize_execution_providers", value)
}

// option sets an entry of run options.
func (d *device) option(options unsafe.Pointer, key, value string) error {
	k, v := C.CString(key), C.CString(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	return goError(C.dm_run_option(d.runtime, options, k, v))
}

// Of dm_run_handles.
const (
	synchronizeNothing = 0
	synchronizeBoth    = 1
	synchronizeOutputs = 2
)

// freeOptions ends run options; nil are left alone.
func freeOptions(o **yort.RunOptions) {
	if *o == nil {
		return
	}
	if err := (*o).Destroy(); err != nil { // which happens to none that was made
		panic("ort: run options: " + err.Error())
	}
	*o = nil
}
