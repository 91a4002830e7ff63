package ort

// #include "shim.h"
import "C"

import "unsafe"

// gqaCache is the cache of a GroupQueryAttention graph: for each layer one
// buffer for keys and one for values, [1, kv heads, context, head size], bound
// once as past and as present. The operator writes a token's entries at its
// position and reads no further than the mask is long, so that a rollback needs
// nothing: what lies behind the mask's end is overwritten before it is read.
type gqaCache struct{ memory block }

func (d *Decoder) newGQACache(s *slot) error {
	b := d.model.bundle
	elem := b.layout.cache.size()
	region := aligned(b.KVHeads * d.Context() * b.HeadSize * elem)
	memory, err := newBlock(d.runtime, region*len(d.past))
	if err != nil {
		return err
	}
	s.cache = &gqaCache{memory: memory}
	for i := range d.past {
		setView(&d.past[i], memory.at(i*region), elem, 1, b.KVHeads, d.Context(), b.HeadSize)
		setView(&d.present[i], memory.at(i*region), elem, 1, b.KVHeads, d.Context(), b.HeadSize)
	}
	return d.bindCaches(s.binding)
}

// bindCaches binds the views past and present.
func (d *Decoder) bindCaches(binding unsafe.Pointer) error {
	n := C.size_t(len(d.past))
	if err := goError(C.dm_bind(d.runtime, binding, &d.past[0], n, 0)); err != nil {
		return err
	}
	return goError(C.dm_bind(d.runtime, binding, &d.present[0], n, 1))
}

func (c *gqaCache) feed(past, s int) error { return nil }
func (c *gqaCache) fed()                   {}
func (c *gqaCache) free()                  { c.memory.free() }
