package ort

import (
	"context"
	"sync"

	yort "github.com/yalue/onnxruntime_go"
)

// canceller terminates the runs that are made with its options when the
// context that it was armed with ends. A registration is kept from one run to
// the next of the same context, so that a step pays for two comparisons only.
type canceller struct {
	options *yort.RunOptions
	done    <-chan struct{} // of the armed context
	stop    func() bool     // withdraws the registration; nil when none

	mu     sync.Mutex
	closed bool
	armed  int // number of the registration that may terminate; older ones may not
}

// arm prepares for a run under ctx; it returns ctx's error if it has ended.
func (c *canceller) arm(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() == c.done {
		return nil
	}
	if err := c.disarm(); err != nil {
		return err
	}
	if c.done = ctx.Done(); c.done == nil {
		return nil
	}
	number := c.armed
	c.stop = context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.armed == number && !c.closed {
			c.terminate()
		}
	})
	return nil
}

// close terminates the run in progress and all that follow.
func (c *canceller) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.terminate()
	}
}

// disarm withdraws the registration. After it no earlier context can terminate
// a run, and the options are fit for the next one.
func (c *canceller) disarm() error {
	if c.stop != nil {
		c.stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed++
	c.done, c.stop = nil, nil
	if c.closed {
		return nil
	}
	return c.options.UnsetTerminate()
}

// terminate makes the run in progress, if any, return as soon as its current
// operators are done.
func (c *canceller) terminate() {
	// Setting a flag cannot fail while the options exist.
	if err := c.options.Terminate(); err != nil {
		panic("ort: terminate: " + err.Error())
	}
}
