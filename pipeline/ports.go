package pipeline

import (
	"context"
	"time"
)

// Decoder is one model, ready to extend sequences. It is used by one goroutine
// at a time.
//
// A slot is the KV cache of one sequence. Rolling a sequence back is passing a
// smaller past: what lies behind it is overwritten.
type Decoder interface {
	// Vocab is the number of logits per position.
	Vocab() int
	// Context is the largest number of tokens that a slot can hold.
	Context() int
	// Alloc reserves a slot; Free gives it back.
	Alloc() (slot int, err error)
	Free(slot int)
	// Copy makes slot dst hold the first n tokens that slot src holds.
	Copy(dst, src, n int) error
	// Forward feeds tokens[i], the same number S >= 1 for every lane i, to
	// slots[i] behind its first past[i] tokens. The logits of lane i's token s
	// are at [(i*S+s)*Vocab : (i*S+s+1)*Vocab]. They belong to the decoder and
	// are valid until its next Forward.
	Forward(ctx context.Context, slots, past []int, tokens [][]int32) ([]float32, error)
	// Close frees the caches. The model that the decoder came from stays.
	Close() error
}

// Delivery is one shard in a worker's hands. It is kept alive on the queue
// until it is settled by exactly one of Ack, Retry, Release and Reject.
type Delivery interface {
	Key() string  // see Key
	Data() []byte // what was published
	Attempt() int // 1 for the first delivery
	// Ack removes the shard from the queue; it returns once that is durable.
	Ack(ctx context.Context) error
	// Retry gives the shard back, to be delivered after delay.
	Retry(ctx context.Context, delay time.Duration) error
	// Release gives the shard back at once, without counting the attempt.
	Release(ctx context.Context) error
	// Reject sets the shard aside with the reason and removes it.
	Reject(ctx context.Context, reason error) error
}

// Source hands out shards one at a time.
type Source interface {
	// Next waits for a shard. It returns ctx's error when ctx ends first.
	Next(ctx context.Context) (Delivery, error)
}

// Publisher puts shards on the queue.
type Publisher interface {
	// Publish returns fresh = false when the shard is already on the queue.
	Publish(ctx context.Context, key string, data []byte) (fresh bool, err error)
}
