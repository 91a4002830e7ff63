package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/draftmill/draftmill/pipeline/engine"
)

// Worker takes shards from a queue, decodes them and commits their files.
type Worker struct {
	Name   string // written into every completion
	Source Source
	// Open readies the models of a job in one mode for this worker alone. The
	// worker calls release when it is through with the pair: when a shard of
	// another job arrives, or when it ends.
	Open func(ctx context.Context, job *Job, place Place, m Mode) (pair engine.Pair, release func(), err error)
	// Out, when not empty, goes before the place in the shard: the folder that
	// holds the jobs' folders.
	Out         string
	Lanes       int            // sequences decoded together; 0: one
	AutoLanes   bool           // Lanes is the most, see Settings
	MaxAttempts int            // deliveries of one shard before it is set aside
	Report      func(Progress) // may be nil
	Log         *slog.Logger
}

// Progress is what a worker has done since its last report.
type Progress struct {
	Job      string `json:"job"`
	Mode     Mode   `json:"mode"`
	Worker   string `json:"worker"`
	Samples  int64  `json:"samples"`
	Errors   int64  `json:"errors"` // of the samples
	Tokens   int64  `json:"tokens"`
	Drafted  int64  `json:"drafted"`
	Accepted int64  `json:"accepted"`
	BusyNS   int64  `json:"busy_ns"` // spent on them
	Shards   int64  `json:"shards"`  // committed
}

// Run takes shards until drain ends, finishing those in hand, or until ctx
// ends, giving them back. It returns nil after a drain and the queue's error when
// that fails for good.
//
// A shard is asked for when those in hand leave lanes free, and looked for
// between loops; only a worker with empty hands waits for one.
func (w *Worker) Run(ctx, drain context.Context) error {
	s := &session{worker: w}
	defer s.close()
	f := newFetcher(ctx, drain, w.Source)
	defer func() {
		if d := f.close(); d != nil {
			_ = w.settle(ctx, d, errUnwanted)
		}
	}()
	for {
		if ctx.Err() != nil {
			s.drop(ctx, ctx.Err())
			return ctx.Err()
		}
		if drain.Err() != nil && s.held != nil { // it has not begun
			d := s.held
			s.held = nil
			s.settle(ctx, d, errUnwanted)
		}
		s.begin(ctx)
		s.fill(ctx)
		if s.hungry() {
			d, err := f.next(len(s.shards) == 0)
			switch {
			case d != nil:
				s.take(ctx, d)
				continue
			case err != nil && len(s.shards) > 0: // finish them first
			case err != nil && (drain.Err() != nil || ctx.Err() != nil):
				return ctx.Err()
			case err != nil:
				return fmt.Errorf("take a shard from the queue: %w", err)
			}
		}
		s.step(ctx)
	}
}

// errUnwanted gives a shard back that came when no more were wanted.
var errUnwanted = errors.New("the worker has stopped")

// fetcher asks a source for one shard at a time, beside the decoding.
type fetcher struct {
	source Source
	ctx    context.Context //nolint:containedctx // of the fetches under way
	cancel context.CancelFunc
	under  bool
	came   chan fetched
	err    error // of the source, for good
}

type fetched struct {
	delivery Delivery
	err      error
}

// newFetcher makes a fetcher whose fetches end with either context.
func newFetcher(ctx, drain context.Context, source Source) *fetcher {
	f := &fetcher{source: source, came: make(chan fetched, 1)}
	f.ctx, f.cancel = context.WithCancel(drain)
	context.AfterFunc(ctx, f.cancel)
	return f
}

// patience is how long decoding stands still for a shard that was just asked
// for: a queue that has one answers sooner, and then no loop is run with lanes
// left idle.
const patience = 20 * time.Millisecond

// next returns a shard, nil if none has come and it is not to wait any longer,
// or the error that ended the source or its context.
func (f *fetcher) next(wait bool) (Delivery, error) {
	if f.err != nil {
		return nil, f.err
	}
	late := time.After(0)
	if !f.under {
		f.under, late = true, time.After(patience)
		go func() {
			d, err := f.source.Next(f.ctx)
			f.came <- fetched{d, err}
		}()
	}
	if wait {
		return f.receive(<-f.came)
	}
	select {
	case r := <-f.came:
		return f.receive(r)
	default:
	}
	select {
	case r := <-f.came:
		return f.receive(r)
	case <-late:
		return nil, nil
	}
}

func (f *fetcher) receive(r fetched) (Delivery, error) {
	f.under, f.err = false, r.err
	return r.delivery, r.err
}

// close ends the fetch under way and returns the shard that it brought after
// all.
func (f *fetcher) close() Delivery {
	f.cancel()
	if !f.under {
		return nil
	}
	return (<-f.came).delivery
}

// settleTimeout bounds the talk with the queue after the work is done; it does
// not end with ctx, so that a stopping worker can still give its shard back.
const settleTimeout = 20 * time.Second

// settle tells the queue what became of a delivery.
func (w *Worker) settle(ctx context.Context, d Delivery, err error) error {
	stopping := ctx.Err() != nil || errors.Is(err, errUnwanted)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	switch {
	case err == nil:
		return d.Ack(ctx)
	case stopping:
		return d.Release(ctx)
	case d.Attempt() >= w.MaxAttempts:
		w.Log.Error("shard set aside", "shard", d.Key(), "attempts", d.Attempt(), "err", err)
		return d.Reject(ctx, err)
	default:
		delay := time.Second << min(d.Attempt()-1, 6)
		w.Log.Warn("shard failed; retrying", "shard", d.Key(), "attempt", d.Attempt(), "in", delay, "err", err)
		return d.Retry(ctx, delay)
	}
}

func (w *Worker) report(p Progress) {
	if w.Report != nil {
		p.Worker = w.Name
		w.Report(p)
	}
}
