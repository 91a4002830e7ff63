package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/storage"
)

// Worker takes shards from a queue, decodes them and commits their files.
type Worker struct {
	Name   string // written into every completion
	Source Source
	// Open readies the models of a job in one mode for this worker alone. The
	// worker calls release when it is through with the pair: when a shard of
	// another job arrives, or when it ends.
	Open func(ctx context.Context, job *Job, place Place, m Mode) (pair engine.Pair, release func(), err error)
	// Check says that what Open gave is no longer sound, model files that were
	// written over, say. It is asked before every shard is decoded, and before it
	// is committed. May be nil.
	Check func() error
	// Out, when not empty, goes before the place in the shard: the folder that
	// holds the jobs' folders.
	Out         string
	Lanes       int            // sequences decoded together; 0: one
	AutoLanes   bool           // Lanes is the most, see Settings
	MaxAttempts int            // times that a shard is tried before it is set aside
	Report      func(Progress) // may be nil
	Observer    Observer       // may be nil
	Log         *slog.Logger
}

// Progress is what a worker has done since its last report.
type Progress struct {
	Job      string `json:"job"`
	Run      string `json:"run"` // see Run
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
// ends, giving them back. It returns nil after a drain, the queue's error when
// that fails for good, and the reason when this worker fails at every shard.
//
// A shard is asked for when those in hand leave lanes free, and looked for
// between loops; only a worker with nothing in hand waits for one.
func (w *Worker) Run(ctx, drain context.Context) error {
	if w.Observer == nil {
		w.Observer = nobody{}
	}
	s := &session{worker: w, folders: map[string]*storage.Job{}, noted: map[*storage.Job]storage.Host{}}
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
		if s.wantsShard() {
			if len(s.shards) == 0 && s.trouble.last != nil {
				if d := f.giveUp(); d != nil {
					s.settle(ctx, &shard{delivery: d}, errUnwanted)
				}
				if err := s.trouble.wait(drain); err != nil && drain.Err() == nil {
					return err
				}
			}
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

// trouble is what a worker knows of its own faults. Healthy workers take what a
// faulty one gives back, so it must not be the first to ask again.
type trouble struct {
	faults int           // of the worker, one after the other, with no shard done between
	pause  time.Duration // before the next shard
	room   func() error  // says whether the place of results takes data again; nil: it always did
	lost   bool          // the device is gone: nothing more is tried
	last   error
}

// Bounds of the pauses after a worker's own faults, and how many faults in a row
// it takes before it gives up. A disk without room is waited for, and a store that does not answer.
const (
	firstPause  = time.Second
	lastPause   = 30 * time.Second
	worstFaults = 5
)

// note takes a fault of this worker, or of the place of results, which room asks until it takes data.
func (t *trouble) note(err error, room func() error) {
	t.last = err
	if t.pause = min(2*t.pause, lastPause); t.pause == 0 {
		t.pause = firstPause
	}
	switch BlameFor(err) {
	case BlameDisk, BlameNetwork:
		t.room = room
	case BlameDevice:
		t.lost = true
	default:
		t.faults++
	}
}

// wait ends when another shard may be tried. The error is the reason that none
// should be, or ctx's.
func (t *trouble) wait(ctx context.Context) error {
	if t.last == nil {
		return nil
	}
	if t.lost {
		return fmt.Errorf("the worker stops, others take its shards: %w", t.last)
	}
	if t.faults >= worstFaults {
		return fmt.Errorf("the worker failed at %d shards one after the other: %w", t.faults, t.last)
	}
	for {
		if err := sleep(ctx, t.pause); err != nil {
			return err
		}
		if t.room == nil || t.room() == nil {
			t.last, t.room = nil, nil
			return nil
		}
		t.pause = min(2*t.pause, lastPause)
	}
}

// over says that a shard was done. That does not bring a device back.
func (t *trouble) over() {
	if !t.lost {
		*t = trouble{}
	}
}

// sleep waits for d or for the end of ctx, whose error it returns. Tests replace it.
var sleep = func(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetcher asks a source for one shard at a time, beside the decoding.
type fetcher struct {
	source Source
	ctx    context.Context //nolint:containedctx // of the fetches under way
	cancel context.CancelFunc
	under  bool
	stop   context.CancelFunc // of the fetch under way
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

// fetchWait is the longest pause in decoding for a shard that was just asked
// for: a queue that has one answers sooner, and then no loop is run with lanes
// left idle.
const fetchWait = 20 * time.Millisecond

// next returns a shard, nil if none has come and it is not to wait any longer,
// or the error that ended the source or its context.
func (f *fetcher) next(wait bool) (Delivery, error) {
	if f.err != nil {
		return nil, f.err
	}
	late := time.After(0)
	if !f.under {
		f.under, late = true, time.After(fetchWait)
		var ctx context.Context
		ctx, f.stop = context.WithCancel(f.ctx)
		go func() {
			d, err := f.source.Next(ctx)
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
	f.stop()
	f.under, f.err = false, r.err
	return r.delivery, r.err
}

// giveUp ends the fetch under way, if there is one, and returns the shard that
// it brought after all.
func (f *fetcher) giveUp() Delivery {
	if !f.under {
		return nil
	}
	f.stop()
	r := <-f.came
	f.under = false
	return r.delivery
}

// close ends the fetch under way and returns the shard that it brought after
// all.
func (f *fetcher) close() Delivery {
	f.cancel()
	return f.giveUp()
}

// settleTimeout bounds the talk with the queue after the work is done; it does
// not end with ctx, so that a stopping worker can still give its shard back.
const settleTimeout = 20 * time.Second

// settle tells the queue what became of a delivery. Whose fault an error is
// decides: a shard that no worker can do is set aside at once, one that this
// worker cannot do goes back uncounted, and only the rest counts as an attempt.
func (w *Worker) settle(ctx context.Context, d Delivery, err error) error {
	stopping := ctx.Err() != nil || errors.Is(err, errUnwanted)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if stopping && err != nil {
		w.Observer.Settled("release", nil)
		return d.Release(ctx)
	}
	outcome := w.outcome(d, err)
	w.Observer.Settled(outcome, err)
	switch outcome {
	case "ack":
		return d.Ack(ctx)
	case "reject":
		w.Log.Error("shard set aside", "shard", d.Key(), "attempts", d.Attempt(), "fault", BlameFor(err), "err", err)
		return d.Reject(ctx, err)
	case "release":
		w.Log.Warn("shard handed back: this worker cannot do it now", "shard", d.Key(), "fault", BlameFor(err), "err", err)
		return d.Release(ctx)
	}
	delay := time.Second << min(d.Attempt()-1, 6)
	w.Log.Warn("shard failed; retrying", "shard", d.Key(), "attempt", d.Attempt(), "in", delay, "err", err)
	return d.Retry(ctx, delay)
}

// outcome is what the queue is to be told of a shard.
func (w *Worker) outcome(d Delivery, err error) string {
	if err == nil {
		return "ack"
	}
	switch BlameFor(err) {
	case BlameMessage:
		return "reject"
	case BlameWorker, BlameDisk, BlameNetwork, BlameDevice:
		return "release"
	}
	if d.Attempt() >= w.MaxAttempts {
		return "reject"
	}
	return "retry"
}

func (w *Worker) report(p Progress) {
	if w.Report != nil {
		p.Worker = w.Name
		w.Report(p)
	}
}
