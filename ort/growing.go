package ort

import "unsafe"

// growingCache is the cache of a graph that takes exactly the past's length and
// returns past and new entries together. Two sets of buffers take turns: the
// present of one run is the past of the next. Each buffer has room for the full
// length and holds a layer's keys or values densely packed as [1, kv heads,
// length, head size] at its start, so that pages behind a short cache are never
// touched.
type growingCache struct {
	s       *solo
	binding unsafe.Pointer
	tensors [2][]block
	current int // the set that holds the past
	length  int // tokens in it
	next    int // tokens in the other one once the run has succeeded
}

func (s *solo) newGrowingCache(binding unsafe.Pointer) (soloCache, error) {
	c := &growingCache{s: s, binding: binding}
	for i := range c.tensors {
		c.tensors[i] = make([]block, len(s.past))
		if err := s.newTensors(c.tensors[i]); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *growingCache) feed(past, n int) error {
	if err := c.truncate(past); err != nil {
		return err
	}
	c.next = past + n
	s, b := c.s, c.s.model.bundle
	elem := b.layout.Cache.Size()
	from, to := c.tensors[c.current], c.tensors[1-c.current]
	for i := range s.past {
		setView(&s.past[i], from[i].data, elem, 1, b.KVHeads, past, b.HeadSize)
		s.past[i].memory = from[i].info()
		setView(&s.present[i], to[i].data, elem, 1, b.KVHeads, past+n, b.HeadSize)
		s.present[i].memory = to[i].info()
	}
	return s.bindCaches(c.binding)
}

func (c *growingCache) fed() {
	c.current, c.length = 1-c.current, c.next
}

// truncate keeps the first n tokens: each head's entries move up to where they
// begin in a shorter tensor, on a device by way of the other set.
func (c *growingCache) truncate(n int) error {
	if n >= c.length {
		return nil
	}
	if c.s.mover != nil {
		if n > 0 {
			if err := c.move(c, 1-c.current, n); err != nil {
				return err
			}
			c.current = 1 - c.current
		}
	} else {
		// Towards the start, head by head: nothing is overwritten before it is
		// moved.
		c.pack(c, n)
	}
	c.length = n
	return nil
}

// move makes the first n tokens of src, another cache or this one, the contents
// of a set of buffers on the device.
func (c *growingCache) move(src *growingCache, set, n int) error {
	s := c.s
	for i := range s.past {
		s.mover.set(i, &src.tensors[src.current][i], &c.tensors[set][i], s.model.bundle.KVHeads, src.length, n, s.row())
	}
	return s.mover.move(n, false)
}

// pack does the same on the CPU, into the current set.
func (c *growingCache) pack(src *growingCache, n int) {
	row, heads := c.s.row(), c.s.model.bundle.KVHeads
	for i := range c.s.past {
		to, from := &c.tensors[c.current][i], &src.tensors[src.current][i]
		for h := range heads {
			copy(view[byte](to, h*n*row, n*row), view[byte](from, h*src.length*row, n*row))
		}
	}
}

// copyFrom packs the beginnings of src's heads densely.
func (c *growingCache) copyFrom(src soloCache, n int) error {
	from := src.(*growingCache)
	switch {
	case c.s.mover == nil:
		c.pack(from, n)
	case n > 0:
		if err := c.move(from, c.current, n); err != nil {
			return err
		}
	}
	c.length = n
	return nil
}

func (c *growingCache) free() {
	for _, set := range c.tensors {
		for i := range set {
			set[i].free()
		}
	}
}
