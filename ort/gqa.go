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
	d       *Decoder
	tensors []block
}

func (d *Decoder) newGQACache(s *slot) (err error) {
	c := &gqaCache{d: d, tensors: make([]block, len(d.past))}
	s.cache = c
	if err := d.newTensors(c.tensors); err != nil {
		return err
	}
	c.view(d.past, d.present)
	return d.bindCaches(s.binding, d.past, d.present)
}

// newTensors allocates the keys and values of all layers, each of full length,
// where the session runs. Each has a block of its own, because a device may
// know no addresses inside of one.
func (d *Decoder) newTensors(to []block) (err error) {
	size := d.model.bundle.KVHeads * d.Context() * d.row()
	for i := range to {
		if to[i], err = newBlock(d.runtime, d.device().memory, size); err != nil {
			return d.device().explain(err)
		}
	}
	if d.mover != nil {
		return d.device().explain(d.clearTensors(to))
	}
	return nil
}

// clearTensors writes zeros to a device's memory. Kernels there work in blocks
// of positions, and multiply what lies behind the mask's end by a probability of
// zero, which only finite numbers survive. It is also where a device that has
// given out more memory than it has says so (WebGPU).
func (d *Decoder) clearTensors(to []block) error {
	zeros, err := newBlock(d.runtime, nil, to[0].size)
	if err != nil {
		return err
	}
	defer zeros.free()
	clear(view[byte](&zeros, 0, zeros.size))
	for i := range to {
		d.moveTensor(i, &to[i], &zeros)
	}
	return d.mover.move(d.Context())
}

// moveTensor makes the mover fill a tensor of full length from another.
func (d *Decoder) moveTensor(i int, to, from *block) {
	d.mover.set(i, from, to, d.model.bundle.KVHeads, d.Context(), d.Context(), d.row())
}

// row is the size in bytes of one head's entry of one token.
func (d *Decoder) row() int { return d.model.bundle.HeadSize * d.model.bundle.layout.Cache.Size() }

// view points the views of past and present at the cache.
func (c *gqaCache) view(past, present []C.dm_view) {
	d, b := c.d, c.d.model.bundle
	for i := range past {
		for _, v := range []*C.dm_view{&past[i], &present[i]} {
			setView(v, c.tensors[i].data, b.layout.Cache.Size(), 1, b.KVHeads, d.Context(), b.HeadSize)
			v.memory = c.tensors[i].info()
		}
	}
}

// bindCaches binds the views of past and present.
func (d *Decoder) bindCaches(binding unsafe.Pointer, past, present []C.dm_view) error {
	if err := goError(C.dm_bind(d.runtime, binding, &past[0], C.size_t(len(past)), 0)); err != nil {
		return err
	}
	return goError(C.dm_bind(d.runtime, binding, &present[0], C.size_t(len(present)), 1))
}

func (c *gqaCache) feed(past, s int) error { return nil }
func (c *gqaCache) fed()                   {}

// copyFrom copies the beginning of every head, on a device each buffer as a
// whole. What lies behind the beginning does not matter: it is not read.
func (c *gqaCache) copyFrom(src kvCache, n int) error {
	d, from := c.d, src.(*gqaCache)
	if d.mover != nil {
		for i := range c.tensors {
			d.moveTensor(i, &c.tensors[i], &from.tensors[i])
		}
		return d.mover.move(d.Context())
	}
	for i := range c.tensors {
		for h := range d.model.bundle.KVHeads {
			at := h * d.Context() * d.row()
			copy(view[byte](&c.tensors[i], at, n*d.row()), view[byte](&from.tensors[i], at, n*d.row()))
		}
	}
	return nil
}

func (c *gqaCache) free() {
	for i := range c.tensors {
		c.tensors[i].free()
	}
}
