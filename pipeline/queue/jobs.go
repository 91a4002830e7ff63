package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// JobState is what the queue knows of one run of a job.
type JobState struct {
	Scope    string `json:"scope"`     // "<job>/<run>"
	Queued   int    `json:"queued"`    // shards that wait or are in a worker's hands
	Dead     int    `json:"set_aside"` // dead letters
	InHand   int    `json:"in_hand"`   // of the queued ones, those in a worker's hands
	Priority int    `json:"priority"`
}

// Jobs lists the runs that have shards or dead letters on the server, by name: of one job, or of one run, or of all when scope
// is "". It costs the same however many shards there are.
func (q *Queue) Jobs(ctx context.Context, scope string) ([]JobState, error) {
	if scope != "" {
		if err := ValidateScope(scope); err != nil {
			return nil, err
		}
	}
	var queued []run
	var dead map[string]uint64
	err := q.ask(ctx, func(ctx context.Context) (err error) {
		if queued, err = q.runs(ctx, scope); err != nil {
			return err
		}
		var info *jetstream.StreamInfo
		if info, err = q.dead.Info(ctx, jetstream.WithSubjectFilter(within(deadSubjects, scope))); err == nil {
			dead = info.State.Subjects
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at the queue of %s: %w", nameOf(scope), unavailable(err))
	}
	states := map[string]*JobState{}
	of := func(scope string) *JobState {
		if states[scope] == nil {
			states[scope] = &JobState{Scope: scope}
		}
		return states[scope]
	}
	for _, r := range queued {
		if n := r.waiting + r.inHand; n > 0 {
			s := of(r.scope)
			s.Queued, s.InHand, s.Priority = n, r.inHand, r.priority
		}
	}
	for subject, letters := range dead {
		of(scopeOf(keyOf(deadSubjects, subject))).Dead += int(letters)
	}
	var list []JobState
	for _, scope := range slices.Sorted(maps.Keys(states)) {
		list = append(list, *states[scope])
	}
	return list, nil
}

// Oldest is the age of the oldest shard on the queue, of any job; 0 when there is none.
func (q *Queue) Oldest(ctx context.Context) (time.Duration, error) {
	var info *jetstream.StreamInfo
	err := q.ask(ctx, func(ctx context.Context) (err error) {
		info, err = q.shards.Info(ctx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("look at the queue: %w", unavailable(err))
	}
	if info.State.Msgs == 0 {
		return 0, nil
	}
	return max(0, time.Since(info.State.FirstTime)), nil
}

// Connected says whether the server is reached at this moment.
func (q *Queue) Connected() bool { return q.nc.IsConnected() }

// Retry puts the dead letters within scope back on the queue, with no attempts counted, and returns how many. A letter
// is removed after its shard is queued: when Retry is interrupted, do it again.
func (q *Queue) Retry(ctx context.Context, scope string) (int, error) {
	if err := ValidateScope(scope); err != nil {
		return 0, err
	}
	n := 0
	err := q.eachDeadLetter(ctx, scope, func(m *jetstream.RawStreamMsg) error {
		key, object := keyOf(deadSubjects, m.Subject), m.Header.Get(headerPayload)
		data := m.Data
		if object != "" {
			var err error
			if data, err = q.payload(ctx, object); err != nil {
				return fmt.Errorf("read the payload of %s: %w", key, err)
			}
		}
		if _, err := q.Publish(ctx, key, data); err != nil {
			return err
		}
		if err := q.ask(ctx, func(ctx context.Context) error { return deleteMessage(ctx, q.dead, m.Sequence) }); err != nil {
			return fmt.Errorf("remove the dead letter %s: %w", key, err)
		}
		n++
		if object == "" {
			return nil
		}
		return q.ask(ctx, func(ctx context.Context) error { return q.dropPayload(ctx, object) })
	})
	if err != nil {
		return n, fmt.Errorf("retry the dead letters of job %s: %w", scope, err)
	}
	return n, nil
}
