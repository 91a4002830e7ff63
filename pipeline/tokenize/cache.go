package tokenize

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
)

// cache remembers the ids of pieces. It is bounded: cacheShards times cacheWords pieces of at most cacheBytes bytes. A shard that is full
// starts again empty, which costs less than keeping an order and forgets rare words as well as common ones for a moment only.
type cache struct {
	seed   maphash.Seed
	shards [cacheShards]shard
}

const (
	cacheShards = 16
	cacheWords  = 2048
	cacheBytes  = 128
)

type shard struct {
	sync.RWMutex
	words map[string][]int32
}

func newCache() *cache {
	return &cache{seed: maphash.MakeSeed()}
}

func (c *cache) shard(piece string) *shard {
	return &c.shards[maphash.String(c.seed, piece)%cacheShards]
}

// get appends the ids of piece to dst if they are known.
func (c *cache) get(dst []int32, piece string) ([]int32, bool) {
	if len(piece) > cacheBytes {
		return dst, false
	}
	s := c.shard(piece)
	s.RLock()
	ids, ok := s.words[piece]
	s.RUnlock()
	return append(dst, ids...), ok
}

// put remembers a copy of piece, which may be part of a large prompt, and of its ids.
func (c *cache) put(piece string, ids []int32) {
	if len(piece) > cacheBytes {
		return
	}
	s := c.shard(piece)
	s.Lock()
	if s.words == nil || len(s.words) >= cacheWords {
		s.words = make(map[string][]int32)
	}
	s.words[strings.Clone(piece)] = slices.Clone(ids)
	s.Unlock()
}
