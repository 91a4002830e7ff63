package pipeline

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/storage"
)

// session is what a worker has in hand: the engines of one job, one for each
// mode, and the shards that they decode. Sequences of several shards share an
// engine's lanes, so that the last rows of a shard do not leave lanes idle.
type session struct {
	worker  *Worker
	job     string // the specification that the engines are for
	engines map[Mode]*engine.Engine
	release []func()

	shards []*shard // begun, or about to
	held   *shard   // waits until no other is in hand
}

// shard is one delivery in hand.
type shard struct {
	delivery Delivery
	task     *task
	folder   *storage.Job
	engine   *engine.Engine
	writer   *storage.ShardWriter
	run      *shardRun
}

// alone reports whether a shard is decoded by itself: one that failed before
// must not take others down with it.
func (d *shard) alone() bool { return d.delivery.Attempt() > 1 }

// hungry reports whether another shard would be of use: no other waits for its
// turn, and an engine has lanes that none in hand can fill.
func (s *session) hungry() bool {
	if s.held != nil || slices.ContainsFunc(s.shards, func(d *shard) bool { return d.alone() || d.run.begun == 0 }) {
		return false
	}
	if len(s.shards) == 0 {
		return true
	}
	return slices.ContainsFunc(s.shards, func(d *shard) bool { return d.engine.Free() > 0 && s.next(d.engine) == nil })
}

// next is the first shard that has samples left to begin in an engine.
func (s *session) next(e *engine.Engine) *shard {
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
	var err error
	if d.task, err = decodeTask(delivery.Data()); err != nil {
		s.settle(ctx, d, err)
		return
	}
	s.held = d
	s.begin(ctx)
}

// begin begins with the shard that waits, if nothing stands in its way.
func (s *session) begin(ctx context.Context) {
	d := s.held
	if d == nil {
		return
	}
	spec, err := d.task.job.Spec()
	if err == nil && len(s.shards) > 0 && (d.alone() || s.job != string(spec)) {
		return
	}
	s.held = nil
	if err == nil {
		err = s.open(ctx, d, string(spec))
	}
	if err != nil {
		s.settle(ctx, d, err)
		return
	}
	if d.run == nil { // it is committed already
		s.settle(ctx, d, s.finalize(d))
		return
	}
	s.shards = append(s.shards, d)
}

// open readies a shard for decoding; one that is committed gets no run.
func (s *session) open(ctx context.Context, d *shard, spec string) error {
	t, out := d.task, d.task.place.Out
	if s.worker.Out != "" {
		out = s.worker.Out
	}
	var err error
	if d.folder, err = storage.OpenJob(filepath.Join(out, t.job.Name)); err != nil {
		return err
	}
	if done, err := d.folder.Committed(string(t.mode), t.shard); err != nil || done {
		return err
	}
	if d.engine, err = s.engine(ctx, t, spec); err != nil {
		return err
	}
	if d.writer, err = d.folder.NewShardWriter(string(t.mode), t.shard); err != nil {
		return err
	}
	d.run = newShardRun(t, s.worker.Name, d.writer, func(c *storage.Completion) {
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
			if err := d.run.admit(e); err != nil {
				s.fail(ctx, e, err)
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
			s.settle(ctx, d, s.commit(d))
		}
	}
}

// fail gives up the shards of an engine.
func (s *session) fail(ctx context.Context, e *engine.Engine, err error) {
	e.Drop()
	for _, d := range slices.Clone(s.shards) {
		if d.engine == e {
			s.settle(ctx, d, err)
		}
	}
}

// commit makes a shard's files part of the job. Losing to another worker is as
// good as winning.
func (s *session) commit(d *shard) error {
	_, err := d.writer.Commit()
	d.writer = nil
	if err != nil {
		return err
	}
	return s.finalize(d)
}

// finalize completes the job: whoever commits the last shard does.
func (s *session) finalize(d *shard) error {
	if _, err := d.folder.Finalize(); err != nil && !errors.Is(err, storage.ErrNoPlan) {
		return err
	}
	s.worker.report(Progress{Job: d.task.job.Name, Mode: d.task.mode, Shards: 1})
	return nil
}

// settle lets a shard go, and tells the queue what became of it.
func (s *session) settle(ctx context.Context, d *shard, err error) {
	if d.writer != nil {
		err = errors.Join(err, d.writer.Abort())
	}
	s.shards = slices.DeleteFunc(s.shards, func(other *shard) bool { return other == d })
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
func (s *session) engine(ctx context.Context, t *task, spec string) (*engine.Engine, error) {
	if s.job != spec {
		s.close()
		s.job, s.engines = spec, map[Mode]*engine.Engine{}
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
	settings.Lanes, settings.AutoLanes = s.worker.Lanes, s.worker.AutoLanes
	e, err := engine.New(ctx, pair, settings)
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
