package ort

// #include "shim.h"
import "C"

import "unsafe"

// gqaCache is the cache of a GroupQueryAttention graph: for each layer one
// buffer for keys and one for values, [1, kv heads, context, head size], bound
// once as past and as present. The operator writes a token's entries at its
// position and reads no further than the mask is long, so that a rollback needs
// nothing: what lies behind the mask's end is overwritten before it is read.
type gqaCache struct {
	s       *solo
	tensors []block
}

func (s *solo) newGQACache(binding unsafe.Pointer) (soloCache, error) {
	c := &gqaCache{s: s, tensors: make([]block, len(s.past))}
	if err := s.newTensors(c.tensors); err != nil {
		return c, err
	}
	c.view(s.past, s.present)
	return c, s.bindCaches(binding)
}

// newTensors allocates the keys and values of all layers, each of full length,
// where the session runs. Each has a block of its own, because a device may
// know no addresses inside of one.
func (s *solo) newTensors(to []block) (err error) {
	size := s.model.bundle.KVHeads * s.model.context * s.row()
	for i := range to {
		if to[i], err = newBlock(s.runtime, s.model.session.device.memory, size); err != nil {
			return s.model.session.device.explain(err)
		}
	}
	if s.mover != nil {
		return s.model.session.device.explain(s.clearTensors(to))
	}
	return nil
}

// clearTensors writes zeros to a device's memory. Kernels there work in blocks
// of positions, and multiply what lies behind the mask's end by a probability of
// zero, which only finite numbers survive. It is also where a device that has
// given out more memory than it has says so (WebGPU).
func (s *solo) clearTensors(to []block) error {
	zeros, err := newBlock(s.runtime, nil, to[0].size)
	if err != nil {
		return err
	}
	defer zeros.free()
	clear(view[byte](&zeros, 0, zeros.size))
	for i := range to {
		s.moveTensor(i, &to[i], &zeros)
	}
	return s.mover.move(s.model.context, true)
}

// moveTensor makes the mover fill a tensor of full length from another.
func (s *solo) moveTensor(i int, to, from *block) {
	s.mover.set(i, from, to, s.model.bundle.KVHeads, s.model.context, s.model.context, s.row())
}

// row is the size in bytes of one head's entry of one token.
func (s *solo) row() int { return s.model.bundle.HeadSize * s.model.bundle.layout.Cache.Size() }

// view points the views of past and present at the cache.
func (c *gqaCache) view(past, present []C.dm_view) {
	s, b := c.s, c.s.model.bundle
	for i := range past {
		for _, v := range []*C.dm_view{&past[i], &present[i]} {
			setView(v, c.tensors[i].data, b.layout.Cache.Size(), 1, b.KVHeads, s.model.context, b.HeadSize)
			v.memory = c.tensors[i].info()
		}
	}
}

// bindCaches binds the views of past and present.
func (s *solo) bindCaches(binding unsafe.Pointer) error {
	if err := goError(C.dm_bind(s.runtime, binding, &s.past[0], C.size_t(len(s.past)), 0)); err != nil {
		return err
	}
	return goError(C.dm_bind(s.runtime, binding, &s.present[0], C.size_t(len(s.present)), 1))
}

func (c *gqaCache) feed(past, s int) error { return nil }
func (c *gqaCache) fed()                   {}

// copyFrom copies the beginning of every head, on a device each buffer as a
// whole. What lies behind the beginning does not matter: it is not read.
func (c *gqaCache) copyFrom(src soloCache, n int) error {
	s, from := c.s, src.(*gqaCache)
	if s.mover != nil {
		for i := range c.tensors {
			s.moveTensor(i, &c.tensors[i], &from.tensors[i])
		}
		return s.mover.move(s.model.context, false)
	}
	for i := range c.tensors {
		for h := range s.model.bundle.KVHeads {
			at := h * s.model.context * s.row()
			copy(view[byte](&c.tensors[i], at, n*s.row()), view[byte](&from.tensors[i], at, n*s.row()))
		}
	}
	return nil
}

func (c *gqaCache) free() {
	for i := range c.tensors {
		c.tensors[i].free()
	}
}
