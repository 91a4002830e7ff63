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
	d      *Decoder
	memory block
	region int // bytes from one tensor to the next
}

func (d *Decoder) newGQACache(s *slot) (err error) {
	b := d.model.bundle
	c := &gqaCache{d: d, region: aligned(b.KVHeads * d.Context() * b.HeadSize * b.layout.cache.size())}
	if c.memory, err = newBlock(d.runtime, c.region*len(d.past)); err != nil {
		return err
	}
	s.cache = c
	c.view(d, d.past, d.present)
	return d.bindCaches(s.binding, d.past, d.present)
}

// view points the views of past and present at the cache.
func (c *gqaCache) view(d *Decoder, past, present []C.dm_view) {
	b := d.model.bundle
	for i := range past {
		for _, v := range []*C.dm_view{&past[i], &present[i]} {
			setView(v, c.memory.at(i*c.region), b.layout.cache.size(), 1, b.KVHeads, d.Context(), b.HeadSize)
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

// copyFrom copies the beginning of every head. What lies behind it stays as it
// was: it is not read.
func (c *gqaCache) copyFrom(src kvCache, n int) {
	b := c.d.model.bundle
	row := b.HeadSize * b.layout.cache.size()
	for i := range c.d.past {
		for h := range b.KVHeads {
			at := i*c.region + h*c.d.Context()*row
			copy(view[byte](&c.memory, at, n*row), view[byte](&src.(*gqaCache).memory, at, n*row))
		}
	}
}

func (c *gqaCache) free() { c.memory.free() }
