package main

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/pipeline/report"
	"github.com/draftmill/draftmill/storage"
	"github.com/draftmill/draftmill/storage/bucket"
)

// errInterrupted ends a submit that was told to stop.
var errInterrupted = errors.New("interrupted; what is committed is kept: run the same command again to decode the rest")

// run submits the job that cfg describes and, unless it is detached, sees it
// through. Where a server is given, its queue is used in place of the
// configuration's, and it has its workers already.
func run(parent context.Context, cfg configs.Config, server *queue.Server, stdout, stderr io.Writer) (err error) {
	ctx, drain, stop := app.Signals(parent, cfg.DrainTimeout)
	defer stop()
	log := app.Logger(cfg.Log, stderr)
	var key ed25519.PrivateKey
	if cfg.Sign != "" {
		if cfg.Detach {
			return configs.Usagef("--sign: a detached job is not complete when submit returns; sign it with the same command without --detach, later")
		}
		if key, err = signingKey(cfg.Sign); err != nil {
			return err
		}
	}
	flush, err := app.Tracing(ctx, "submit", log)
	if err != nil {
		return err
	}
	defer flush()
	models := app.NewModels(cfg, log)
	models.Interrupt(drain)
	defer models.Close()

	o, err := prepare(drain, log, cfg, models)
	if err != nil {
		return interrupted(drain, err)
	}
	defer closing(&err, o.dataset.Close)
	job, place := o.job, o.place
	spec, err := job.Spec()
	if err != nil {
		return err
	}
	if cfg.NATS.URL == "" { // the workers are in this process: job.json names their library
		if err := models.Init(); err != nil {
			return err
		}
	}
	folder, err := storage.CreateJob(place.Out, job.Name, spec, app.Versions()...)
	if err != nil {
		return err
	}
	unlock, err := folder.Lock(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, unlock)
	if err := errors.Join(folder.Resume(), folder.Recover(ctx)); err != nil {
		return err
	}

	if err := note(folder, o.path, place); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "job %s -> %s\n", job.Name, folder.Dir())
	if rule := job.EffectiveRule(); rule.Lossy() {
		fmt.Fprintf(stderr, "rule %s is %s\n", rule, rule.Bound())
	}
	if !folder.Done() {
		s := &submission{
			cfg: cfg, server: server, dataset: o.path, job: job, place: place, folder: folder, models: models, log: log, stderr: stderr,
			scope: job.Name + "/" + pipeline.Run(spec, place.Out),
		}
		if err := s.run(ctx, drain, o.dataset); err != nil {
			return s.explain(err)
		}
		if cfg.Detach {
			return nil
		}
	}
	if key != nil {
		if err := folder.Sign(ctx, key); err != nil {
			return err
		}
	}
	if cfg.NATS.StoreDir == "" && server == nil { // left behind if submit was killed after the job's end
		dir, err := queueDir(bucket.Join(folder.Dir(), "_queue"))
		if err == nil {
			err = os.RemoveAll(dir)
		}
		if err != nil {
			return fmt.Errorf("remove the queue of a finished job: %w", err)
		}
	}
	if err := present(folder, cfg.JSON, false, stdout); err != nil {
		return err
	}
	return failures(folder, stderr)
}

// note keeps where dataset and models are, for commands that read more of them
// than the job did.
func note(folder *storage.Job, dataset string, place pipeline.Place) error {
	path, err := bucket.Clean(dataset)
	if err != nil {
		return fmt.Errorf("make %s an absolute path: %w", dataset, err)
	}
	return folder.NotePlace(storage.Place{Dataset: path, Target: place.Target, Draft: place.Draft, Table: place.Table})
}

// syncInterval is how often the embedded queue's writes reach the disk. What a
// power cut takes from it the next submit puts there again: the job's folder says
// what is done.
const syncInterval = time.Second

// queueDir is the folder of an embedded queue that belongs at this place: there,
// or, where that is in an object store, in the user's cache.
func queueDir(place string) (string, error) {
	if !bucket.IsURL(place) {
		return place, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the queue: %w; name a folder with nats.store_dir", err)
	}
	sum := sha256.Sum256([]byte(place))
	return filepath.Join(cache, "draftmill", "queues", hex.EncodeToString(sum[:8])), nil
}

// submission is one run of a job that is not done yet.
type submission struct {
	cfg     configs.Config
	server  *queue.Server // shared with other jobs, or nil
	dataset string        // path
	job     *pipeline.Job
	place   pipeline.Place
	folder  *storage.Job
	scope   string // of the job's keys on the queue
	models  *app.Models
	log     *slog.Logger
	stderr  io.Writer
}

func (s *submission) run(ctx, drain context.Context, rows pipeline.Rows) (err error) {
	q, shut, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, shut)
	if err := s.clear(ctx, q); err != nil {
		return err
	}
	if s.cfg.IsSet("priority") { // else it stays as it was
		if err := q.Prioritize(ctx, s.scope, s.cfg.Priority); err != nil {
			return err
		}
	}

	board := newBoard(s.stderr, s.job.Modes)
	defer board.close()
	tick := make(chan struct{}, 1)
	if err := s.watch(ctx, q, board, tick); err != nil {
		return err
	}
	// A worker that is told to stop finishes what it has in hand. Where the disk is
	// full that comes to nothing.
	working, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(drain, func() {
		if s.full() {
			stop()
		}
	})
	finish, failed, err := s.workers(working, drain, q)
	if err != nil {
		return err
	}
	defer closing(&err, finish)

	submitter := pipeline.Submitter{
		Job: *s.job, Place: s.place, Folder: s.folder, Publisher: q, Log: s.log,
		Overseer: &overseer{q, s.scope},
		Reopen: func() (pipeline.Rows, func() error, error) {
			d, err := openDataset(s.cfg, s.dataset)
			if err != nil {
				return nil, nil, err
			}
			return d, d.Close, nil
		},
	}
	ctx, cancel := context.WithCancelCause(drain)
	defer cancel(nil)
	go s.watchDisk(ctx)
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
	if err := submitter.Wait(ctx, tick); err != nil {
		return interrupted(ctx, err)
	}
	if err := q.Finish(ctx, s.scope); err != nil { // the next submit tidies up
		s.log.Debug("the queue keeps the job's consumer", "err", err)
	}
	return nil
}

// leastRoom is how many bytes of free disk a job and its queue need to go on.
const leastRoom = 1 << 20

// errNoRoom ends a submit that was told to stop while its disk was full.
var errNoRoom = errors.New("no space left on device")

// watchDisk says that the job's disk has no room, once each time, until ctx ends.
func (s *submission) watchDisk(ctx context.Context) {
	full := false
	for every := time.NewTicker(time.Second); ; {
		free, known, err := s.folder.Free()
		switch {
		case err != nil, !known:
		case free < leastRoom && !full:
			full = true
			s.log.Warn("no space left on device: the job waits for room", "folder", s.folder.Dir(), "free bytes", free)
		case free >= leastRoom && full:
			full = false
			s.log.Info("the disk has room again", "folder", s.folder.Dir())
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			every.Stop()
			return
		}
	}
}

// full tells whether the job's disk is known to have no room.
func (s *submission) full() bool {
	free, known, err := s.folder.Free()
	return err == nil && known && free < leastRoom
}

// explain adds to an interruption that the disk is full, if it is.
func (s *submission) explain(err error) error {
	if !errors.Is(err, errInterrupted) {
		return err
	}
	if !s.full() {
		return err
	}
	return fmt.Errorf("%w: free some room for %s; %w", errNoRoom, s.folder.Dir(), err)
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

// clear takes what earlier submissions left off the queue: the dead letters of
// this job, which are tried again, and everything of other jobs that were in this
// folder under this name. The caller holds the folder.
func (s *submission) clear(ctx context.Context, q *queue.Queue) error {
	if err := q.PurgeDeadLetters(ctx, s.scope); err != nil {
		return err
	}
	jobs, err := q.Jobs(ctx, s.job.Name)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if j.Scope == s.scope || !strings.HasPrefix(j.Scope, s.job.Name+"/"+pipeline.RunPlace(s.place.Out)+"-") {
			continue
		}
		if err := errors.Join(q.Purge(ctx, j.Scope), q.PurgeDeadLetters(ctx, j.Scope)); err != nil {
			return err
		}
		s.log.Warn("taken off the queue: shards of another job that was in this folder", "job", j.Scope, "shards", j.Queued+j.Dead, "folder", s.folder.Dir())
	}
	return nil
}

// overseer is pipeline.Overseer for one run.
type overseer struct {
	q     *queue.Queue
	scope string
}

func (o *overseer) Queued(ctx context.Context) ([]string, error) { return o.q.Queued(ctx, o.scope) }

func (o *overseer) Rejected(ctx context.Context) (map[string]string, error) {
	letters, err := o.q.DeadLetters(ctx, o.scope)
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for _, l := range letters {
		reasons[l.Key] = l.Reason
	}
	return reasons, nil
}

func openDataset(cfg configs.Config, path string) (*storage.Dataset, error) {
	text, err := cfg.TemplateText()
	if err != nil {
		return nil, err
	}
	only, err := pipeline.TemplateColumns(text)
	if err != nil {
		return nil, err
	}
	return storage.OpenDatasetFields(path, storage.Columns{Prompt: cfg.PromptColumn, ID: cfg.IDColumn, Messages: cfg.Chat && text == ""}, only)
}

// connect reaches the queue of the configuration, or starts one in the job's
// folder. shut is called once, at the end.
func (s *submission) connect(ctx context.Context) (q *queue.Queue, shut func() error, err error) {
	if s.server != nil || s.cfg.NATS.URL != "" {
		if s.server != nil {
			q, err = s.server.Connect(ctx, app.QueueOptions(s.cfg.NATS, s.log))
		} else {
			q, err = queue.Connect(ctx, s.cfg.NATS.URL, app.QueueOptions(s.cfg.NATS, s.log))
		}
		if err != nil {
			return nil, nil, err
		}
		return q, q.Close, nil
	}
	dir := s.cfg.NATS.StoreDir
	if dir == "" {
		if dir, err = queueDir(bucket.Join(s.folder.Dir(), "_queue")); err != nil {
			return nil, nil, err
		}
	}
	server, err := queue.Embed(dir, queue.EmbedOptions{Logger: s.log, SyncInterval: syncInterval})
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

// watch shows what the job's workers report until ctx ends, with a tick each time.
func (s *submission) watch(ctx context.Context, q *queue.Queue, board *board, tick chan<- struct{}) error {
	events, err := q.Watch(ctx, s.scope)
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
			board.report(p)
			select {
			case tick <- struct{}{}:
			default:
			}
		}
	}()
	return nil
}

// workers starts the in-process workers of a job that has the embedded queue for
// itself. The models are loaded first, so that one that does not load is this
// command's error and not a shard's.
func (s *submission) workers(ctx, drain context.Context, q *queue.Queue) (finish func() error, failed <-chan error, err error) {
	if s.server != nil || s.cfg.NATS.URL != "" {
		return func() error { return nil }, nil, nil
	}
	for n := range workers(s.cfg) {
		for _, m := range s.job.Modes {
			_, release, err := s.models.Open(pipeline.Place{}, n)(ctx, s.job, s.place, m)
			if err != nil {
				return nil, nil, err
			}
			release()
		}
	}
	return startWorkers(ctx, drain, q, s.models, s.cfg, s.log)
}

// workers is how many decode in this process.
func workers(cfg configs.Config) int { return max(cfg.Workers, len(cfg.ORT.Devices())) }

// startWorkers starts workers in this process. finish ends them and waits; failed
// carries the error of one that cannot go on.
func startWorkers(ctx, drain context.Context, q *queue.Queue, models *app.Models, cfg configs.Config, log *slog.Logger) (finish func() error, failed <-chan error, err error) {
	count := workers(cfg)
	failures := make(chan error, count)
	drain, stop := context.WithCancel(drain)
	var running sync.WaitGroup
	for n := range count {
		source, err := q.Source(ctx)
		if err != nil {
			stop()
			running.Wait()
			return nil, nil, err
		}
		w := app.NewWorker(app.WorkerName(n), source, models.Open(pipeline.Place{}, n), models.Check, q, cfg, log)
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
		return printJSON(stdout, summary)
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
