package queue

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

const progressBuffer = 1024 // events that a slow watcher may lag behind

// Report sends a small progress event of a job, or of "<job>/<run>", to whoever watches. Nothing is stored or confirmed: events show, they
// do not count. data is not kept.
func (q *Queue) Report(scope string, data []byte) error {
	if err := ValidateScope(scope); err != nil {
		return err
	}
	subject := progressSubject + strings.ReplaceAll(scope, "/", ".")
	if err := q.nc.Publish(subject, data); err != nil {
		return fmt.Errorf("report progress of job %s: %w", scope, err)
	}
	return nil
}

// Watch returns the events that are reported for the same scope from now on. The channel is closed when ctx ends or the queue
// is closed; a reader that lags far behind misses events. The server knows of the watcher when Watch returns.
func (q *Queue) Watch(ctx context.Context, scope string) (<-chan []byte, error) {
	if err := ValidateScope(scope); err != nil {
		return nil, err
	}
	subject := progressSubject + strings.ReplaceAll(scope, "/", ".")
	in := make(chan *nats.Msg, progressBuffer)
	sub, err := q.nc.ChanSubscribe(subject, in)
	if err != nil {
		return nil, fmt.Errorf("watch job %s: %w", scope, err)
	}
	if err := q.ask(ctx, q.nc.FlushWithContext); err != nil {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("watch job %s: %w", scope, err)
	}
	out := make(chan []byte)
	started := q.start(func() {
		defer close(out)
		defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection, where there is nothing to end
		for {
			select {
			case m := <-in:
				select {
				case out <- m.Data:
				case <-ctx.Done():
					return
				case <-q.life.Done():
					return
				}
			case <-ctx.Done():
				return
			case <-q.life.Done():
				return
			}
		}
	})
	if !started {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("watch job %s: %w", scope, ErrClosed)
	}
	return out, nil
}
