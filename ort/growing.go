package ort

import "unsafe"

// growingCache is the cache of a graph that takes exactly the past's length and
// returns past and new entries together. Two blocks take turns: the present of
// one run is the past of the next. Each holds every layer's keys and values in
// regions of full length, densely packed as [1, kv heads, length, head size] at
// the region's start, so that pages behind a short cache are never touched.
type growingCache struct {
	d       *Decoder
	binding unsafe.Pointer
	blocks  [2]block
	current int // the block that holds the past
	length  int // tokens in it
	next    int // tokens in the other one once the run has succeeded
	region  int // bytes from one tensor to the next
}

func (d *Decoder) newGrowingCache(s *slot) (err error) {
	c := &growingCache{d: d, binding: s.binding}
	s.cache = c
	c.region = aligned(d.Context() * c.row() * d.model.bundle.KVHeads)
	for i := range c.blocks {
		if c.blocks[i], err = newBlock(d.runtime, c.region*len(d.past)); err != nil {
			return err
		}
	}
	return nil
}

// row is the size in bytes of one head's entry of one token.
func (c *growingCache) row() int {
	b := c.d.model.bundle
	return b.HeadSize * b.layout.cache.size()
}

func (c *growingCache) feed(past, s int) error {
	c.truncate(past)
	c.next = past + s
	d, b := c.d, c.d.model.bundle
	elem := b.layout.cache.size()
	from, to := &c.blocks[c.current], &c.blocks[1-c.current]
	for i := range d.past {
		setView(&d.past[i], from.at(i*c.region), elem, 1, b.KVHeads, past, b.HeadSize)
		setView(&d.present[i], to.at(i*c.region), elem, 1, b.KVHeads, past+s, b.HeadSize)
	}
	return d.bindCaches(c.binding, d.past, d.present)
}

func (c *growingCache) fed() {
	c.current, c.length = 1-c.current, c.next
}

// truncate keeps the first n tokens: each head's entries move up to where they
// begin in a shorter tensor. They move towards the start, head by head, so that
// nothing is overwritten before it is moved.
func (c *growingCache) truncate(n int) {
	if n >= c.length {
		return
	}
	row, heads := c.row(), c.d.model.bundle.KVHeads
	for i := range c.d.past {
		tensor := view[byte](&c.blocks[c.current], i*c.region, heads*c.length*row)
		for h := 1; h < heads; h++ {
			copy(tensor[h*n*row:(h+1)*n*row], tensor[h*c.length*row:])
		}
	}
	c.length = n
}

// copyFrom packs the beginnings of src's heads densely.
func (c *growingCache) copyFrom(src kvCache, n int) {
	from := src.(*growingCache)
	row := c.row()
	for i := range c.d.past {
		for h := range c.d.model.bundle.KVHeads {
			copy(view[byte](&c.blocks[c.current], i*c.region+h*n*row, n*row),
				view[byte](&from.blocks[from.current], i*c.region+h*from.length*row, n*row))
		}
	}
	c.length = n
}

func (c *growingCache) free() {
	for i := range c.blocks {
		c.blocks[i].free()
	}
}
