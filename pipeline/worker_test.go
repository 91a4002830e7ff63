package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
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
}

func newShelf() *shelf {
	return &shelf{waiting: make(chan *parcel, 1000), queued: map[string]bool{}}
}

func (s *shelf) Publish(_ context.Context, key string, data []byte) (bool, error) {
	if s.queued[key] {
		return false, nil
	}
	s.queued[key] = true
	s.waiting <- &parcel{s, key, data, 1}
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

func (p *parcel) Key() string  { return p.key }
func (p *parcel) Data() []byte { return p.data }
func (p *parcel) Attempt() int { return p.attempt }

func (p *parcel) settle(what string, again int) error {
	p.shelf.settled = append(p.shelf.settled, what+" "+p.key)
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
		Target: Model{"t", "1"}, Draft: &Model{"d", "2"}, K: 3,
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
	b := &bench{shelf: newShelf(), job: testJob(), place: Place{Out: t.TempDir()}}
	spec, err := b.job.Spec()
	if err != nil {
		t.Fatal(err)
	}
	if b.folder, err = storage.CreateJob(b.place.Out, b.job.Name, spec); err != nil {
		t.Fatal(err)
	}
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

func (b *bench) submitter() *Submitter {
	return &Submitter{Job: b.job, Place: b.place, Folder: b.folder, Publisher: b.shelf}
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
	if want := "ack " + p.key; b.settled[2] != want {
		t.Errorf("settled by %q, want %q", b.settled[2], want)
	}
}

// TestFailingShards: a shard is retried, and set aside after MaxAttempts; the
// rest goes on, and Wait says what is missing and why.
func TestFailingShards(t *testing.T) {
	b := newBench(t)
	b.publish(t, 1)
	b.target.Fail = errors.New("device lost")
	b.work(t, 6)
	want := []string{"retry job/ars/00000", "retry job/sps/00000", "retry job/ars/00000", "retry job/sps/00000", "reject job/ars/00000", "reject job/sps/00000"}
	if !slices.Equal(b.settled, want) {
		t.Errorf("settled %q", b.settled)
	}
	s := b.submitter()
	s.Rejected = func(context.Context) ([]string, error) { return []string{"ars: device lost", "sps: device lost"}, nil }
	if err := s.Wait(t.Context(), nil); err == nil {
		t.Error("Wait does not say that shards are missing")
	}
	if b.folder.Done() {
		t.Error("the job is called done")
	}
	b.target.Fail = nil
	if n := b.publish(t, 1); n.Fresh != 2 {
		t.Errorf("published after the rejection %+v", n)
	}
	b.work(t, 8)
	if err := b.submitter().Wait(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestShardsThatAreNone: what cannot be read is retried and set aside like any
// failure, and the worker goes on.
func TestShardsThatAreNone(t *testing.T) {
	b := newBench(t)
	b.worker.MaxAttempts = 1
	b.waiting <- &parcel{b.shelf, "job/ars/00000", []byte("no shard"), 1}
	job := testJob()
	job.Name = "../elsewhere"
	data, err := encodeShard(&job, b.place, ArS, 0, []storage.ShardRow{{Prompt: []byte("a")}})
	if err != nil {
		t.Fatal(err)
	}
	b.waiting <- &parcel{b.shelf, "job/ars/00001", data, 1}
	b.work(t, 2)
	if want := []string{"reject job/ars/00000", "reject job/ars/00001"}; !slices.Equal(b.settled, want) {
		t.Errorf("settled %q", b.settled)
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
	if done, err := b.folder.Committed("sps", 0); err != nil || done {
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
	got, err := decodeTask((<-b.waiting).data)
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
