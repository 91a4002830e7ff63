package engine

import (
	"fmt"
	"slices"
)

// DefaultPassTokens is how many tokens a pass feeds at most, unless the settings
// say otherwise. It bounds for how long sequences that decode wait for the
// prompts of others, and the memory of a pass.
const DefaultPassTokens = 256

// leastChunk is how many tokens of prompts a pass may feed however many it
// scores, so that waiting sequences get on.
const leastChunk = 16

// chunk is what a pass feeds of a waiting sequence's prompt.
type chunk struct {
	lane  *lane
	cache *cache
	to    int // of the lane's tokens, those up to here
}

// add puts the chunk into a pass. Nobody reads its logits.
func (c chunk) add(p *pass) {
	p.add(c.cache, c.lane.tokens[:c.to], c.cache.held(), 0, &c.lane.fed)
}

// schedule decides what this step's passes are over: the sequences that decode,
// as far as the target's cache has room for their loop, and beside them chunks of
// the waiting prompts.
func (e *Engine) schedule() error {
	score := 0
	if e.settings.Beams == nil { // beams make room when it is known where they fork
		if err := e.makeRoom(); err != nil {
			return err
		}
	}
	for _, l := range e.batch {
		score += e.scores(l)
	}
	if err := e.fill(e.settings.PassTokens-score, e.settings.PassTokens-2*len(e.batch)); err != nil {
		return err
	}
	// Where nothing can be done and the first does not fit, what the others hold
	// is in the way.
	for len(e.batch)+len(e.scoreChunks)+len(e.draftChunks) == 0 && len(e.waiting) > 0 && !slices.ContainsFunc(e.waiting, (*lane).ready) {
		first := e.waiting[0]
		if other := e.youngest(func(l *lane) bool { return l.joined }); other != nil {
			e.putBack(other)
		} else if first.drafts && first.draft() != nil {
			first.drafts = false // the target may have room
		} else {
			e.waiting = e.waiting[1:]
			if err := first.fail(e, first.tooLong()); err != nil {
				return err
			}
		}
		if err := e.fill(e.settings.PassTokens, e.settings.PassTokens); err != nil {
			return err
		}
	}
	return nil
}

// tooLong is the error of a sequence that does not fit into the cache alone.
func (l *lane) tooLong() error {
	return rowError{fmt.Errorf("the sequence of %d tokens does not fit into the target's cache, which has room for %d; give it more memory", len(l.tokens), l.target.model.Capacity())}
}

// makeRoom reserves what the target is fed in the next loop, for the oldest
// sequences first. Where that fails the youngest is put back: what it has decoded
// stays, and its cache is filled again when there is room. A row's logits depend
// on its tokens alone, and its uniforms on their positions, so that it goes on
// as if nothing had happened.
func (e *Engine) makeRoom() error {
	for i := 0; i < len(e.batch); {
		l := e.batch[i]
		if e.reserve(l.target, len(l.tokens)-1, e.most(l)+1) {
			i++
			continue
		}
		if e.youngest(func(o *lane) bool { return o.joined && o != l }) != nil {
			e.putBack(e.youngest(func(o *lane) bool { return o.joined }))
			continue
		}
		e.batch = e.batch[:0]
		if err := l.fail(e, l.tooLong()); err != nil {
			return err
		}
	}
	return nil
}

// makeDraftRoom reserves what drafting feeds in this loop. Like makeRoom it puts
// back the youngest; a sequence whose drafts do not fit alone drafts nothing.
func (e *Engine) makeDraftRoom() {
	for i := 0; i < len(e.batch); {
		l := e.batch[i]
		c, n := l.draft(), len(l.tokens)
		if c == nil || l.most() == 0 || e.reserve(c, c.held(), n-c.held()+l.most()-1) {
			i++
			continue
		}
		holds := func(o *lane) bool { return o.joined && o != l && o.draft().held() > 0 }
		if e.youngest(holds) == nil {
			l.policy.Room = 0
			i++
			continue
		}
		e.putBack(e.youngest(func(o *lane) bool { return o == l || holds(o) }))
	}
}

// reserve makes room in a cache; it takes the blocks of free lanes for that, of
// those that ended first before the others.
func (e *Engine) reserve(c *cache, past, n int) bool {
	for !c.reserve(past, n) {
		var idle *cache
		age := int64(0)
		for _, l := range e.lanes {
			for _, other := range l.caches() {
				if !l.joined && other.model == c.model && other.held() > 0 && (idle == nil || l.age < age) {
					idle, age = other, l.age
				}
			}
		}
		if idle == nil {
			return false
		}
		idle.truncate(0)
	}
	return true
}

// youngest is the youngest sequence in hand of which that holds; nil: none.
func (e *Engine) youngest(that func(*lane) bool) (youngest *lane) {
	for _, l := range e.lanes {
		if l.taken && that(l) && (youngest == nil || l.age > youngest.age) {
			youngest = l
		}
	}
	return youngest
}

// putBack has a sequence give its blocks back and wait, before all that came
// after it. Nobody joins before another sequence has ended: who joined at once
// would soon be put back again.
func (e *Engine) putBack(l *lane) {
	for _, c := range l.caches() {
		c.truncate(0)
	}
	l.joined = false
	e.short = true
	e.putBacks++
	own := func(o *lane) bool { return o == l }
	e.batch, e.waiting = slices.DeleteFunc(e.batch, own), slices.DeleteFunc(e.waiting, own)
	fed := func(c chunk) bool { return c.lane == l }
	e.scoreChunks, e.draftChunks = slices.DeleteFunc(e.scoreChunks, fed), slices.DeleteFunc(e.draftChunks, fed)
	at, _ := slices.BinarySearchFunc(e.waiting, l.age, func(o *lane, age int64) int { return int(o.age - age) })
	e.waiting = slices.Insert(e.waiting, at, l)
}

// fill chooses chunks of the waiting prompts, in their order, up to so many
// tokens for the target and for the draft.
func (e *Engine) fill(target, draft int) error {
	e.scoreChunks, e.draftChunks = e.scoreChunks[:0], e.draftChunks[:0]
	target, draft = max(target, leastChunk), max(draft, leastChunk)
	for i, l := range e.waiting {
		if target <= 0 && draft <= 0 {
			return nil
		}
		if !l.joined {
			if e.short && len(e.batch) > 0 {
				return nil
			}
			if e.awaits(l, e.waiting[:i]) {
				continue
			}
			if joined, err := e.join(l); err != nil || !joined {
				return err
			}
		}
		if n := min(l.lacks(l.target), target); n > 0 {
			e.scoreChunks = append(e.scoreChunks, chunk{l, l.target, l.target.held() + n})
			target -= n
		}
		if n := min(l.draftLacks(), draft); n > 0 {
			e.draftChunks = append(e.draftChunks, chunk{l, l.draft(), l.draft().held() + n})
			draft -= n
		}
	}
	return nil
}

// awaits reports whether an earlier sequence is being fed what a sequence can
// share with it: then that is better waited for than fed twice.
func (e *Engine) awaits(l *lane, earlier []*lane) bool {
	if len(earlier) == 0 {
		return false
	}
	_, target := e.longest(l, (*lane).targets)
	draft := 0
	if l.draft() != nil {
		_, draft = e.longest(l, (*lane).draft)
	}
	return slices.ContainsFunc(earlier, func(o *lane) bool {
		n := common(o.context(), l.context())
		return n > target || o.draftLacks() > 0 && n > draft
	})
}

// longest is the cache that holds most of a sequence's context, and how much of
// it; its own where others hold no more.
func (e *Engine) longest(l *lane, of func(*lane) *cache) (best *cache, held int) {
	best, held = of(l), of(l).begins(l.context())
	for _, o := range e.lanes {
		if n := of(o).begins(l.context()); n > held {
			best, held = of(o), n
		}
	}
	return best, held
}

// join gives a sequence its caches: what others hold of its beginning is shared,
// and there is room for the rest of it. It reports false where there is none; the
// sequence waits on.
func (e *Engine) join(l *lane) (bool, error) {
	l.joined = true // so that its own blocks are not taken from it
	ok, err := e.begin(l, (*lane).targets)
	switch c := l.draft(); {
	case !ok || c == nil:
	case l.drafts:
		ok, err = e.begin(l, (*lane).draft)
	default:
		c.truncate(c.begins(l.context()))
	}
	if !ok {
		for _, c := range l.caches() {
			c.truncate(0)
		}
		l.joined = false
	}
	return ok, err
}

// begin has one of the lane's caches hold what it can of the context, with room
// for the rest.
func (e *Engine) begin(l *lane, of func(*lane) *cache) (bool, error) {
	c := of(l)
	if best, n := e.longest(l, of); best != c {
		if err := c.share(best, n); err != nil {
			return false, fmt.Errorf("share the cache of %d tokens: %w", n, err)
		}
	} else {
		c.truncate(n)
	}
	return e.reserve(c, c.held(), len(l.tokens)-c.held()), nil
}

// ready moves the sequences that have been prefilled from the line to the batch,
// the oldest first.
func (e *Engine) ready() {
	waiting := e.waiting[:0]
	for _, l := range e.waiting {
		if l.ready() {
			e.batch = append(e.batch, l)
		} else {
			waiting = append(waiting, l)
		}
	}
	e.waiting = waiting
	slices.SortFunc(e.batch, func(a, b *lane) int { return int(a.age - b.age) })
}
