package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// JobState is what the queue knows of one run of a job.
type JobState struct {
	Scope  string `json:"scope"`     // "<job>/<run>"
	Queued int    `json:"queued"`    // shards that wait or are in a worker's hands
	Dead   int    `json:"set_aside"` // dead letters
}

// Jobs lists the runs that have shards or dead letters on the server, by name: of one job, or of all when job is "".
func (q *Queue) Jobs(ctx context.Context, job string) ([]JobState, error) {
	queued, err := q.Queued(ctx, job)
	if err != nil {
		return nil, err
	}
	dead, err := q.DeadLetters(ctx, job)
	if err != nil {
		return nil, err
	}
	states := map[string]*JobState{}
	of := func(key string) *JobState {
		parts := strings.SplitN(key, "/", 3)
		scope := strings.Join(parts[:min(2, len(parts))], "/")
		if states[scope] == nil {
			states[scope] = &JobState{Scope: scope}
		}
		return states[scope]
	}
	for _, key := range queued {
		of(key).Queued++
	}
	for _, letter := range dead {
		of(letter.Key).Dead++
	}
	var list []JobState
	for _, scope := range slices.Sorted(maps.Keys(states)) {
		list = append(list, *states[scope])
	}
	return list, nil
}

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
			if data, err = q.payloads.GetBytes(ctx, object); err != nil {
				return fmt.Errorf("read the payload of %s: %w", key, err)
			}
		}
		if _, err := q.Publish(ctx, key, data); err != nil {
			return err
		}
		if err := q.dead.DeleteMsg(ctx, m.Sequence); err != nil {
			return fmt.Errorf("remove the dead letter %s: %w", key, err)
		}
		n++
		if object == "" {
			return nil
		}
		return q.dropPayload(ctx, object)
	})
	if err != nil {
		return n, fmt.Errorf("retry the dead letters of job %s: %w", scope, err)
	}
	return n, nil
}
