package engine

import (
	"cmp"
	"fmt"
	"slices"
)

// branches are the caches of a sequence's beams in one model. The beams are a
// tree: what two of them begin with is held in blocks that they share, and is fed
// once.
type branches struct {
	own    *cache   // the lane's: it has the prompt
	others []*cache // made when they are needed
}

// node is a beam whose continuations are to be scored.
type node struct {
	tokens []int32 // of the sequence, to the beam's last one
	path   *path   // that it is on
}

// path is a sequence of the tree that one cache is to hold.
type path struct {
	tokens []int32
	rows   int // of its last tokens, of which the logits are wanted

	cache  *cache
	source *cache // has the first held tokens; nil: nothing does
	held   int
	past   int // tokens that the pass need not feed: held, or more that an earlier path brings
	from   int // 1 + the number of that path
}

// logits are those after a node's last token. They are valid until the model's
// next pass.
func (n *node) logits() []float32 {
	return n.path.cache.row(len(n.tokens) - len(n.path.tokens) - 1)
}

// all are the caches.
func (b *branches) all() []*cache {
	if b.own == nil {
		return nil
	}
	return append([]*cache{b.own}, b.others...)
}

// plan finds paths to all nodes, such that each node is on one of them, and what
// of each path a cache or an earlier path has.
func (b *branches) plan(nodes []*node) []*path {
	order := slices.Clone(nodes)
	slices.SortStableFunc(order, func(a, b *node) int { return cmp.Compare(len(b.tokens), len(a.tokens)) })
	var paths []*path
	for _, n := range order {
		at := slices.IndexFunc(paths, func(p *path) bool { return common(p.tokens, n.tokens) == len(n.tokens) })
		if at < 0 {
			at = len(paths)
			paths = append(paths, &path{tokens: n.tokens})
		}
		n.path = paths[at]
		n.path.rows = max(n.path.rows, len(n.path.tokens)-len(n.tokens)+1)
	}
	caches := b.all()
	for i, p := range paths {
		most := len(p.tokens) - p.rows
		for _, c := range caches {
			if n := min(c.begins(p.tokens), most); n > p.held {
				p.source, p.held = c, n
			}
		}
		p.past = p.held
		for j, earlier := range paths[:i] {
			if n := min(common(earlier.tokens, p.tokens), most); n > p.past {
				p.past, p.from = n, j+1
			}
		}
	}
	return paths
}

// settle gives every path a cache that holds what there is of it. Of those that are
// on no path it empties what is not to be kept.
func (b *branches) settle(paths []*path, keep func(*cache) bool) error {
	used := map[*cache]bool{}
	for _, p := range paths {
		if p.source != nil && !used[p.source] {
			p.cache = p.source
			used[p.source] = true
		}
	}
	sources := map[*cache]bool{}
	for _, p := range paths {
		if p.cache == nil && p.source != nil {
			sources[p.source] = true
		}
	}
	for _, p := range paths {
		if p.cache != nil {
			continue
		}
		c, err := b.free(func(c *cache) bool { return !used[c] && !sources[c] && (c.held() == 0 || !keep(c)) })
		if err != nil {
			return err
		}
		used[c], p.cache = true, c
		if p.source == nil {
			c.truncate(0)
		} else if err := c.share(p.source, p.held); err != nil {
			return err
		}
	}
	for _, c := range b.all() {
		if !used[c] && !keep(c) {
			c.truncate(0)
		}
	}
	for _, p := range paths {
		p.cache.rollback(p.held)
	}
	return nil
}

// free is a cache that may be overwritten, or a new one.
func (b *branches) free(that func(*cache) bool) (*cache, error) {
	all := b.all()
	if at := slices.IndexFunc(all, that); at >= 0 {
		return all[at], nil
	}
	c, err := newCache(b.own.model)
	if err != nil {
		return nil, err
	}
	c.input = b.own.input
	b.others = append(b.others, c)
	return c, nil
}

// branch readies caches for the nodes, with room for what is to be fed. It
// reports false where there is none.
func (e *Engine) branch(b *branches, nodes []*node, keep func(*cache) bool) ([]*path, bool, error) {
	paths := b.plan(nodes)
	if err := b.settle(paths, keep); err != nil {
		return nil, false, fmt.Errorf("share the caches of %d beams: %w", len(paths), err)
	}
	for _, p := range paths {
		if !e.reserve(p.cache, p.held, len(p.tokens)-p.held) {
			return nil, false, nil
		}
	}
	return paths, true, nil
}
