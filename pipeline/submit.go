package pipeline

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/draftmill/draftmill/storage"
)

// Submitter puts one job on the queue and sees it through.
type Submitter struct {
	Job       Job
	Place     Place
	Folder    *storage.Job
	Publisher Publisher
	// Rejected lists why shards of the job were set aside; may be nil.
	Rejected func(ctx context.Context) ([]string, error)
}

// Published counts what Publish found and did, in shards over all modes.
type Published struct {
	Rows      int64 // of the dataset
	Shards    int   // per mode
	Fresh     int   // put on the queue now
	Queued    int   // on the queue already
	Committed int   // committed already
}

// Publish cuts the rows into shards and puts every one that is not committed
// on the queue, the modes in turn, so that they run under like conditions. It
// holds one shard of the dataset at a time, and ends by writing the job's
// plan, which says when the job is complete.
//
// seen is called with every shard once it is queued, or found committed.
func (s *Submitter) Publish(ctx context.Context, rows Rows, seen func(m Mode, rows int, committed bool)) (Published, error) {
	var n Published
	shard := make([]storage.ShardRow, 0, s.Job.ShardRows)
	publish := func() error {
		defer func() { shard = shard[:0] }()
		return s.publishShard(ctx, &n, shard, seen)
	}
	for row, err := range s.Job.Prompts(rows) {
		if err != nil {
			return n, err
		}
		n.Rows++
		if shard = append(shard, row); len(shard) == s.Job.ShardRows {
			if err := publish(); err != nil {
				return n, err
			}
		}
	}
	if len(shard) > 0 {
		if err := publish(); err != nil {
			return n, err
		}
	}
	if n.Rows == 0 {
		return n, fmt.Errorf("the dataset %s has no rows", s.Job.Dataset.Name)
	}
	modes := make([]string, len(s.Job.Modes))
	for i, m := range s.Job.Modes {
		modes[i] = string(m)
	}
	return n, s.Folder.WritePlan(n.Shards, n.Rows, modes)
}

func (s *Submitter) publishShard(ctx context.Context, n *Published, rows []storage.ShardRow, seen func(Mode, int, bool)) error {
	shard := n.Shards
	n.Shards++
	for _, m := range s.Job.Modes {
		switch done, err := s.Folder.Committed(string(m), shard); {
		case err != nil:
			return err
		case done:
			n.Committed++
			seen(m, len(rows), true)
			continue
		}
		data, err := encodeShard(&s.Job, s.Place, m, shard, rows)
		if err != nil {
			return err
		}
		fresh, err := s.Publisher.Publish(ctx, Key(s.Job.Name, m, shard), data)
		if err != nil {
			return fmt.Errorf("publish shard %d of mode %s: %w", shard, m, err)
		}
		if fresh {
			n.Fresh++
		} else {
			n.Queued++
		}
		seen(m, len(rows), false)
	}
	return nil
}

// Wait returns when every shard of the plan is committed and the job's
// _SUCCESS is written. It looks again at every tick (a worker's report, say)
// and every second. When shards were set aside it waits for the others and
// returns an error that says why.
func (s *Submitter) Wait(ctx context.Context, tick <-chan struct{}) error {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		done, err := s.Folder.Finalize()
		if err != nil || done {
			return err
		}
		if err := s.stuck(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		case <-every.C:
		}
	}
}

// stuck returns an error when all that is missing has been set aside.
func (s *Submitter) stuck(ctx context.Context) error {
	if s.Rejected == nil {
		return nil
	}
	reasons, err := s.Rejected(ctx)
	if err != nil || len(reasons) == 0 {
		return err
	}
	plan, err := s.Folder.Plan()
	if err != nil {
		return err
	}
	missing := 0
	for _, m := range plan.Modes {
		for shard := range plan.Shards {
			done, err := s.Folder.Committed(m, shard)
			if err != nil {
				return err
			}
			if !done {
				missing++
			}
		}
	}
	if missing > len(reasons) {
		return nil
	}
	return fmt.Errorf("%d shards of job %s failed and were set aside; mend the cause and submit again to decode only them: %s",
		missing, s.Job.Name, strings.Join(reasons, "; "))
}
