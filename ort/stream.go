package ort

// #include <stdlib.h>
// #include "cuda.h"
// #include "shim.h"
import "C"

import (
	"fmt"
	"strconv"
	"sync"
	"unsafe"
)

// stream is the one that all sessions of a GPU compute in, so that runs follow each
// other there although nobody waits for them, whichever session they are of. Inputs
// get there in it, too, by way of a ring of memory: what ONNX Runtime copies itself it
// copies at once, into memory that an earlier run may still be using.
//
// A part of the ring is free again once the runs up to its own have been waited for.
// A loop of passes takes some hundred KiB of it.
type stream struct {
	c    *C.dm_stream
	host unsafe.Pointer
	ring unsafe.Pointer // on the device
	size int

	mu         sync.Mutex
	head, done int // bytes given out and free again, since the beginning
}

const (
	ringBytes = 16 << 20
	ringAlign = 256
)

// streams are those of this process, by library and number of the GPU.
var streams = struct {
	sync.Mutex
	all map[string]*stream
}{all: map[string]*stream{}}

func streamOf(library string, device, size int) (*stream, error) {
	key := library + ":" + strconv.Itoa(device)
	streams.Lock()
	defer streams.Unlock()
	if s := streams.all[key]; s != nil {
		return s, nil
	}
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	s := &stream{size: size}
	if err := goError(C.dm_stream_open(name, C.int(device), C.size_t(size), &s.c)); err != nil {
		return nil, fmt.Errorf("make a stream: %w", err)
	}
	s.host, s.ring = C.dm_stream_host(s.c), C.dm_stream_memory(s.c)
	streams.all[key] = s
	return s, nil
}

// option is the stream as the provider's options name it.
func (s *stream) option() string {
	return strconv.FormatUint(uint64(uintptr(C.dm_stream_handle(s.c))), 10)
}

// take gives out a piece of the ring. Where none is free it waits for the stream.
func (s *stream) take(n int) (offset int, err error) {
	n = (n + ringAlign - 1) / ringAlign * ringAlign
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.head % s.size; at+n > s.size {
		s.head += s.size - at // the piece begins the next lap
	}
	if s.head+n-s.done > s.size {
		if err := s.wait(); err != nil {
			return 0, err
		}
		s.done = s.head
	}
	offset = s.head % s.size
	s.head += n
	return offset, nil
}

func (s *stream) wait() error {
	waits.Add(1)
	return goError(C.dm_stream_wait(s.c))
}

// settle waits until the device uses nothing more that is about to be freed. What has
// failed there the call that waited for it has said, or the next one will.
func (d *device) settle() {
	if d.stream != nil {
		_ = d.stream.wait()
	}
}

// stage puts what inputs the host has into the ring, and points them there until
// restore is called. An input that is too large for it is left to ONNX Runtime, after
// a wait.
func (s *stream) stage(m *memory, ins []C.dm_view) (restore func(), err error) {
	var staged []*C.dm_view
	var from []unsafe.Pointer
	restore = func() {
		for i, v := range staged {
			v.data, v.memory = from[i], nil
		}
	}
	total := 0
	for i := range ins {
		v := &ins[i]
		switch n := int(v.bytes); {
		case v.memory != nil || v.here != 0 || n == 0:
		case n > s.size/8:
			if err := s.wait(); err != nil {
				return restore, err
			}
		case total+n > s.size/2:
			return restore, fmt.Errorf("the inputs of a run take more than %d KiB", s.size>>11)
		default:
			staged, from = append(staged, v), append(from, v.data)
			total += (n + ringAlign - 1) / ringAlign * ringAlign
		}
	}
	if total == 0 {
		return restore, nil
	}
	offset, err := s.take(total)
	if err != nil {
		return restore, err
	}
	at := offset
	for _, v := range staged {
		copy(unsafe.Slice((*byte)(unsafe.Add(s.host, at)), v.bytes), unsafe.Slice((*byte)(v.data), v.bytes))
		v.data, v.memory = unsafe.Add(s.ring, at), m.info
		at += (int(v.bytes) + ringAlign - 1) / ringAlign * ringAlign
	}
	return restore, goError(C.dm_stream_upload(s.c, unsafe.Add(s.ring, offset), C.size_t(offset), C.size_t(total)))
}

// mark is how much of the ring has been given out.
func (s *stream) mark() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head
}

// waited says that what was given out up to a mark is free again.
func (s *stream) waited(mark int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = max(s.done, mark)
}

// upload makes copies to fixed addresses, the blocks' or the host's, in their order.
func (d *device) upload(copies []C.dm_copy) error {
	for _, c := range copies {
		from := unsafe.Slice((*byte)(c.from), c.bytes)
		if d.stream == nil || c.here != 0 {
			copy(unsafe.Slice((*byte)(c.to), c.bytes), from)
			continue
		}
		offset, err := d.stream.take(len(from))
		if err != nil {
			return err
		}
		copy(unsafe.Slice((*byte)(unsafe.Add(d.stream.host, offset)), len(from)), from)
		if err := goError(C.dm_stream_upload(d.stream.c, c.to, C.size_t(offset), c.bytes)); err != nil {
			return err
		}
	}
	return nil
}

// download copies from the device to the host, and waits for it.
func (d *device) download(c C.dm_copy) error {
	if d.stream == nil {
		copy(unsafe.Slice((*byte)(c.to), c.bytes), unsafe.Slice((*byte)(c.from), c.bytes))
		return nil
	}
	waits.Add(1)
	return goError(C.dm_stream_read(d.stream.c, c.to, c.from, c.bytes))
}

// place notes which inputs a session reads on the host.
func (d *device) place(session unsafe.Pointer, ins []C.dm_view) error {
	if d.stream == nil {
		return nil
	}
	for i := range ins {
		var info unsafe.Pointer
		onCPU, err := d.inputMemory(session, C.GoString(ins[i].name), &info)
		if err != nil {
			return err
		}
		if ins[i].here = 0; onCPU {
			ins[i].here = 1
		}
	}
	return nil
}

// inputsOf are views of blocks, and copyBytes is a copy, for tests, which have no cgo.
func inputsOf(blocks ...*block) (ins []C.dm_view, free func(), err error) {
	v, err := newViews(blocks[0].runtime, len(blocks))
	for i, b := range blocks {
		if err == nil {
			setView(&v.all[i], b.data, 1, b.size)
		}
	}
	return v.all, v.free, err
}

func (d *device) copyBytes(to, from *block, n int, up bool) error {
	c := C.dm_copy{to: to.data, from: from.data, bytes: C.size_t(n)}
	if up {
		return d.upload([]C.dm_copy{c})
	}
	return d.download(c)
}
