package ort

// #include <stdlib.h>
// #include "cuda.h"
// #include "shim.h"
import "C"

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"unsafe"
)

// stream is the one that all sessions of a GPU compute in, so that runs follow each
// other there although nobody waits for them, whichever session they are of. Inputs
// get there in it, too, by way of a ring of memory: what ONNX Runtime copies itself it
// copies at once, into memory that an earlier run may still be using.
//
// A piece of the ring is free again once a run has been waited for before which its
// own was launched. A loop of passes takes some hundred KiB.
type stream struct {
	c    *C.dm_stream
	host unsafe.Pointer
	ring unsafe.Pointer // on the device
	size int

	mu         sync.Mutex
	head, done int   // bytes given out and free again, since the beginning
	open       []int // pieces whose runs are not launched yet: where they begin, since the beginning
	closed     sync.Cond
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
	s.closed.L = &s.mu
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

// take gives out a piece of the ring, to be closed when what reads it has been launched.
// Where none is free it waits for the stream, and for launches of others.
func (s *stream) take(n int) (piece int, err error) {
	n = ringed(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := func() int {
		if at := s.head % s.size; at+n > s.size {
			return s.head + s.size - at // in the next lap
		}
		return s.head
	}
	for begin()+n-s.done > s.size {
		if s.before(-1) == s.done && len(s.open) > 0 {
			s.closed.Wait()
			continue
		}
		if err := s.wait(); err != nil {
			return 0, err
		}
		s.done = s.before(-1)
	}
	piece = begin()
	s.head = piece + n
	s.open = append(s.open, piece)
	return piece, nil
}

// ringed is what n bytes take of the ring.
func ringed(n int) int { return (n + ringAlign - 1) / ringAlign * ringAlign }

// close says that what reads a piece has been launched.
func (s *stream) close(piece int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(p int) bool { return p == piece })
	s.closed.Broadcast()
}

// before is where the first open piece but this one begins: all before it has been
// launched. Where there is none it is what has been given out.
func (s *stream) before(but int) int {
	first := s.head
	for _, p := range s.open {
		if p != but {
			first = min(first, p)
		}
	}
	return first
}

// launched is what part of the ring is free again when a run that is launched now, with
// this piece, has been waited for.
func (s *stream) launched(piece int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.before(piece)
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

// staged are inputs of a run that the host has, in a piece of the ring; -1: none.
type staged struct {
	stream *stream
	piece  int
	views  []*C.dm_view
	from   []unsafe.Pointer
}

// end points the inputs to the host again, when the run has been launched.
func (x *staged) end() {
	for i, v := range x.views {
		v.data, v.memory = x.from[i], nil
	}
	if x.piece >= 0 {
		x.stream.close(x.piece)
	}
}

// stage puts what inputs the host has into the ring, and points them there. An input
// that is too large for it is left to ONNX Runtime, after a wait.
func (s *stream) stage(m *memory, ins []C.dm_view) (*staged, error) {
	x := &staged{stream: s, piece: -1}
	total := 0
	var small []*C.dm_view
	for i := range ins {
		v := &ins[i]
		switch n := int(v.bytes); {
		case v.memory != nil || v.here != 0 || n == 0:
		case n > s.size/8:
			if err := s.wait(); err != nil {
				return x, err
			}
		case total+n > s.size/2:
			return x, fmt.Errorf("the inputs of a run take more than %d KiB", s.size>>11)
		default:
			small = append(small, v)
			total += ringed(n)
		}
	}
	if total == 0 {
		return x, nil
	}
	var err error
	if x.piece, err = s.take(total); err != nil {
		x.piece = -1
		return x, err
	}
	offset := x.piece % s.size
	at := offset
	for _, v := range small {
		copy(unsafe.Slice((*byte)(unsafe.Add(s.host, at)), v.bytes), unsafe.Slice((*byte)(v.data), v.bytes))
		x.views, x.from = append(x.views, v), append(x.from, v.data)
		v.data, v.memory = unsafe.Add(s.ring, at), m.info
		at += ringed(int(v.bytes))
	}
	return x, goError(C.dm_stream_upload(s.c, unsafe.Add(s.ring, offset), C.size_t(offset), C.size_t(total)))
}

// waited says that a part of the ring is free again.
func (s *stream) waited(to int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = max(s.done, to)
	s.closed.Broadcast()
}

// upload makes copies to fixed addresses, the device's or the host's.
func (d *device) upload(copies []C.dm_copy) error {
	for _, c := range copies {
		from := unsafe.Slice((*byte)(c.from), c.bytes)
		if d.stream == nil || c.here != 0 {
			copy(unsafe.Slice((*byte)(c.to), c.bytes), from)
			continue
		}
		piece, err := d.stream.take(len(from))
		if err != nil {
			return err
		}
		offset := piece % d.stream.size
		copy(unsafe.Slice((*byte)(unsafe.Add(d.stream.host, offset)), len(from)), from)
		err = goError(C.dm_stream_upload(d.stream.c, c.to, C.size_t(offset), c.bytes))
		d.stream.close(piece)
		if err != nil {
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
