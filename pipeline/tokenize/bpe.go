package tokenize

import (
	"encoding/json"
	"fmt"
	"sync"
	"unicode/utf8"
)

// bpe is byte pair encoding: the characters of a piece are merged pair by pair, the pair of the lowest rank first.
type bpe struct {
	vocabulary
	merges       map[uint64]merge // by left id << 32 | right id
	unk          int32            // -1: none
	unkName      string           // empty: unknown characters are dropped
	prefix       string           // before every character but the first of a piece
	suffix       string           // after the last character of a piece
	fuseUnk      bool
	byteFallback bool
	ignoreMerges bool // a piece that is a token is that token
	bytes        bool // pieces are raw text: write the bytes as characters first
	byteIDs      [256]int32
	plain        bool // byteIDs may be used: every byte's character is a token, and no prefix or suffix
	cache        *cache
	scratch      sync.Pool // of *merger
}

type merge struct{ rank, id int32 }

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

func newBPE(raw json.RawMessage) (model, error) {
	var c struct {
		Vocab        vocabulary `json:"vocab"`
		Merges       mergeList  `json:"merges"`
		Dropout      *float64   `json:"dropout"`
		Unk          *string    `json:"unk_token"`
		Prefix       string     `json:"continuing_subword_prefix"`
		Suffix       string     `json:"end_of_word_suffix"`
		FuseUnk      bool       `json:"fuse_unk"`
		ByteFallback bool       `json:"byte_fallback"`
		IgnoreMerges bool       `json:"ignore_merges"`
	}
	if err := require("model BPE", raw, "vocab", "merges"); err != nil {
		return nil, err
	}
	if err := read("model BPE", raw, &c); err != nil {
		return nil, err
	}
	if c.Dropout != nil && *c.Dropout != 0 {
		return nil, unsupported("model BPE", fmt.Sprintf("dropout %g", *c.Dropout), "it makes ids random; set it to null")
	}
	m := &bpe{vocabulary: c.Vocab, merges: make(map[uint64]merge, len(c.Merges)), unk: -1, prefix: c.Prefix, suffix: c.Suffix,
		fuseUnk: c.FuseUnk, byteFallback: c.ByteFallback, ignoreMerges: c.IgnoreMerges, cache: newCache()}
	m.scratch.New = func() any { return new(merger) }
	for i, p := range c.Merges {
		var ids [3]int32
		if len(p[1]) < len(c.Prefix) {
			return nil, fmt.Errorf("model BPE: merge %d: %q is shorter than the continuing_subword_prefix", i, p[1])
		}
		for k, token := range []string{p[0], p[1], p[0] + p[1][len(c.Prefix):]} {
			id, ok := c.Vocab[token]
			if !ok {
				return nil, fmt.Errorf("model BPE: merge %d of %q and %q: token %q is not in the vocabulary", i, p[0], p[1], token)
			}
			ids[k] = id
		}
		m.merges[pairKey(ids[0], ids[1])] = merge{int32(i), ids[2]}
	}
	if c.Unk != nil {
		m.unkName = *c.Unk
		if id, ok := c.Vocab[m.unkName]; ok {
			m.unk = id
		}
	}
	m.plain = c.Prefix == "" && c.Suffix == ""
	for b := range m.byteIDs {
		id, ok := c.Vocab[string(byteToChar[b])]
		m.byteIDs[b] = id
		m.plain = m.plain && ok
	}
	return m, nil
}

func (m *bpe) tokenize(dst []int32, piece string) ([]int32, error) {
	if out, ok := m.cache.get(dst, piece); ok {
		return out, nil
	}
	n := len(dst)
	w := m.scratch.Get().(*merger)
	defer m.scratch.Put(w)
	dst, err := m.encode(dst, piece, w)
	if err != nil {
		return nil, err
	}
	m.cache.put(piece, dst[n:])
	return dst, nil
}

func (m *bpe) encode(dst []int32, piece string, w *merger) ([]int32, error) {
	text := piece
	if m.bytes && (m.ignoreMerges || !m.plain) {
		text = mapBytes(piece)
	}
	if m.ignoreMerges {
		if id, ok := m.vocabulary[text]; ok {
			return append(dst, id), nil
		}
	}
	w.symbols = w.symbols[:0]
	if m.bytes && m.plain {
		for i := 0; i < len(piece); i++ {
			w.add(m.byteIDs[piece[i]])
		}
	} else if err := m.characters(text, w); err != nil {
		return nil, err
	}
	w.mergeAll(m.merges)
	for i := range w.symbols {
		if s := &w.symbols[i]; !s.gone {
			dst = append(dst, s.id)
		}
	}
	return dst, nil
}

// characters makes the first symbols of a piece.
func (m *bpe) characters(text string, w *merger) error {
	pending := false // an unknown token is to be written
	var ids [16]int32
	for from := 0; from < len(text); {
		_, n := utf8.DecodeRuneInString(text[from:])
		to := from + n
		s := text[from:to]
		if from > 0 && m.prefix != "" {
			s = m.prefix + s
		}
		if to == len(text) && m.suffix != "" {
			s += m.suffix
		}
		from = to
		if id, ok := m.vocabulary[s]; ok {
			if pending {
				w.add(m.unk)
				pending = false
			}
			w.add(id)
			continue
		}
		if m.byteFallback {
			if bytes, ok := m.fallback(ids[:0], s); ok {
				for _, id := range bytes {
					w.add(id) // as in the Rust implementation, before a pending unknown token
				}
				continue
			}
		}
		if m.unkName != "" {
			if m.unk < 0 {
				return fmt.Errorf("model BPE: %q is not in the vocabulary, and neither is unk_token %.100q", s, m.unkName)
			}
			if pending && !m.fuseUnk {
				w.add(m.unk)
			}
			pending = true
		}
	}
	if pending {
		w.add(m.unk)
	}
	return nil
}

// merger is the working memory of one piece: its symbols as a linked list and a heap of the merges that are possible.
type merger struct {
	symbols []symbol
	heap    []candidate
}

type symbol struct {
	id         int32
	prev, next int32 // -1: none
	gone       bool  // merged into the one before
}

// candidate is the merge of the symbol at pos with the one after it into id.
type candidate struct{ rank, pos, id int32 }

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.pos < d.pos
}

func (w *merger) add(id int32) {
	n := int32(len(w.symbols))
	if n > 0 {
		w.symbols[n-1].next = n
	}
	w.symbols = append(w.symbols, symbol{id: id, prev: n - 1, next: -1})
}

// mergeAll merges until no two neighbours can be. Candidates are not taken out of the heap when a neighbour of theirs is merged; those
// that no longer stand for the merge they were made for are dropped when their turn comes.
func (w *merger) mergeAll(merges map[uint64]merge) {
	w.heap = w.heap[:0]
	for i := 0; i+1 < len(w.symbols); i++ {
		w.consider(merges, int32(i))
	}
	for len(w.heap) > 0 {
		top := w.pop()
		left := &w.symbols[top.pos]
		if left.gone || left.next < 0 {
			continue
		}
		right := &w.symbols[left.next]
		if m, ok := merges[pairKey(left.id, right.id)]; !ok || m.id != top.id {
			continue
		}
		left.id, left.next = top.id, right.next
		right.gone = true
		if right.next >= 0 {
			w.symbols[right.next].prev = top.pos
		}
		if left.prev >= 0 {
			w.consider(merges, left.prev)
		}
		if left.next >= 0 {
			w.consider(merges, top.pos)
		}
	}
}

// consider pushes the merge of the symbol at pos with the one after it, if there is such a merge.
func (w *merger) consider(merges map[uint64]merge, pos int32) {
	s := w.symbols[pos]
	m, ok := merges[pairKey(s.id, w.symbols[s.next].id)]
	if !ok {
		return
	}
	c := candidate{m.rank, pos, m.id}
	h := append(w.heap, c)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !c.before(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = c
	w.heap = h
}

func (w *merger) pop() candidate {
	h := w.heap
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	i := 0
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].before(h[down]) {
			down++
		}
		if !h[down].before(last) {
			break
		}
		h[i] = h[down]
		i = down
	}
	if len(h) > 0 {
		h[i] = last
	}
	w.heap = h
	return top
}
