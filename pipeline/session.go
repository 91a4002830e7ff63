package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
	"github.com/draftmill/draftmill/storage/bucket"
)

// session is what a worker has in hand: the engines of one job, one for each
// mode, and the shards that they decode. Sequences of several shards share an
// engine's lanes, so that the last rows of a shard do not leave lanes idle.
type session struct {
	worker  *Worker
	job     string // the specification that the engines are for
	engines map[Mode]*opened
	folders map[string]*storage.Job // open ones, by path
	reads   engine.Reads            // of the job's models
	noted   map[*storage.Job]storage.Host
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

	trace  context.Context //nolint:containedctx // of the span, from the shard's arrival to its settlement
	span   trace.Span
	decode trace.Span // nil until it is decoded
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
	s.worker.Observer.Delivered(delivery.Attempt())
	d.trace, d.span = tracer().Start(delivery.Trace(context.Background()), "shard", trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("shard", delivery.Key()), attribute.Int("attempt", delivery.Attempt()), attribute.String("worker", s.worker.Name)))
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
	stop := s.busy(d)
	_, opening := tracer().Start(d.trace, "open")
	err := s.open(ctx, d)
	endSpan(opening, err)
	if err == nil && d.run == nil { // nothing to do
		err = s.finalize(ctx, d)
	}
	stop()
	if err != nil || d.run == nil {
		s.settle(ctx, d, err)
		return
	}
	_, d.decode = tracer().Start(d.trace, "decode")
	s.shards = append(s.shards, d)
}

// folder opens the job's folder, or finds it open. Its errors say whose fault
// they are: what this worker was told of itself, --out say, is the worker's.
func (s *session) folder(ctx context.Context, t *task) (*storage.Job, error) {
	out, fault := t.place.Out, BlameMessage
	if s.worker.Out != "" {
		out, fault = s.worker.Out, BlameWorker
	}
	dir := bucket.Join(out, t.job.Name)
	folder := s.folders[dir]
	if folder != nil {
		current, err := folder.Current(ctx)
		if err != nil {
			return nil, blame(BlameWorker, err)
		}
		if !current {
			folder = nil
		}
	}
	if folder == nil {
		var err error
		folder, err = storage.OpenJob(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if _, parent := os.Stat(out); parent != nil && !bucket.IsURL(out) {
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
	if d.folder, err = s.folder(ctx, t); err != nil {
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
	s.noteHost(ctx, d.folder)
	if err := s.check(); err != nil {
		return err
	}
	if d.writer, err = d.folder.NewShardWriter(string(t.mode), t.shard); err != nil {
		return err
	}
	d.writer.Attempt = d.delivery.Attempt()
	d.run = newShardRun(t, s.worker.Name, d.writer, func(c *storage.Completion) {
		p := Progress{
			Job: t.job.Name, Run: t.run, Mode: t.mode, Samples: 1,
			Tokens: int64(c.CompletionTokens), Drafted: int64(c.Drafted), Accepted: int64(c.Accepted),
			BusyNS: c.TotalNS,
		}
		if c.FinishReason == storage.FinishError {
			p.Errors = 1
		}
		s.worker.Observer.Sample(t.mode, c)
		s.worker.report(p)
	})
	d.run.looped = func(l *engine.Loop) { s.worker.Observer.Loop(t.mode, l) }
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
			s.advance()
		}
	}
	s.lanes()
	for _, d := range slices.Clone(s.shards) {
		if d.run.finished() {
			endSpan(d.decode, nil)
			d.decode = nil
			stop := s.busy()
			_, committing := tracer().Start(d.trace, "commit")
			err := s.commit(ctx, d)
			endSpan(committing, err)
			stop()
			s.settle(ctx, d, err)
		}
	}
}

// lanes tells the observer how many sequences are in hand.
func (s *session) lanes() {
	busy, most := 0, 0
	for _, e := range s.engines {
		busy += e.Active()
		most += e.Active() + e.Free()
	}
	s.worker.Observer.Lanes(busy, most)
}

// advance says of everything in hand that the worker gets on with it.
func (s *session) advance() {
	for _, d := range s.shards {
		d.delivery.Advance()
	}
	if s.held != nil {
		s.held.delivery.Advance()
	}
}

// How often, and for how long, what is in hand is said to get on while no loop is run: models are loaded, say, or files
// are committed.
const (
	busyEvery = 50 * time.Millisecond
	busyLimit = 30 * time.Minute
)

// busy says of everything in hand, and of one more shard, that the worker gets on with it, until stop is called or
// busyLimit is over.
func (s *session) busy(more ...*shard) (stop func()) {
	all := append(slices.Clone(s.shards), more...)
	if s.held != nil {
		all = append(all, s.held)
	}
	ctx, cancel := context.WithTimeout(context.Background(), busyLimit)
	go func() {
		every := time.NewTicker(busyEvery)
		defer every.Stop()
		for {
			for _, d := range all {
				d.delivery.Advance()
			}
			select {
			case <-every.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return cancel
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
		defer s.busy()()
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
		Prompt: fresh.Pair().Prompt([]int32{0}), Limit: 1, Coins: spec.Coins{}, Loop: func(*engine.Loop) error { return nil },
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
	if err := s.check(); err != nil { // what was decoded meanwhile may be of another model
		return err
	}
	began := time.Now()
	_, err := d.writer.Commit(ctx)
	d.writer = nil
	if err != nil {
		return err
	}
	s.worker.Observer.Committed(d.task.mode, time.Since(began))
	s.trouble.over()
	return s.finalize(ctx, d)
}

// check asks whether the worker's models are still what was opened.
func (s *session) check() error {
	if s.worker.Check == nil {
		return nil
	}
	return blame(BlameWorker, s.worker.Check())
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
	if b := BlameFor(err); ctx.Err() == nil && (b == BlameWorker || b == BlameDisk || b == BlameNetwork || b == BlameDevice) {
		s.trouble.note(err, func() error {
			if d.folder == nil {
				return nil
			}
			return d.folder.Room()
		})
	}
	endSpan(d.decode, err)
	if d.span != nil {
		defer endSpan(d.span, err)
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
	s.lanes()
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
	if s.reads.PerSecond, s.reads.Target = pair.Reads.PerSecond, pair.Reads.Target; pair.Reads.Draft > 0 { // the other mode has none
		s.reads.Draft = pair.Reads.Draft
	}
	return s.engines[t.mode], nil
}

// noteHost writes once into a job's folder what bounds this worker's speed. The
// report does without where that fails.
func (s *session) noteHost(ctx context.Context, folder *storage.Job) {
	h := storage.Host{Worker: s.worker.Name, Bandwidth: s.reads.PerSecond, TargetBytes: s.reads.Target, DraftBytes: s.reads.Draft}
	if h.Bandwidth == 0 || s.noted[folder] == h {
		return
	}
	if err := folder.NoteHost(ctx, h); err != nil {
		s.worker.Log.Debug("what bounds the speed is not noted", "err", err)
		return
	}
	s.noted[folder] = h
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
	clear(s.noted)
	s.job, s.engines, s.reads = "", nil, engine.Reads{}
}
