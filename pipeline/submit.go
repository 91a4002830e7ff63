package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/draftmill/draftmill/storage"
)

// Submitter puts one job on the queue and sees it through.
type Submitter struct {
	Job       Job
	Place     Place
	Folder    *storage.Job
	Publisher Publisher
	// Overseer says what the queue knows of the job; nil: nothing is asked.
	Overseer Overseer
	// Reopen gives the dataset's rows again, from the first, for shards that the
	// queue has lost. Nil: they are an error.
	Reopen func() (rows Rows, done func() error, err error)
	Log    *slog.Logger // nil: slog.Default()
}

// Overseer looks at a job's shards on the queue. Errors with [BlameNetwork] are
// waited out.
type Overseer interface {
	// Queued lists the keys of the shards that wait or are in a worker's hands.
	Queued(ctx context.Context) ([]string, error)
	// Rejected gives the reasons of the shards that were set aside, by key.
	Rejected(ctx context.Context) (map[string]string, error)
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
// holds one shard of the dataset at a time. It ends by writing the job's plan,
// which says when the job is complete, and completes it if nothing is missing.
//
// seen is called with every shard once it is queued, or found committed.
func (s *Submitter) Publish(ctx context.Context, rows Rows, seen func(m Mode, rows int, committed bool)) (Published, error) {
	p, err := s.publisher(ctx, seen, nil)
	if err != nil {
		return Published{}, err
	}
	if err := p.all(rows); err != nil {
		return p.n, err
	}
	if p.n.Rows == 0 {
		return p.n, fmt.Errorf("the dataset %s has no rows", s.Job.Dataset.Name)
	}
	modes := make([]string, len(s.Job.Modes))
	for i, m := range s.Job.Modes {
		modes[i] = string(m)
	}
	if err := s.Folder.WritePlan(p.n.Shards, p.n.Rows, modes); err != nil {
		return p.n, err
	}
	// All may have been committed before there was a plan to hold it against.
	_, err = s.Folder.Finalize(ctx)
	return p.n, err
}

// MaxShardBytes bounds a shard on the queue.
const MaxShardBytes = 256 << 20

// publishing is one pass over the dataset.
type publishing struct {
	*Submitter
	ctx  context.Context //nolint:containedctx // of the pass
	spec []byte
	run  string
	seen func(Mode, int, bool)
	only map[string]bool // keys to publish; nil: all
	n    Published
}

func (s *Submitter) publisher(ctx context.Context, seen func(Mode, int, bool), only map[string]bool) (*publishing, error) {
	spec, err := s.Job.Spec()
	if err != nil {
		return nil, err
	}
	return &publishing{Submitter: s, ctx: ctx, spec: spec, run: Run(spec, s.Place.Out), seen: seen, only: only}, nil
}

// all cuts the rows into shards.
func (p *publishing) all(rows Rows) error {
	var shard []storage.ShardRow
	bytes := 0
	publish := func() error {
		err := p.shard(shard)
		shard, bytes = shard[:0], 0
		return err
	}
	for row, err := range p.Job.Prompts(rows) {
		if err != nil {
			return err
		}
		p.n.Rows++
		if bytes += len(row.Prompt); bytes > MaxShardBytes {
			return fmt.Errorf("the prompts of shard %d, up to row %d, have more than %d MiB; use a smaller shard_rows", p.n.Shards, row.Row, MaxShardBytes>>20)
		}
		if shard = append(shard, row); len(shard) == p.Job.ShardRows {
			if err := publish(); err != nil {
				return err
			}
		}
	}
	if len(shard) > 0 {
		return publish()
	}
	return nil
}

func (p *publishing) shard(rows []storage.ShardRow) error {
	shard := p.n.Shards
	p.n.Shards++
	for _, m := range p.Job.Modes {
		key := Key(p.Job.Name, p.run, m, shard)
		if p.only != nil && !p.only[key] {
			continue
		}
		switch done, err := p.Folder.Committed(p.ctx, string(m), shard); {
		case err != nil:
			return err
		case done:
			p.n.Committed++
			p.seen(m, len(rows), true)
			continue
		}
		data, err := encodeShard(p.spec, p.Place, m, shard, rows)
		if err != nil {
			return err
		}
		ctx, span := tracer().Start(p.ctx, "publish", trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attribute.String("shard", key)))
		fresh, err := p.Publisher.Publish(ctx, key, data)
		endSpan(span, err)
		if err != nil {
			return fmt.Errorf("publish shard %d of mode %s: %w", shard, m, err)
		}
		if fresh {
			p.n.Fresh++
		} else {
			p.n.Queued++
		}
		p.seen(m, len(rows), false)
	}
	return nil
}

// How often Wait looks, and after how long without a sign of work it asks the
// queue whether it still has the shards.
const (
	lookEvery  = time.Second
	silentTime = 15 * time.Second
)

// ErrCancelled ends the wait for a job that was given up.
var ErrCancelled = errors.New("the job was cancelled; what is committed is kept: submit it again to decode the rest")

// Wait returns when every shard of the plan is committed and the job's
// _SUCCESS is written. It looks again at every tick (a worker's report, say)
// and every second. Where there is no tick for a while it asks the queue for the
// shards that are missing, and publishes those that the queue has lost. When
// shards were set aside it waits for the others and returns an error that says
// why. It waits through a queue or an object store that does
// not answer and a disk without room.
func (s *Submitter) Wait(ctx context.Context, tick <-chan struct{}) error {
	return s.wait(ctx, tick, lookEvery, silentTime)
}

func (s *Submitter) wait(ctx context.Context, tick <-chan struct{}, look, silent time.Duration) error {
	every := time.NewTicker(look)
	defer every.Stop()
	sign := time.Now()
	var full error // what the place of results said last
	for {
		done, err := s.Folder.Finalize(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case BlameFor(err) == BlameDisk, BlameFor(err) == BlameNetwork:
			if full == nil {
				s.log().Warn("the job cannot be completed; waiting for its place", "err", err)
			}
			full = err
		case err != nil || done:
			return err
		default:
			full = nil
			cancelled, err := s.Folder.Cancelled()
			if cancelled {
				return ErrCancelled
			}
			if err == nil {
				err = s.stuck(ctx)
			}
			if err == nil && time.Since(sign) >= silent {
				sign = time.Now()
				_, err = s.Mend(ctx)
			}
			if err != nil && BlameFor(err) != BlameNetwork {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
			sign = time.Now()
		case <-every.C:
		}
	}
}

func (s *Submitter) log() *slog.Logger {
	if s.Log == nil {
		return slog.Default()
	}
	return s.Log
}

// missing lists the keys of the shards that are not committed.
func (s *Submitter) missing(ctx context.Context) ([]string, error) {
	plan, err := s.Folder.Plan()
	if err != nil {
		return nil, err
	}
	spec, err := s.Job.Spec()
	if err != nil {
		return nil, err
	}
	run := Run(spec, s.Place.Out)
	var keys []string
	for _, m := range plan.Modes {
		for shard := range plan.Shards {
			done, err := s.Folder.Committed(ctx, m, shard)
			if err != nil {
				return nil, err
			}
			if !done {
				keys = append(keys, Key(s.Job.Name, run, Mode(m), shard))
			}
		}
	}
	return keys, nil
}

// stuck returns an error when all that is missing has been set aside.
func (s *Submitter) stuck(ctx context.Context) error {
	if s.Overseer == nil {
		return nil
	}
	reasons, err := s.Overseer.Rejected(ctx)
	if err != nil || len(reasons) == 0 {
		return err
	}
	missing, err := s.missing(ctx)
	if err != nil || len(missing) == 0 { // all came while we looked
		return err
	}
	for _, key := range missing {
		if _, rejected := reasons[key]; !rejected {
			return nil
		}
	}
	return fmt.Errorf("%d shards of job %s failed and were set aside; mend the cause and submit again to decode only them: %s",
		len(missing), s.Job.Name, firstReasons(missing, reasons))
}

// firstReasons lists the reasons of a few shards.
func firstReasons(keys []string, reasons map[string]string) string {
	const most = 5
	text := ""
	for i, key := range keys {
		if i == most {
			return text + fmt.Sprintf("; and %d more", len(keys)-most)
		}
		if i > 0 {
			text += "; "
		}
		text += key + ": " + reasons[key]
	}
	return text
}

// Mend publishes again what the queue has lost, and tells how many shards that were.
func (s *Submitter) Mend(ctx context.Context) (int, error) {
	if s.Overseer == nil {
		return 0, nil
	}
	// A shard leaves the queue after it is committed or set aside: what is missing
	// in all three, asked in this order, is lost.
	queued, err := s.Overseer.Queued(ctx)
	if err != nil {
		return 0, err
	}
	reasons, err := s.Overseer.Rejected(ctx)
	if err != nil {
		return 0, err
	}
	missing, err := s.missing(ctx)
	if err != nil {
		return 0, err
	}
	lost := map[string]bool{}
	for _, key := range missing {
		lost[key] = true
	}
	for _, key := range slices.AppendSeq(queued, maps.Keys(reasons)) {
		delete(lost, key)
	}
	if len(lost) == 0 {
		return 0, nil
	}
	if s.Reopen == nil {
		return 0, fmt.Errorf("the queue has lost %d shards of job %s; submit the job again", len(lost), s.Job.Name)
	}
	s.log().Warn("the queue has lost shards; publishing them again", "job", s.Job.Name, "shards", len(lost))
	rows, done, err := s.Reopen()
	if err != nil {
		return 0, fmt.Errorf("publish again what the queue has lost: %w", err)
	}
	p, err := s.publisher(ctx, func(Mode, int, bool) {}, lost)
	if err == nil {
		err = p.all(rows)
	}
	return len(lost), errors.Join(err, done())
}
