package ort

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/draftmill/draftmill/ort/graph"
)

// slot is one sequence's cache.
type slot struct {
	binding unsafe.Pointer // OrtIoBinding
	cache   kvCache
	used    bool
	cached  int   // tokens that the cache holds
	seen    int64 // the last Forward that named it
}

// kvCache is what the contracts differ in.
type kvCache interface {
	// feed makes the cache ready for s tokens after its first past ones. The
	// tokens after past are lost from here on.
	feed(past, s int) error
	// fed follows a run that succeeded.
	fed()
	// copyFrom makes this cache hold the first n tokens of src, a cache of the
	// same decoder.
	copyFrom(src kvCache, n int) error
	// free gives the memory back, after the binding is gone.
	free()
}

// Alloc gives an empty cache for one sequence. Memory of freed slots is used
// again.
func (d *Decoder) Alloc() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.device().lock()
	defer d.device().unlock()
	if d.closed {
		return 0, fmt.Errorf("allocate a slot: %w", ErrClosed)
	}
	for i, s := range d.slots {
		if !s.used {
			s.used, s.cached = true, 0
			return i, nil
		}
	}
	s := &slot{used: true}
	if err := d.bindSlot(s); err != nil {
		s.free(d.runtime)
		return 0, fmt.Errorf("allocate a slot: %w", err)
	}
	d.slots = append(d.slots, s)
	return len(d.slots) - 1, nil
}

// bindSlot gives a slot its binding and its cache.
func (d *Decoder) bindSlot(s *slot) error {
	if err := goError(C.dm_binding_new(d.runtime, d.session, &s.binding)); err != nil {
		return err
	}
	if d.model.bundle.Contract == graph.GQA {
		return d.newGQACache(s)
	}
	return d.newGrowingCache(s)
}

func (s *slot) free(rt *C.dm_runtime) {
	if s.binding != nil {
		C.dm_binding_free(rt, s.binding)
		s.binding = nil
	}
	if s.cache != nil {
		s.cache.free()
		s.cache = nil
	}
}

// Free ends a sequence; its slot may be given out again. Freeing a slot that is
// not allocated panics; after Close it does nothing.
func (d *Decoder) Free(slot int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if !d.allocated(slot) {
		panic(fmt.Sprintf("ort: free of slot %d, which is not allocated", slot))
	}
	d.slots[slot].used = false
}

// Copy makes slot dst hold the first n cached tokens of slot src, and nothing
// else: what follows them in dst is what would follow them in src, to the bit.
// Both are allocated and differ, and n is at most what src caches. The samples
// of one prompt are made from one prefill this way. After an error of the
// device dst is empty.
func (d *Decoder) Copy(dst, src, n int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.device().lock()
	defer d.device().unlock()
	if err := d.copySlot(dst, src, n); err != nil {
		return fmt.Errorf("copy %d tokens of slot %d to slot %d: %w", n, src, dst, err)
	}
	return nil
}

func (d *Decoder) copySlot(dst, src, n int) error {
	if d.closed {
		return ErrClosed
	}
	for _, id := range []int{dst, src} {
		if !d.allocated(id) {
			return fmt.Errorf("slot %d is not allocated", id)
		}
	}
	to, from := d.slots[dst], d.slots[src]
	switch {
	case to == from:
		return errors.New("they are the same")
	case n < 0 || n > from.cached:
		return fmt.Errorf("%d tokens are cached", from.cached)
	}
	to.cached = 0 // what an error leaves
	if err := to.cache.copyFrom(from.cache, n); err != nil {
		return d.device().explain(err)
	}
	to.cached = n
	return nil
}

// allocated reports whether the slot is one that Alloc gave out.
func (d *Decoder) allocated(slot int) bool {
	return slot >= 0 && slot < len(d.slots) && d.slots[slot].used
}
