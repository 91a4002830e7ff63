package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/draftmill/draftmill/storage"
)

// Worker takes shards from a queue, decodes them and commits their files.
type Worker struct {
	Name   string // written into every completion
	Source Source
	// Open readies the models of a job in one mode for this worker alone. The
	// worker calls release when it is through with the pair: when a shard of
	// another job arrives, or when it ends.
	Open func(ctx context.Context, job *Job, place Place, m Mode) (pair Pair, release func(), err error)
	// Out, when not empty, goes before the place in the shard: the folder that
	// holds the jobs' folders.
	Out         string
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

// Run takes shards until drain ends, finishing the one in hand, or until ctx
// ends, giving it back. It returns nil after a drain and the queue's error when
// that fails for good.
func (w *Worker) Run(ctx, drain context.Context) error {
	s := &session{worker: w}
	defer s.close()
	for {
		d, err := w.Source.Next(drain)
		if err != nil {
			if drain.Err() != nil || ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("take a shard from the queue: %w", err)
		}
		if err := w.settle(ctx, d, s.handle(ctx, d)); err != nil {
			w.Log.Warn("shard not settled; it will be delivered again", "shard", d.Key(), "err", err)
		}
	}
}

// settleTimeout bounds the talk with the queue after the work is done; it does
// not end with ctx, so that a stopping worker can still give its shard back.
const settleTimeout = 20 * time.Second

// settle tells the queue what became of a delivery.
func (w *Worker) settle(ctx context.Context, d Delivery, err error) error {
	stopping := ctx.Err() != nil
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

// session is what a worker keeps from one shard to the next: the engines of
// one job, one for each mode.
type session struct {
	worker  *Worker
	job     string // the specification that the engines are for
	engines map[Mode]*Engine
	release []func()
}

// handle decodes and commits the shard of one delivery.
func (s *session) handle(ctx context.Context, d Delivery) error {
	t, err := decodeTask(d.Data())
	if err != nil {
		return err
	}
	out := t.place.Out
	if s.worker.Out != "" {
		out = s.worker.Out
	}
	job, err := storage.OpenJob(filepath.Join(out, t.job.Name))
	if err != nil {
		return err
	}
	if done, err := job.Committed(string(t.mode), t.shard); err != nil {
		return err
	} else if !done {
		if err := s.decode(ctx, t, job); err != nil {
			return err
		}
	}
	// Whoever commits the last shard completes the job.
	if _, err := job.Finalize(); err != nil && !errors.Is(err, storage.ErrNoPlan) {
		return err
	}
	s.worker.report(Progress{Job: t.job.Name, Mode: t.mode, Shards: 1})
	return nil
}

// decode decodes a shard and commits it, or leaves nothing.
func (s *session) decode(ctx context.Context, t *task, job *storage.Job) error {
	e, err := s.engine(ctx, t)
	if err != nil {
		return err
	}
	w, err := job.NewShardWriter(string(t.mode), t.shard)
	if err != nil {
		return err
	}
	err = decodeShard(ctx, e, t, s.worker.Name, w, func(c *storage.Completion) {
		p := Progress{
			Job: t.job.Name, Mode: t.mode, Samples: 1,
			Tokens: int64(c.CompletionTokens), Drafted: int64(c.Drafted), Accepted: int64(c.Accepted),
			BusyNS: c.TotalNS,
		}
		if c.FinishReason == storage.FinishError {
			p.Errors = 1
		}
		s.worker.report(p)
	})
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	_, err = w.Commit() // losing to another worker is as good as winning
	return err
}

// engine returns the engine for the task's job and mode.
func (s *session) engine(ctx context.Context, t *task) (*Engine, error) {
	spec, err := t.job.Spec()
	if err != nil {
		return nil, err
	}
	if s.job != string(spec) {
		s.close()
		s.job, s.engines = string(spec), map[Mode]*Engine{}
	}
	if e := s.engines[t.mode]; e != nil {
		return e, nil
	}
	pair, release, err := s.worker.Open(ctx, &t.job, t.place, t.mode)
	if err != nil {
		return nil, err
	}
	settings, err := t.job.Settings(t.mode)
	if err != nil {
		release()
		return nil, err
	}
	e, err := NewEngine(pair, settings)
	if err != nil {
		release()
		return nil, err
	}
	s.engines[t.mode] = e
	s.release = append(s.release, release)
	return e, nil
}

func (s *session) close() {
	for _, e := range s.engines {
		e.Close()
	}
	for _, release := range s.release {
		release()
	}
	s.job, s.engines, s.release = "", nil, nil
}

func (w *Worker) report(p Progress) {
	if w.Report != nil {
		p.Worker = w.Name
		w.Report(p)
	}
}
