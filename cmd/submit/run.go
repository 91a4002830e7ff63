package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/pipeline/report"
	"github.com/draftmill/draftmill/storage"
)

// errInterrupted ends a submit that was told to stop.
var errInterrupted = errors.New("interrupted; what is committed is kept: run the same command again to decode the rest")

// run submits the job that cfg describes and, unless it is detached, sees it
// through.
func run(parent context.Context, cfg configs.Config, stdout, stderr io.Writer) (err error) {
	ctx, drain, stop := app.Signals(parent, cfg.DrainTimeout)
	defer stop()
	log := app.Logger(cfg.Log, stderr)
	models := app.NewModels(cfg, log)
	models.Interrupt(drain)
	defer models.Close()

	dataset, err := storage.OpenDataset(cfg.Dataset, storage.Columns{Prompt: cfg.PromptColumn, ID: cfg.IDColumn})
	if err != nil {
		return err
	}
	defer closing(&err, dataset.Close)
	job, place, err := describe(cfg, models, dataset.Info())
	if err != nil {
		return err
	}
	spec, err := job.Spec()
	if err != nil {
		return err
	}
	folder, err := storage.CreateJob(place.Out, job.Name, spec, app.Versions()...)
	if err != nil {
		return err
	}
	unlock, err := folder.Lock()
	if err != nil {
		return err
	}
	defer closing(&err, unlock)
	if err := folder.Recover(); err != nil {
		return err
	}

	if err := note(folder, cfg.Dataset, place.Target); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "job %s -> %s\n", job.Name, folder.Dir())
	if rule := job.EffectiveRule(); rule.Lossy() {
		fmt.Fprintf(stderr, "rule %s is %s\n", rule, rule.Bound())
	}
	if !folder.Done() {
		s := &submission{cfg: cfg, job: job, place: place, folder: folder, models: models, log: log, stderr: stderr}
		if err := s.run(ctx, drain, dataset); err != nil {
			return err
		}
		if cfg.Detach {
			return nil
		}
	}
	return present(folder, cfg.JSON, false, stdout)
}

// note keeps where dataset and target are, for commands that read more of them
// than the job did.
func note(folder *storage.Job, dataset, target string) error {
	path, err := filepath.Abs(dataset)
	if err != nil {
		return fmt.Errorf("make %s an absolute path: %w", dataset, err)
	}
	return folder.NotePlace(storage.Place{Dataset: path, Target: target})
}

// submission is one run of a job that is not done yet.
type submission struct {
	cfg    configs.Config
	job    *pipeline.Job
	place  pipeline.Place
	folder *storage.Job
	models *app.Models
	log    *slog.Logger
	stderr io.Writer
}

func (s *submission) run(ctx, drain context.Context, rows pipeline.Rows) (err error) {
	q, shut, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, shut)
	if err := q.PurgeDeadLetters(ctx, s.job.Name); err != nil {
		return err
	}

	board := newBoard(s.stderr, s.job.Modes)
	defer board.close()
	tick := make(chan struct{}, 1)
	if err := s.watch(ctx, q, func(p pipeline.Progress) {
		board.report(p)
		select {
		case tick <- struct{}{}:
		default:
		}
	}); err != nil {
		return err
	}
	finish, failed, err := s.workers(ctx, drain, q)
	if err != nil {
		return err
	}
	defer closing(&err, finish)

	submitter := pipeline.Submitter{
		Job: *s.job, Place: s.place, Folder: s.folder, Publisher: q,
		Rejected: func(ctx context.Context) ([]string, error) { return rejected(ctx, q, s.job.Name) },
	}
	ctx, cancel := context.WithCancelCause(drain)
	defer cancel(nil)
	go func() { // a worker that cannot go on ends the wait
		select {
		case err := <-failed:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	n, err := submitter.Publish(ctx, rows, func(m pipeline.Mode, rows int, committed bool) {
		board.seen(m, int64(rows*s.job.Samples), committed)
	})
	if err != nil {
		return interrupted(ctx, err)
	}
	if s.cfg.Detach {
		fmt.Fprintf(s.stderr, "queued %d shards of %d rows; %d were queued and %d done before\n", n.Fresh, n.Rows, n.Queued, n.Committed)
		return nil
	}
	return interrupted(ctx, submitter.Wait(ctx, tick))
}

// interrupted puts the reason that a context ended in place of its error.
func interrupted(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return errInterrupted
}

// rejected lists the job's shards that were set aside, with the reasons.
func rejected(ctx context.Context, q *queue.Queue, job string) ([]string, error) {
	letters, err := q.DeadLetters(ctx, job)
	if err != nil {
		return nil, err
	}
	reasons := make([]string, len(letters))
	for i, l := range letters {
		reasons[i] = l.Key + ": " + l.Reason
	}
	return reasons, nil
}

// connect reaches the queue of the configuration, or starts one in the job's
// folder. shut is called once, at the end.
func (s *submission) connect(ctx context.Context) (q *queue.Queue, shut func() error, err error) {
	if s.cfg.NATS.URL != "" {
		q, err := queue.Connect(ctx, s.cfg.NATS.URL, app.QueueOptions(s.cfg.NATS, s.log))
		if err != nil {
			return nil, nil, err
		}
		return q, q.Close, nil
	}
	dir := s.cfg.NATS.StoreDir
	if dir == "" {
		dir = filepath.Join(s.folder.Dir(), "_queue")
	}
	server, err := queue.Embed(dir, queue.EmbedOptions{Logger: s.log})
	if err != nil {
		return nil, nil, err
	}
	q, err = server.Connect(ctx, app.QueueOptions(s.cfg.NATS, s.log))
	if err != nil {
		return nil, nil, errors.Join(err, server.Close())
	}
	return q, func() error {
		err := errors.Join(q.Close(), server.Close())
		if s.cfg.NATS.StoreDir == "" && s.folder.Done() { // nothing is left in it
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return err
	}, nil
}

// watch passes on what the job's workers report until ctx ends.
func (s *submission) watch(ctx context.Context, q *queue.Queue, report func(pipeline.Progress)) error {
	events, err := q.Watch(ctx, s.job.Name)
	if err != nil {
		return err
	}
	go func() {
		for data := range events {
			var p pipeline.Progress
			if err := json.Unmarshal(data, &p); err != nil {
				s.log.Debug("unreadable progress report", "err", err)
				continue
			}
			report(p)
		}
	}()
	return nil
}

// workers starts the in-process workers, when the queue is the embedded one.
// finish ends them and waits; failed carries the error of one that cannot go
// on. The models are loaded first, so that one that does not load is this
// command's error and not a shard's.
func (s *submission) workers(ctx, drain context.Context, q *queue.Queue) (finish func() error, failed <-chan error, err error) {
	workers := max(s.cfg.Workers, len(s.cfg.ORT.Devices()))
	failures := make(chan error, workers)
	if s.cfg.NATS.URL != "" {
		return func() error { return nil }, failures, nil
	}
	for n := range workers {
		for _, m := range s.job.Modes {
			_, release, err := s.models.Open(pipeline.Place{}, n)(ctx, s.job, s.place, m)
			if err != nil {
				return nil, nil, err
			}
			release()
		}
	}
	drain, stop := context.WithCancel(drain)
	var running sync.WaitGroup
	for n := range workers {
		source, err := q.Source(ctx, "")
		if err != nil {
			stop()
			running.Wait()
			return nil, nil, err
		}
		w := app.NewWorker(app.WorkerName(n), source, s.models.Open(pipeline.Place{}, n), q, s.cfg, s.log)
		running.Go(func() {
			if err := errors.Join(w.Run(ctx, drain), source.Close()); err != nil && ctx.Err() == nil {
				failures <- err
			}
		})
	}
	return func() error { stop(); running.Wait(); return nil }, failures, nil
}

// present prints the job's summary, and its accounting where full is set. JSON
// has both.
func present(folder *storage.Job, asJSON, full bool, stdout io.Writer) error {
	summary, err := report.Summarize(folder)
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(summary)
	}
	if err := summary.Table(stdout); err != nil {
		return err
	}
	if full {
		fmt.Fprintln(stdout)
		if err := summary.Full(stdout); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(stdout, "\nwritten to %s:\n  completions/mode=*/part-*.parquet\n  loops/mode=*/part-*.parquet\n  job.json, manifest.json, _SUCCESS\n", folder.Dir())
	return err
}

// closing runs f and keeps its error unless there is one already.
func closing(err *error, f func() error) {
	if e := f(); *err == nil {
		*err = e
	}
}
