package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// shelf is a queue in memory: publisher, source and deliveries.
type shelf struct {
	waiting  chan *parcel
	queued   map[string]bool
	settled  []string // what became of each delivery, in order
	onSettle func()
}

type parcel struct {
	shelf   *shelf
	key     string
	data    []byte
	attempt int

	advanced atomic.Int32
}

func newShelf() *shelf {
	return &shelf{waiting: make(chan *parcel, 1000), queued: map[string]bool{}}
}

func (s *shelf) Publish(_ context.Context, key string, data []byte) (bool, error) {
	if s.queued[key] {
		return false, nil
	}
	s.queued[key] = true
	s.waiting <- &parcel{shelf: s, key: key, data: data, attempt: 1}
	return true, nil
}

func (s *shelf) Next(ctx context.Context) (Delivery, error) {
	if ctx.Err() != nil { // goes before a shard that is waiting
		return nil, ctx.Err()
	}
	select {
	case p := <-s.waiting:
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *parcel) Key() string                               { return p.key }
func (p *parcel) Data() []byte                              { return p.data }
func (p *parcel) Attempt() int                              { return p.attempt }
func (p *parcel) Trace(ctx context.Context) context.Context { return ctx }
func (p *parcel) Advance()                                  { p.advanced.Add(1) }

func (p *parcel) settle(what string, again int) error {
	name := p.key
	if parts := strings.Split(p.key, "/"); len(parts) == 4 {
		name = parts[0] + "/" + parts[2] + "/" + parts[3] // without the run
	}
	p.shelf.settled = append(p.shelf.settled, what+" "+name)
	if again > 0 {
		p.attempt = again
		p.shelf.waiting <- p
	} else {
		delete(p.shelf.queued, p.key)
	}
	if p.shelf.onSettle != nil {
		p.shelf.onSettle()
	}
	return nil
}

func (p *parcel) Ack(context.Context) error                  { return p.settle("ack", 0) }
func (p *parcel) Retry(context.Context, time.Duration) error { return p.settle("retry", p.attempt+1) }
func (p *parcel) Release(context.Context) error              { return p.settle("release", p.attempt) }
func (p *parcel) Reject(_ context.Context, err error) error  { return p.settle("reject", 0) }

// rowsOf yields n rows; the third has no prompt.
type rowsOf struct{ n, next int }

func (r *rowsOf) Next() (storage.Row, error) {
	if r.next == r.n {
		return storage.Row{}, io.EOF
	}
	i := r.next
	r.next++
	return storage.Row{
		Index: int64(i), ID: fmt.Sprintf("row/%d", i), Prompt: []byte("abba"), Null: i == 2,
		Fields: map[string]string{"text": fmt.Sprintf("b%d", i)},
	}, nil
}

func testJob() Job {
	return Job{
		Name: "job", Dataset: Dataset{Name: "data", SHA256: "00"}, Modes: []Mode{ArS, SpS}, ShardRows: 2,
		Target: Model{Name: "t", Digest: "1"}, Draft: &Model{Name: "d", Digest: "2"}, K: 3,
		Sampling: spec.Sampling{Temperature: 1}, Seed: 3, Samples: 1, MaxNewTokens: 20,
	}
}

// bench is a job folder, a queue and a worker over scripted models.
type bench struct {
	*shelf
	folder *storage.Job
	job    Job
	place  Place
	worker *Worker
	opened int // pairs opened and released
	closed int
	target *enginetest.Model
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{shelf: newShelf(), job: testJob()}
	b.create(t, t.TempDir())
	tok, eos := enginetest.Letters(t, "ab")
	b.target = enginetest.New(t, 3, enginetest.Hashed(3, 1))
	b.worker = &Worker{
		Name: "w", Source: b.shelf, MaxAttempts: 3, Log: slog.New(slog.DiscardHandler),
		Open: func(_ context.Context, _ *Job, _ Place, m Mode) (engine.Pair, func(), error) {
			b.opened++
			pair := engine.Pair{Target: b.target, Tokenizer: tok, EOS: []int32{eos}}
			if m == SpS {
				pair.Draft = enginetest.New(t, 3, enginetest.Hashed(3, 2))
			}
			return pair, func() { b.closed++ }, nil
		},
	}
	return b
}

// create makes the job's folder.
func (b *bench) create(t *testing.T, out string) {
	t.Helper()
	spec, err := b.job.Spec()
	if err != nil {
		t.Fatal(err)
	}
	b.place.Out = out
	if b.folder, err = storage.CreateJob(out, b.job.Name, spec); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) submitter() *Submitter {
	return &Submitter{Job: b.job, Place: b.place, Folder: b.folder, Publisher: b.shelf}
}

// key names a shard of the bench's job.
func (b *bench) key(t *testing.T, m Mode, shard int) string {
	t.Helper()
	spec, err := b.job.Spec()
	if err != nil {
		t.Fatal(err)
	}
	return Key(b.job.Name, Run(spec, b.place.Out), m, shard)
}

func (b *bench) publish(t *testing.T, rows int) Published {
	t.Helper()
	n, err := b.submitter().Publish(t.Context(), &rowsOf{n: rows}, func(Mode, int, bool) {})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// work runs the worker until n deliveries are settled.
func (b *bench) work(t *testing.T, n int) {
	t.Helper()
	drain, stop := context.WithCancel(t.Context())
	defer stop()
	b.onSettle = func() {
		if len(b.settled) >= n {
			stop()
		}
	}
	if err := b.worker.Run(t.Context(), drain); err != nil {
		t.Fatal(err)
	}
}

// rows lists every sample of a mode that the job's files hold.
func (b *bench) rows(t *testing.T, m Mode) []string {
	t.Helper()
	var rows []string
	if err := b.folder.ReadCompletions(string(m), func(c storage.Completion) error {
		rows = append(rows, fmt.Sprintf("%s/%d %s", c.RowID, c.Sample, c.FinishReason))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(rows)
	return rows
}

func TestJobFromRowsToSuccess(t *testing.T) {
	b := newBench(t)
	var sum Progress
	b.worker.Report = func(p Progress) {
		sum.Samples += p.Samples
		sum.Errors += p.Errors
		sum.Shards += p.Shards
	}
	if n := b.publish(t, 5); n != (Published{Rows: 5, Shards: 3, Fresh: 6}) {
		t.Errorf("published %+v", n)
	}
	if n := b.publish(t, 5); n != (Published{Rows: 5, Shards: 3, Queued: 6}) {
		t.Errorf("published again %+v", n)
	}
	b.work(t, 6)
	if err := b.submitter().Wait(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if !b.folder.Done() {
		t.Error("the job is not done")
	}
	if sum.Samples != 10 || sum.Errors != 2 || sum.Shards != 6 {
		t.Errorf("reported %+v", sum)
	}
	for _, m := range []Mode{ArS, SpS} {
		rows := b.rows(t, m)
		if len(rows) != 5 || rows[2] != "row/2/0 error" {
			t.Errorf("%s: rows %v", m, rows)
		}
	}
	if n := b.publish(t, 5); n != (Published{Rows: 5, Shards: 3, Committed: 6}) {
		t.Errorf("published when done %+v", n)
	}
	if b.opened != 2 || b.closed != 2 {
		t.Errorf("opened %d pairs and closed %d, want one for each mode", b.opened, b.closed)
	}
	if len(b.target.Slots) != 0 {
		t.Errorf("slots are left: %v", slices.Collect(maps.Keys(b.target.Slots)))
	}
}

// TestRedeliveredShardIsFoundDone: a worker that dies between the commit and
// the acknowledgement costs nothing but the delivery.
func TestRedeliveredShardIsFoundDone(t *testing.T) {
	b := newBench(t)
	b.publish(t, 1)
	p := <-b.waiting
	b.waiting <- p
	b.work(t, 2)
	passes := b.target.Passes
	p.attempt = 2
	b.waiting <- p
	b.work(t, 3)
	if b.target.Passes != passes {
		t.Error("a committed shard was decoded again")
	}
	if want := "ack job/ars/00000"; b.settled[2] != want {
		t.Errorf("settled by %q, want %q", b.settled[2], want)
	}
}

// picky is a model that fails at longer sequences, but for a prompt of one token.
type picky struct{ *enginetest.Model }

func (p picky) Forward(ctx context.Context, spans []engine.Span) ([]float32, error) {
	for _, s := range spans {
		if s.Past+len(s.Tokens) >= 3 && (s.Past > 0 || s.Tokens[1] == 1) {
			return nil, errors.New("device lost")
		}
	}
	return p.Model.Forward(ctx, spans)
}

// wakeAtOnce makes pauses take no time for the rest of the test, and counts them.
func wakeAtOnce(t *testing.T) *int {
	t.Helper()
	was, slept := sleep, 0
	sleep = func(ctx context.Context, _ time.Duration) error { slept++; return ctx.Err() }
	t.Cleanup(func() { sleep = was })
	return &slept
}

// overseer is what the shelf says of a job.
type overseer struct {
	*shelf
	reasons map[string]string
	err     error
	asked   int
	looked  func() // called at each Rejected, if there is one
}

func (o *overseer) Queued(context.Context) ([]string, error) {
	o.asked++
	return slices.Collect(maps.Keys(o.queued)), o.err
}

func (o *overseer) Rejected(context.Context) (map[string]string, error) {
	if o.looked != nil {
		o.looked()
	}
	return o.reasons, o.err
}

// TestFailingShards: a shard that a sound model fails at is retried, and set aside
// after MaxAttempts; the rest goes on, and Wait says what is missing and why.
func TestFailingShards(t *testing.T) {
	b := newBench(t)
	b.publish(t, 1)
	sound := b.worker.Open
	b.worker.Open = func(ctx context.Context, job *Job, place Place, m Mode) (engine.Pair, func(), error) {
		pair, release, err := sound(ctx, job, place, m)
		pair.Target = picky{b.target}
		return pair, release, err
	}
	b.work(t, 6)
	want := []string{"retry job/ars/00000", "retry job/sps/00000", "retry job/ars/00000", "retry job/sps/00000", "reject job/ars/00000", "reject job/sps/00000"}
	if !slices.Equal(b.settled, want) {
		t.Errorf("settled %q", b.settled)
	}
	if b.opened != b.closed || b.opened < 6 {
		t.Errorf("opened %d pairs and closed %d, want a new one after each failure", b.opened, b.closed)
	}
	s := b.submitter()
	s.Overseer = &overseer{shelf: b.shelf, reasons: map[string]string{b.key(t, ArS, 0): "device lost", b.key(t, SpS, 0): "device lost"}}
	if err := s.Wait(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "2 shards of job job failed") {
		t.Errorf("Wait does not say that shards are missing: %v", err)
	}
	if b.folder.Done() {
		t.Error("the job is called done")
	}
	b.worker.Open = sound
	if n := b.publish(t, 1); n.Fresh != 2 {
		t.Errorf("published after the rejection %+v", n)
	}
	b.work(t, 8)
	if err := b.submitter().Wait(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestABrokenWorkerBurnsNoShard: a worker whose models do not load, or whose device
// is gone, hands its shards back uncounted, pauses so that others get them, and
// ends with the reason.
func TestABrokenWorkerBurnsNoShard(t *testing.T) {
	for name, breakIt := range map[string]func(*bench){
		"models that do not load": func(b *bench) {
			b.worker.Open = func(context.Context, *Job, Place, Mode) (engine.Pair, func(), error) {
				return engine.Pair{}, nil, errors.New("model folder wrong has another digest")
			}
		},
		"a model file that was written over": func(b *bench) {
			b.worker.Check = func() error { return errors.New("the file weights has another digest than when it was loaded") }
		},
		"a model file that was written over under a shard": func(b *bench) {
			asked := 0
			b.worker.Check = func() error {
				if asked++; asked%2 == 1 { // before the shard is decoded, and before it is committed
					return nil
				}
				return errors.New("the file weights has another digest than when it was loaded")
			}
		},
		"a device that is gone": func(b *bench) { b.target.Fail = errors.New("another digest: device lost") },
	} {
		t.Run(name, func(t *testing.T) {
			slept := wakeAtOnce(t)
			b := newBench(t)
			b.publish(t, 1)
			breakIt(b)
			err := b.worker.Run(t.Context(), t.Context())
			if err == nil || !strings.Contains(err.Error(), "another digest") {
				t.Errorf("the worker ends with %v", err)
			}
			for _, s := range b.settled {
				if !strings.HasPrefix(s, "release ") {
					t.Errorf("settled %q", b.settled)
				}
			}
			if len(b.settled) != worstFaults || *slept < worstFaults-1 {
				t.Errorf("%d shards handed back with %d pauses", len(b.settled), *slept)
			}
		})
	}
}

// TestAShardThatKillsItsWorker: the count of attempts is looked at before a shard
// is touched, since whoever died with it said nothing.
func TestAShardThatKillsItsWorker(t *testing.T) {
	b := newBench(t)
	b.publish(t, 1)
	(<-b.waiting).attempt = 0 // the ars shard is gone
	p := <-b.waiting
	p.attempt = b.worker.MaxAttempts + 1
	b.waiting <- p
	b.work(t, 1)
	if want := []string{"reject job/sps/00000"}; !slices.Equal(b.settled, want) || b.opened > 0 {
		t.Errorf("settled %q, %d models opened", b.settled, b.opened)
	}
}

// TestADiskWithoutRoom: the shard goes back uncounted, and no other is taken until
// the disk has room, however long that lasts.
func TestADiskWithoutRoom(t *testing.T) {
	b := newBench(t)
	b.publish(t, 1)
	blocked := filepath.Join(b.folder.Dir(), "_staging")
	if err := os.MkdirAll(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	full := &Fault{BlameDisk, fmt.Errorf("write %s: %w", blocked, syscall.ENOSPC)}
	fails, slept := 3, wakeAtOnce(t)
	sound := b.worker.Open
	b.worker.Open = func(ctx context.Context, job *Job, place Place, m Mode) (engine.Pair, func(), error) {
		if fails--; fails >= 0 {
			return engine.Pair{}, nil, full
		}
		return sound(ctx, job, place, m)
	}
	b.worker.MaxAttempts = 1
	b.work(t, 5)
	if want := []string{"release", "release", "release", "ack", "ack"}; !slices.EqualFunc(b.settled, want, strings.HasPrefix) || *slept != 3 {
		t.Errorf("settled %q with %d pauses", b.settled, *slept)
	}
}

// TestShardsThatAreNone: what cannot be read is set aside at once, and the worker
// goes on.
func TestShardsThatAreNone(t *testing.T) {
	b := newBench(t)
	b.publish(t, 1)
	p := <-b.waiting
	<-b.waiting
	b.waiting <- &parcel{shelf: b.shelf, key: "job/ars/00000", data: []byte("no shard"), attempt: 1}
	job := testJob()
	job.Name = "../elsewhere"
	elsewhere := filepath.Join(filepath.Dir(b.place.Out), "elsewhere")
	spec, err := job.Spec()
	if err != nil {
		t.Fatal(err)
	}
	data, err := encodeShard(spec, b.place, ArS, 0, []storage.ShardRow{{Prompt: []byte("a")}})
	if err != nil {
		t.Fatal(err)
	}
	b.waiting <- &parcel{shelf: b.shelf, key: Key(job.Name, Run(spec, b.place.Out), ArS, 0), data: data, attempt: 1}
	// A sound message under the key of another.
	p.key = strings.Replace(p.key, "/ars/", "/sps/", 1)
	b.waiting <- p
	b.work(t, 3)
	if want := []string{"reject job/ars/00000", "reject ", "reject job/sps/00000"}; !slices.EqualFunc(b.settled, want, strings.HasPrefix) {
		t.Errorf("settled %q", b.settled)
	}
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("a job's name led out of the output folder")
	}
}

// TestLeftoversOfAnotherJob: a job's folder is removed and a job of the same name
// made there; what is still queued of the first is not decoded into the second,
// though the worker had the folder open.
func TestLeftoversOfAnotherJob(t *testing.T) {
	b := newBench(t)
	b.publish(t, 4)
	b.work(t, 1) // the worker has seen the first folder
	if err := os.RemoveAll(b.folder.Dir()); err != nil {
		t.Fatal(err)
	}
	b.job.Sampling.Temperature = 0.2
	b.create(t, b.place.Out)
	if n := b.publish(t, 4); n.Fresh != 4 || n.Queued != 0 {
		t.Errorf("published %+v beside the leftovers", n)
	}
	b.settled = nil
	b.work(t, 7)
	if got := strings.Join(b.settled, " "); strings.Count(got, "reject") != 3 || strings.Count(got, "ack") != 4 {
		t.Errorf("settled %q", b.settled)
	}
	if !b.folder.Done() {
		t.Error("the job is not done")
	}
}

// TestTwoJobsOfOneName: one name, two output folders, one queue: both are done.
func TestTwoJobsOfOneName(t *testing.T) {
	b := newBench(t)
	first := b.folder
	b.publish(t, 2)
	b.create(t, t.TempDir())
	if n := b.publish(t, 2); n.Fresh != 2 {
		t.Errorf("the second job of that name published %+v", n)
	}
	b.work(t, 4)
	if !first.Done() || !b.folder.Done() {
		t.Errorf("done: %v and %v", first.Done(), b.folder.Done())
	}
}

// TestAJobWithoutAPlan: all shards were committed before submit could write the
// plan; the next one completes the job without waiting.
func TestAJobWithoutAPlan(t *testing.T) {
	b := newBench(t)
	b.publish(t, 1)
	if err := os.Remove(filepath.Join(b.folder.Dir(), "_plan.json")); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.folder, err = storage.OpenJob(b.folder.Dir()); err != nil {
		t.Fatal(err)
	}
	b.work(t, 2)
	if b.folder.Done() {
		t.Fatal("done without a plan")
	}
	if n := b.publish(t, 1); n.Committed != 2 || !b.folder.Done() {
		t.Errorf("published %+v, done: %v", n, b.folder.Done())
	}
}

// TestTheQueueLosesShards: Wait asks what is queued and publishes what is missing
// there, and only that; a queue that does not answer is waited for.
func TestTheQueueLosesShards(t *testing.T) {
	b := newBench(t)
	b.publish(t, 4)
	lost := []*parcel{<-b.waiting, <-b.waiting}
	for _, p := range lost {
		delete(b.queued, p.key)
	}
	s := b.submitter()
	o := &overseer{shelf: b.shelf, err: &Fault{BlameNetwork, errors.New("no answer")}}
	s.Overseer = o
	reopened := 0
	s.Reopen = func() (Rows, func() error, error) {
		reopened++
		return &rowsOf{n: 4}, func() error { return nil }, nil
	}
	s.Log = slog.New(slog.DiscardHandler)
	looks := 0 // at which the wait is ended
	wait := func(enough func() bool) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o.looked = func() {
			if enough() {
				looks++
			}
			if looks == 3 {
				looks = 0
				cancel()
			}
		}
		return s.wait(ctx, nil, time.Millisecond, time.Millisecond)
	}
	if err := wait(func() bool { return true }); !errors.Is(err, context.Canceled) {
		t.Fatalf("a queue that does not answer ends the wait: %v", err)
	}
	o.err = nil
	if err := wait(func() bool { return len(b.waiting) == 4 }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if len(b.waiting) != 4 || reopened != 1 {
		t.Errorf("%d shards are queued after the dataset was read %d times, want 4 after 1", len(b.waiting), reopened)
	}
	b.work(t, 4)
	if err := s.Wait(t.Context(), nil); err != nil || !b.folder.Done() {
		t.Errorf("the job does not end: %v", err)
	}
}

// TestLatencyHoldsAllOfASample: with one lane, nothing that a sample takes is
// outside of its latency, the tokenizer's time included.
func TestLatencyHoldsAllOfASample(t *testing.T) {
	b := newBench(t)
	b.publish(t, 8)
	b.work(t, 8)
	for _, m := range b.job.Modes {
		if err := b.folder.ReadCompletions(string(m), func(c storage.Completion) error {
			if c.LatencyNS < c.TotalNS {
				t.Errorf("%s row %d: latency %d ns, total %d ns", m, c.Row, c.LatencyNS, c.TotalNS)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPromptsWithoutMeasure: a prompt beyond all measure is a row with an error,
// and is not carried over the queue; a shard of many such is refused.
func TestPromptsWithoutMeasure(t *testing.T) {
	b := newBench(t)
	long := slices.Repeat([]byte("a"), MaxPrompt+5)
	rows := func(n int) Rows { return &repeated{storage.Row{Prompt: long}, n} }
	seen := func(Mode, int, bool) {}
	if _, err := b.submitter().Publish(t.Context(), rows(1), seen); err != nil {
		t.Fatal(err)
	}
	if size := len((<-b.waiting).data); size > MaxPrompt+1<<16 {
		t.Errorf("the message has %d bytes", size)
	}
	b.work(t, 1)
	found := 0
	if err := b.folder.ReadCompletions("sps", func(c storage.Completion) error {
		found++
		if !strings.Contains(c.Error, "more than 16 MiB") {
			t.Errorf("error %q", c.Error)
		}
		return nil
	}); err != nil || found != 1 {
		t.Errorf("%d rows (%v)", found, err)
	}
	b.job.ShardRows = 100
	if _, err := b.submitter().Publish(t.Context(), rows(100), seen); err == nil || !strings.Contains(err.Error(), "smaller shard_rows") {
		t.Errorf("a shard of 1.6 GB: %v", err)
	}
}

// repeated yields a row n times.
type repeated struct {
	row storage.Row
	n   int
}

func (r *repeated) Next() (storage.Row, error) {
	if r.n--; r.n < 0 {
		return storage.Row{}, io.EOF
	}
	return r.row, nil
}

func TestTemplateColumns(t *testing.T) {
	for text, want := range map[string]string{
		"": "[]", "plain": "[]", "{{.a}} and {{.b}}": "[a b]", "{{if .a}}{{$.b}}{{else}}{{printf \"%s\" .c}}{{end}}": "[a b c]",
		"{{index . \"a b\"}}": "all", "{{with .a}}{{.}}{{end}}": "all", "{{range $k, $v := $}}{{$v}}{{end}}": "all",
	} {
		names, err := TemplateColumns(text)
		got := fmt.Sprint(names)
		if names == nil {
			got = "all"
		}
		if err != nil || got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
	if _, err := TemplateColumns("{{"); err == nil {
		t.Error("a broken template is taken")
	}
}

// TestNamesThatDatasetsGive: a job's default name is one that its folder can have.
func TestNamesThatDatasetsGive(t *testing.T) {
	for _, name := range []string{"_train.jsonl", "-x.parquet", "__", "a b.c", strings.Repeat("_x", 60), "données.jsonl", ""} {
		j := testJob()
		j.Dataset.Name = name
		var err error
		if j.Name, err = j.DefaultName(); err != nil {
			t.Fatal(err)
		}
		if err := j.Validate(); err != nil {
			t.Errorf("dataset %q: %v", name, err)
		}
		if _, err := storage.CreateJob(t.TempDir(), j.Name, []byte("{}")); err != nil {
			t.Errorf("dataset %q: %v", name, err)
		}
	}
}

// TestACancelledJob: its shards leave the queue without being decoded, who waits
// for it is told, and it can be taken up again.
func TestACancelledJob(t *testing.T) {
	b := newBench(t)
	b.publish(t, 4)
	b.work(t, 1)
	if err := b.folder.Cancel(); err != nil {
		t.Fatal(err)
	}
	if err := b.submitter().Wait(t.Context(), nil); !errors.Is(err, ErrCancelled) {
		t.Errorf("Wait ends with %v", err)
	}
	passes := b.target.Passes
	b.work(t, 4)
	if len(b.queued) != 0 || b.target.Passes != passes {
		t.Errorf("%d shards are queued, %d passes were run for a cancelled job", len(b.queued), b.target.Passes-passes)
	}
	if n, err := b.folder.CountCommitted("ars"); n != 1 || err != nil {
		t.Errorf("%d shards committed (%v)", n, err)
	}
	if err := b.folder.Resume(); err != nil {
		t.Fatal(err)
	}
	if n := b.publish(t, 4); n.Committed != 1 || n.Fresh != 3 {
		t.Errorf("published %+v", n)
	}
	b.work(t, 7)
	if err := b.submitter().Wait(t.Context(), nil); err != nil || !b.folder.Done() {
		t.Errorf("taken up again: %v", err)
	}
}

// TestStopping: a drain finishes the shard in hand and takes no other; the end
// of ctx gives it back without counting the attempt.
func TestStopping(t *testing.T) {
	b := newBench(t)
	b.publish(t, 4)
	drain, stop := context.WithCancel(t.Context())
	b.worker.Report = func(Progress) { stop() }
	if err := b.worker.Run(t.Context(), drain); err != nil {
		t.Fatal(err)
	}
	if want := []string{"ack job/ars/00000"}; !slices.Equal(b.settled, want) {
		t.Errorf("settled %q after a drain", b.settled)
	}
	b.settled = nil
	ctx, cancel := context.WithCancel(t.Context())
	b.worker.Report = func(Progress) { cancel() }
	if err := b.worker.Run(ctx, ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if want := []string{"release job/sps/00000"}; !slices.Equal(b.settled, want) {
		t.Errorf("settled %q after a hard stop", b.settled)
	}
	if done, err := b.folder.Committed(t.Context(), "sps", 0); err != nil || done {
		t.Errorf("a shard that was given back is committed (%v)", err)
	}
}

func TestPublishLimitsAndTemplates(t *testing.T) {
	b := newBench(t)
	b.job.Dataset.Limit = 3
	b.job.Dataset.Template = "def {{.text}}:"
	if n := b.publish(t, 100); n != (Published{Rows: 3, Shards: 2, Fresh: 4}) {
		t.Errorf("published %+v", n)
	}
	first := <-b.waiting
	got, err := decodeTask(first.key, first.data)
	if err != nil {
		t.Fatal(err)
	}
	if p := string(got.rows[1].Prompt); p != "def b1:" {
		t.Errorf("prompt %q", p)
	}
	b.job.Dataset.Template = "{{.nothing}}"
	if _, err := b.submitter().Publish(t.Context(), &rowsOf{n: 1}, func(Mode, int, bool) {}); err == nil {
		t.Error("a template over a missing column is taken")
	}
	b.job.Dataset.Template = "{{"
	if _, err := b.submitter().Publish(t.Context(), &rowsOf{n: 1}, func(Mode, int, bool) {}); err == nil {
		t.Error("a broken template is taken")
	}
	b.job.Dataset.Template = ""
	if _, err := b.submitter().Publish(t.Context(), &rowsOf{}, func(Mode, int, bool) {}); err == nil {
		t.Error("an empty dataset is taken")
	}
}

func TestJobsAreKnownByTheirSpecification(t *testing.T) {
	a, b := testJob(), testJob()
	nameA, err := a.DefaultName()
	if err != nil {
		t.Fatal(err)
	}
	b.Name = "other" // the name is no part of what a name is made from
	if nameB, _ := b.DefaultName(); nameA != nameB {
		t.Errorf("%s and %s", nameA, nameB)
	}
	b.Seed++
	if nameB, _ := b.DefaultName(); nameA == nameB {
		t.Error("another seed has the same name")
	}
	for name, change := range map[string]func(*Job){
		"no mode":             func(j *Job) { j.Modes = nil },
		"sps without a draft": func(j *Job) { j.Draft = nil },
		"no lookahead":        func(j *Job) { j.K = 0 },
		"empty stop":          func(j *Job) { j.Stop = []string{""} },
		"temperature":         func(j *Job) { j.Sampling.Temperature = -1 },
		"samples":             func(j *Job) { j.Samples = 0 },
		"name":                func(j *Job) { j.Name = "a/b" },
	} {
		j := testJob()
		if change(&j); j.Validate() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// gone is what a decoder says whose device is lost.
type gone struct{}

func (gone) Error() string    { return "device cuda:1 is lost" }
func (gone) DeviceLost() bool { return true }

// TestALostDevice: in the middle of a run a device is lost. Its worker hands
// everything in hand back uncounted, asks for nothing more and says why; another
// worker does the job.
func TestALostDevice(t *testing.T) {
	b := newBench(t)
	passes := 0
	b.target.Before = func() {
		if passes++; passes > 4 {
			b.target.Fail = fmt.Errorf("a pass over 3 sequences: %w", gone{})
		}
	}
	b.publish(t, 6)
	ctx, cancel := context.WithCancel(t.Context()) // a worker that goes on would never end
	defer cancel()
	b.onSettle = func() {
		if len(b.settled) > 40 {
			cancel()
		}
	}
	err := b.worker.Run(ctx, ctx)
	if err == nil || !strings.Contains(err.Error(), "the worker stops, others take its shards: ") || !strings.Contains(err.Error(), "device cuda:1 is lost") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("the worker ended with %v", err)
	}
	if len(b.settled) == 0 || slices.ContainsFunc(b.settled, func(s string) bool { return !strings.HasPrefix(s, "release ") && !strings.HasPrefix(s, "ack ") }) {
		t.Errorf("settled %v", b.settled)
	}
	if b.opened != b.closed {
		t.Errorf("opened %d pairs and closed %d", b.opened, b.closed)
	}
	b.target.Before, b.target.Fail = nil, nil // another device
	left := 6
	for _, s := range b.settled {
		if strings.HasPrefix(s, "ack ") {
			left--
		}
	}
	b.settled = nil
	b.work(t, left)
	if err := b.submitter().Wait(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, s := range b.settled {
		if !strings.HasPrefix(s, "ack ") {
			t.Errorf("settled %v", b.settled)
		}
	}
}
