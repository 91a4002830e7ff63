package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	maxInFlight   = 1 << 16 // shards of one run in the hands of all workers together
	maxDeliveries = 1000    // of a shard, give-backs included: behind the count of attempts, for workers that die before they count
	idleRun       = 24 * time.Hour
	openTries     = 10

	metaPriority = "draftmill-priority"

	codeOverlap jetstream.ErrorCode = 10100 // another consumer of the work queue has these subjects
)

// MaxPriority bounds the priority of a run, which is 0 where none was chosen, and -MaxPriority at least.
const MaxPriority = 9

// run is a run's consumer as the server describes it. All workers share it.
type run struct {
	scope    string // "<job>/<run>"
	priority int
	created  time.Time
	ackWait  time.Duration
	waiting  int           // shards that nobody has
	inHand   int           // shards that workers have, or had when they died
	now      time.Time     // by the server's clock
	idle     time.Duration // since the last delivery or acknowledgement, by the server's clock alone
}

// scopeOf is what a shard's key has before its last two parts, or before its last where it has three.
func scopeOf(key string) string {
	parts := strings.SplitN(key, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// consumerOf names the consumer of a scope: names in keys have no "=".
func consumerOf(scope string) string { return strings.ReplaceAll(scope, "/", "=") }

// Prioritize sets the priority of a run for what is published there from now on, and for what is queued already.
// Workers take shards of the highest priority first.
func (q *Queue) Prioritize(ctx context.Context, scope string, priority int) error {
	if priority < -MaxPriority || priority > MaxPriority {
		return fmt.Errorf("the priority of job %s is %d; want %d to %d", scope, priority, -MaxPriority, MaxPriority)
	}
	q.mu.Lock()
	q.priorities[scope] = priority
	delete(q.opened, scope)
	q.mu.Unlock()
	return q.ask(ctx, func(ctx context.Context) error { return q.openRun(ctx, scope) })
}

// openRun makes the consumer of a run, or sets right the one that is there. It costs nothing once that is done.
func (q *Queue) openRun(ctx context.Context, scope string) error {
	q.mu.Lock()
	done := q.opened[scope]
	priority, chosen := q.priorities[scope]
	q.mu.Unlock()
	if done {
		return nil
	}
	want := jetstream.ConsumerConfig{
		Durable:       consumerOf(scope),
		Description:   "draftmill: workers",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       q.ackWait,
		MaxDeliver:    q.maxDeliver,
		MaxAckPending: maxInFlight,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		FilterSubject: within(shardSubjects, scope),
		Metadata:      map[string]string{metaPriority: strconv.Itoa(priority)},
	}
	asked := time.Now()
	have, err := q.shards.Consumer(ctx, want.Durable)
	if err == nil {
		info := have.CachedInfo()
		c := info.Config
		late := info.NumAckPending > 0 && q.setBack(scope, asked, info.TimeStamp)
		if !chosen {
			want.Metadata[metaPriority] = c.Metadata[metaPriority]
		}
		if late {
			q.log.Warn("queue: the server's clock was set back; what workers have in hand is handed out anew", "server", q.server, "run", scope)
			if err := q.closeRun(ctx, scope); err != nil {
				return err
			}
		} else if q.sight(scope, info.TimeStamp); c.AckWait == want.AckWait && c.MaxDeliver == want.MaxDeliver && c.Metadata[metaPriority] == want.Metadata[metaPriority] {
			q.markOpen(scope)
			return nil
		}
	} else if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("look at the consumer %s of stream %s: %w", want.Durable, streamName, err)
	}
	for range openTries {
		if have, err = q.shards.CreateOrUpdateConsumer(ctx, want); err == nil {
			q.sight(scope, have.CachedInfo().TimeStamp)
		}
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.Code != 500 || !pause(ctx, reconnectWait) {
			break // else the server is still removing the files of a consumer of that name
		}
	}
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode == codeOverlap:
		return &setupError{text: fmt.Sprintf("the stream %s has a consumer that draftmill did not make and that takes its shards; remove it (nats consumer rm %s)", streamName, streamName), cause: err}
	case err != nil:
		return fmt.Errorf("make the consumer %s of stream %s: %w", want.Durable, streamName, err)
	}
	q.markOpen(scope)
	return nil
}

// A sighting is the time of a server at a time of ours, which cannot be set.
type sighting struct{ server, ours time.Time }

// setBack says that the clock of the server that leads a run's consumer has fallen behind by more than AckWait since it
// was seen last: asked is when this request for its time began. The server measures AckWait by that clock. What a worker
// had in hand when it died it would hand out again as much later as it was set back.
func (q *Queue) setBack(scope string, asked, server time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	was, seen := q.clocks[scope]
	return seen && asked.Sub(was.ours)-server.Sub(was.server) > q.ackWait
}

// sight notes the time of the server that leads a run's consumer. One that was set back is noted once its consumer is gone.
func (q *Queue) sight(scope string, server time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clocks[scope] = sighting{server, time.Now()}
}

func (q *Queue) markOpen(scope string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opened[scope] = true
}

// forgetRuns has every run looked at again before the next shard is published there.
func (q *Queue) forgetRuns() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.opened)
}

func (q *Queue) forgetRun(scope string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.opened, scope)
}

// runs lists the runs within scope, "" for all: the highest priority first, of those the oldest.
func (q *Queue) runs(ctx context.Context, scope string) ([]run, error) {
	list := q.shards.ListConsumers(ctx)
	var all []run
	for info := range list.Info() { // to its end, or its goroutine stays
		of := strings.ReplaceAll(info.Name, "=", "/")
		if !strings.Contains(of, "/") || scope != "" && of != scope && !strings.HasPrefix(of, scope+"/") {
			continue
		}
		r := run{scope: of, created: info.Created, ackWait: info.Config.AckWait, waiting: int(info.NumPending), inHand: info.NumAckPending, now: info.TimeStamp}
		r.priority, _ = strconv.Atoi(info.Config.Metadata[metaPriority]) // 0 where there is none
		last := info.Created
		for _, s := range []jetstream.SequenceInfo{info.Delivered, info.AckFloor} {
			if s.Last != nil && s.Last.After(last) {
				last = *s.Last
			}
		}
		r.idle = info.TimeStamp.Sub(last)
		all = append(all, r)
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("list the consumers of stream %s: %w", streamName, err)
	}
	slices.SortFunc(all, func(a, b run) int {
		return cmp.Or(b.priority-a.priority, a.created.Compare(b.created), strings.Compare(a.scope, b.scope))
	})
	return all, nil
}

// closeRun removes the consumer of a run; it is no error when it is gone.
func (q *Queue) closeRun(ctx context.Context, scope string) error {
	q.forgetRun(scope)
	err := q.shards.DeleteConsumer(ctx, consumerOf(scope))
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("remove the consumer %s of stream %s: %w", consumerOf(scope), streamName, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.clocks, scope)
	return nil
}

// Finish removes the consumer of a run that is complete, and those of runs that ended unseen: nothing was queued there
// and nothing happened for a day.
func (q *Queue) Finish(ctx context.Context, scope string) error {
	var asked time.Time
	var all []run
	err := q.ask(ctx, func(ctx context.Context) (err error) {
		asked = time.Now()
		all, err = q.runs(ctx, "")
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.scope == scope && r.inHand > 0 && q.setBack(scope, asked, r.now) { // it would stay until the clock has caught up
			if err := q.Purge(ctx, scope); err != nil {
				return err
			}
			r.waiting, r.inHand = 0, 0
		}
		if r.waiting+r.inHand > 0 || r.scope != scope && r.idle < idleRun {
			continue
		}
		if err := q.ask(ctx, func(ctx context.Context) error { return q.closeEmpty(ctx, r.scope) }); err != nil {
			return err
		}
	}
	return nil
}

// closeEmpty removes the consumer of a run unless something is queued there: what was published this moment the consumer
// does not know of yet.
func (q *Queue) closeEmpty(ctx context.Context, scope string) error {
	info, err := q.shards.Info(ctx, jetstream.WithSubjectFilter(within(shardSubjects, scope)))
	if err != nil {
		return fmt.Errorf("look at what is queued of %s: %w", scope, err)
	}
	if len(info.State.Subjects) > 0 {
		return nil
	}
	return q.closeRun(ctx, scope)
}

// adopt hands out at once what a process held that is dead for certain, without waiting for AckWait: each run that has
// shards in hand gets a new consumer.
func (q *Queue) adopt(ctx context.Context) error {
	var all []run
	err := q.ask(ctx, func(ctx context.Context) (err error) {
		all, err = q.runs(ctx, "")
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.inHand == 0 {
			continue
		}
		q.mu.Lock()
		q.priorities[r.scope] = r.priority
		q.mu.Unlock()
		err := q.ask(ctx, func(ctx context.Context) error { return q.closeRun(ctx, r.scope) })
		if err == nil {
			err = q.ask(ctx, func(ctx context.Context) error { return q.openRun(ctx, r.scope) })
		}
		if err != nil {
			return fmt.Errorf("take over the shards of a dead process: %w", err)
		}
	}
	return nil
}
