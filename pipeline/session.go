package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// session is what a worker has in hand: the engines of one job, one for each
// mode, and the shards that they decode. Sequences of several shards share an
// engine's lanes, so that the last rows of a shard do not leave lanes idle.
type session struct {
	worker  *Worker
	job     string // the specification that the engines are for
	engines map[Mode]*opened
	folders map[string]*storage.Job // open ones, by path
	trouble trouble

	shards []*shard // begun, or about to
	held   *shard   // waits until no other is in hand
}

// opened is an engine with what releases its models.
type opened struct {
	*engine.Engine
	release func()
}

// shard is one delivery in hand.
type shard struct {
	delivery Delivery
	task     *task
	folder   *storage.Job
	engine   *opened
	writer   *storage.ShardWriter
	run      *shardRun
}

// alone reports whether a shard is decoded by itself: one that failed before
// must not take others down with it.
func (d *shard) alone() bool { return d.delivery.Attempt() > 1 }

// wantsShard reports that lanes are free and no shard is pending.
func (s *session) wantsShard() bool {
	if s.held != nil || slices.ContainsFunc(s.shards, func(d *shard) bool { return d.alone() || d.run.begun == 0 }) {
		return false
	}
	if len(s.shards) == 0 {
		return true
	}
	if s.trouble.last != nil { // another shard would fail too
		return false
	}
	return slices.ContainsFunc(s.shards, func(d *shard) bool { return d.engine.Free() > 0 && s.next(d.engine) == nil })
}

// next is the first shard that has samples left to begin in an engine.
func (s *session) next(e *opened) *shard {
	for _, d := range s.shards {
		if d.engine == e && d.run.pending() {
			return d
		}
	}
	return nil
}

// take takes a delivery in hand, or settles it at once: when it is committed
// already, or cannot be decoded.
func (s *session) take(ctx context.Context, delivery Delivery) {
	d := &shard{delivery: delivery}
	// The count is durable and was written before the shard was handed out. One
	// that is above the limit was never answered: the workers ended with it.
	if most := s.worker.MaxAttempts; delivery.Attempt() > most {
		s.settle(ctx, d, blame(BlameMessage, fmt.Errorf("it was handed out %d times and its workers ended without a word: killed, or out of memory", most)))
		return
	}
	var err error
	if d.task, err = decodeTask(delivery.Key(), delivery.Data()); err != nil {
		s.settle(ctx, d, err)
		return
	}
	s.held = d
	s.begin(ctx)
}

// begin begins with the shard that waits, if nothing stands in its way.
func (s *session) begin(ctx context.Context) {
	d := s.held
	if d == nil || len(s.shards) > 0 && (d.alone() || s.job != string(d.task.spec)) {
		return
	}
	s.held = nil
	if err := s.open(ctx, d); err != nil {
		s.settle(ctx, d, err)
		return
	}
	if d.run == nil { // nothing to do
		s.settle(ctx, d, s.finalize(ctx, d))
		return
	}
	s.shards = append(s.shards, d)
}

// folder opens the job's folder, or finds it open. Its errors say whose fault
// they are: what this worker was told of itself, --out say, is the worker's.
func (s *session) folder(t *task) (*storage.Job, error) {
	out, fault := t.place.Out, BlameMessage
	if s.worker.Out != "" {
		out, fault = s.worker.Out, BlameWorker
	}
	dir := filepath.Join(out, t.job.Name)
	folder := s.folders[dir]
	if folder == nil || !folder.Current() {
		var err error
		folder, err = storage.OpenJob(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if _, parent := os.Stat(out); parent != nil {
				return nil, blame(BlameWorker, fmt.Errorf("the output folder %s is not here: mount it, or name it with --out: %w", out, parent))
			}
			if fault == BlameMessage {
				return nil, err // removed, or not mounted: it counts
			}
			return nil, blame(fault, err)
		case errors.Is(err, storage.ErrOtherJob):
			return nil, blame(fault, err)
		case err != nil:
			return nil, blame(BlameWorker, err)
		}
		s.folders[dir] = folder
	}
	if diff := folder.DiffSpec(t.spec); len(diff) > 0 {
		return nil, blame(fault, fmt.Errorf("the shard is left over from another job of that name: the folder %s is of one that differs in %s", dir, strings.Join(diff, ", ")))
	}
	return folder, nil
}

// open readies a shard for decoding; one that is committed, or of a
// job that was cancelled, gets no run.
func (s *session) open(ctx context.Context, d *shard) error {
	t := d.task
	var err error
	if d.folder, err = s.folder(t); err != nil {
		return err
	}
	if cancelled, err := d.folder.Cancelled(); err != nil || cancelled {
		return err
	}
	if done, err := d.folder.Committed(ctx, string(t.mode), t.shard); err != nil || done {
		return err
	}
	if d.engine, err = s.engine(ctx, t); err != nil {
		return err
	}
	if s.worker.Check != nil {
		if err := s.worker.Check(); err != nil {
			return blame(BlameWorker, err)
		}
	}
	if d.writer, err = d.folder.NewShardWriter(string(t.mode), t.shard); err != nil {
		return err
	}
	d.run = newShardRun(t, s.worker.Name, d.writer, func(c *storage.Completion) {
		p := Progress{
			Job: t.job.Name, Run: t.run, Mode: t.mode, Samples: 1,
			Tokens: int64(c.CompletionTokens), Drafted: int64(c.Drafted), Accepted: int64(c.Accepted),
			BusyNS: c.TotalNS,
		}
		if c.FinishReason == storage.FinishError {
			p.Errors = 1
		}
		s.worker.report(p)
	})
	return nil
}

// fill begins samples in all lanes that are free.
func (s *session) fill(ctx context.Context) {
	for _, e := range s.engines {
		for e.Free() > 0 {
			d := s.next(e)
			if d == nil {
				break
			}
			if err := d.run.admit(e.Engine); err != nil {
				s.fail(ctx, e, err)
				break
			}
		}
	}
}

// step runs one loop of everything in hand, and commits what is complete.
func (s *session) step(ctx context.Context) {
	for _, e := range s.engines {
		if e.Active() > 0 {
			if err := e.Step(ctx); err != nil {
				s.fail(ctx, e, err)
			}
		}
	}
	for _, d := range slices.Clone(s.shards) {
		if d.run.finished() {
			s.settle(ctx, d, s.commit(ctx, d))
		}
	}
}

// fail gives up the shards of an engine. An error of unknown cause is held
// against the engine first: one that cannot be opened again, or cannot decode a
// token, is this worker's fault.
func (s *session) fail(ctx context.Context, e *opened, err error) {
	e.Drop()
	var of []*shard
	for _, d := range s.shards {
		if d.engine == e {
			of = append(of, d)
		}
	}
	if len(of) > 0 && ctx.Err() == nil && BlameFor(err) == BlameUnknown {
		if broken := s.reopen(ctx, of[0].task, e); broken != nil && ctx.Err() == nil {
			err = blame(BlameWorker, fmt.Errorf("%w; and the models do not recover: %w", err, broken))
		}
	}
	for _, d := range of {
		s.settle(ctx, d, err)
	}
}

// reopen puts a new engine in the place of one that failed, and tries it.
func (s *session) reopen(ctx context.Context, t *task, e *opened) error {
	if s.engines[t.mode] == e {
		delete(s.engines, t.mode)
		e.close()
	}
	fresh, err := s.engine(ctx, t)
	if err != nil {
		return err
	}
	err = fresh.Admit(engine.Request{
		Prompt: []int32{0}, Limit: 1, Coins: spec.Coins{}, Loop: func(*engine.Loop) error { return nil },
		Done: func(done *engine.Sequence) error { return done.Err },
	})
	for err == nil && fresh.Active() > 0 {
		err = fresh.Step(ctx)
	}
	if err != nil {
		delete(s.engines, t.mode)
		fresh.Drop()
		fresh.close()
	}
	return err
}

// commit makes a shard's files part of the job. Losing to another worker is as
// good as winning.
func (s *session) commit(ctx context.Context, d *shard) error {
	_, err := d.writer.Commit(ctx)
	d.writer = nil
	if err != nil {
		return err
	}
	s.trouble.over()
	return s.finalize(ctx, d)
}

// finalizeWait is how long a worker waits for another process that completes the job.
const finalizeWait = 10 * time.Second

// finalize completes the job: whoever commits the last shard does. Where another
// process is about to and does not get on, the shard goes back to the queue, so
// that somebody looks again.
func (s *session) finalize(ctx context.Context, d *shard) error {
	ctx, cancel := context.WithTimeout(ctx, finalizeWait)
	defer cancel()
	_, err := d.folder.Finalize(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return blame(BlameDisk, err)
	}
	if err != nil {
		return err
	}
	s.worker.report(Progress{Job: d.task.job.Name, Run: d.task.run, Mode: d.task.mode, Shards: 1})
	return nil
}

// settle lets a shard go, and tells the queue what became of it.
func (s *session) settle(ctx context.Context, d *shard, err error) {
	if d.writer != nil {
		err = errors.Join(err, d.writer.Abort())
	}
	s.shards = slices.DeleteFunc(s.shards, func(other *shard) bool { return other == d })
	if b := BlameFor(err); ctx.Err() == nil && (b == BlameWorker || b == BlameDisk) {
		s.trouble.note(err, func() error {
			if d.folder == nil {
				return nil
			}
			return d.folder.Room()
		})
	}
	if err := s.worker.settle(ctx, d.delivery, err); err != nil {
		s.worker.Log.Warn("shard not settled; it will be delivered again", "shard", d.delivery.Key(), "err", err)
	}
}

// drop gives back everything in hand.
func (s *session) drop(ctx context.Context, err error) {
	for _, e := range s.engines {
		e.Drop()
	}
	if s.held != nil {
		s.shards, s.held = append(s.shards, s.held), nil
	}
	for _, d := range slices.Clone(s.shards) {
		s.settle(ctx, d, err)
	}
}

// engine returns the engine for the task's job and mode.
func (s *session) engine(ctx context.Context, t *task) (*opened, error) {
	if s.job != string(t.spec) {
		s.close()
		s.job, s.engines = string(t.spec), map[Mode]*opened{}
	}
	if e := s.engines[t.mode]; e != nil {
		return e, nil
	}
	settings, err := t.job.Settings(t.mode)
	if err != nil {
		return nil, blame(BlameMessage, err)
	}
	pair, release, err := s.worker.Open(ctx, &t.job, t.place, t.mode)
	if err != nil {
		return nil, blame(BlameWorker, err)
	}
	settings.Lanes, settings.AutoLanes = s.worker.Lanes, s.worker.AutoLanes
	e, err := engine.New(ctx, pair, settings)
	if err != nil {
		release()
		return nil, blame(BlameWorker, err)
	}
	s.engines[t.mode] = &opened{e, release}
	return s.engines[t.mode], nil
}

func (e *opened) close() {
	e.Close()
	e.release()
}

func (s *session) close() {
	for _, e := range s.engines {
		e.close()
	}
	clear(s.folders)
	s.job, s.engines = "", nil
}
