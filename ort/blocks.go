package ort

import "slices"

// blockPool hands out the blocks of a paged KV cache. A block holds the keys and
// values of blockTokens consecutive tokens, in all layers. Several sequences may
// hold one block, as long as they agree on its tokens: one that writes to it
// first gets a copy of its own (copy on write). The pool counts; the memory is
// its user's.
//
// Blocks that were used last are given out first, so that the memory that is
// ever touched is what the fullest moment needed.
type blockPool struct {
	blockTokens int
	holders     []int32 // of each block: how many tables it is in
	free        []int32 // the last one is given out next
}

// newBlockPool makes a pool of n blocks.
func newBlockPool(blockTokens, n int) *blockPool {
	p := &blockPool{blockTokens: blockTokens, holders: make([]int32, n), free: make([]int32, n)}
	for i := range p.free {
		p.free[i] = int32(n - 1 - i)
	}
	return p
}

// blocksFor is how many blocks n tokens take.
func (p *blockPool) blocksFor(n int) int { return (n + p.blockTokens - 1) / p.blockTokens }

// blockCopy says that the first tokens of a block are to be copied to another.
type blockCopy struct {
	from, to int32
	tokens   int
}

// blockTable is the blocks of one sequence, in the order of its tokens.
type blockTable []int32

// place is where a token lies in the pool's memory, in tokens; size is a block's.
func (t blockTable) place(i, size int) int32 { return t[i/size]*int32(size) + int32(i%size) }

// reserve makes room for n tokens behind the first past ones, in blocks that no
// other table holds, and says what has to be copied before they are written to.
// ok is false where too few blocks are free; then nothing has changed. past is
// at most what the table has blocks for.
func (p *blockPool) reserve(t *blockTable, past, n int) (copies []blockCopy, ok bool) {
	if n <= 0 {
		return nil, true
	}
	first, end := past/p.blockTokens, p.blocksFor(past+n)
	need := max(0, end-len(*t))
	for _, b := range (*t)[min(first, len(*t)):min(end, len(*t))] {
		if p.holders[b] > 1 {
			need++
		}
	}
	if need > len(p.free) {
		return nil, false
	}
	for i := first; i < min(end, len(*t)); i++ {
		b := (*t)[i]
		if p.holders[b] == 1 {
			continue
		}
		own := p.take()
		if kept := past - i*p.blockTokens; kept > 0 {
			copies = append(copies, blockCopy{from: b, to: own, tokens: kept})
		}
		p.drop(b)
		(*t)[i] = own
	}
	for len(*t) < end {
		*t = append(*t, p.take())
	}
	return copies, true
}

// share makes a table hold the blocks of another's first n tokens, and nothing
// else.
func (p *blockPool) share(dst *blockTable, src blockTable, n int) {
	blocks := src[:p.blocksFor(n)]
	for _, b := range blocks {
		p.holders[b]++
	}
	p.truncate(dst, 0)
	*dst = append((*dst)[:0], blocks...)
}

// truncate gives back the blocks that the first n tokens do not need.
func (p *blockPool) truncate(t *blockTable, n int) {
	keep := min(p.blocksFor(n), len(*t))
	for _, b := range slices.Backward((*t)[keep:]) {
		p.drop(b)
	}
	*t = (*t)[:keep]
}

// take gives out a block. The caller has made sure that there is one.
func (p *blockPool) take() int32 {
	b := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.holders[b] = 1
	return b
}

// drop takes a block out of a table.
func (p *blockPool) drop(b int32) {
	if p.holders[b]--; p.holders[b] == 0 {
		p.free = append(p.free, b)
	}
}
