package pipeline

import (
	"context"
	"time"
)

// Delivery is one shard in a worker's hands. It is kept alive on the queue
// until it is settled by exactly one of Ack, Retry, Release and Reject.
type Delivery interface {
	Key() string  // see Key
	Data() []byte // what was published
	Attempt() int // 1 for the first delivery
	// Trace is ctx with the span in which the shard was published, if there is one.
	Trace(ctx context.Context) context.Context
	// Advance says that the worker gets on with the shard; one that hangs loses
	// it to another worker.
	Advance()
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
