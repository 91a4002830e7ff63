package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
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

func (p *parcel) Key() string { return p.key }

func (p *parcel) Data() []byte { return p.data }

func (p *parcel) Attempt() int { return p.attempt }

func (p *parcel) Trace(ctx context.Context) context.Context { return ctx }

func (p *parcel) Advance() { p.advanced.Add(1) }

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

func (p *parcel) Ack(context.Context) error { return p.settle("ack", 0) }

func (p *parcel) Retry(context.Context, time.Duration) error { return p.settle("retry", p.attempt+1) }

func (p *parcel) Release(context.Context) error { return p.settle("release", p.attempt) }

func (p *parcel) Reject(_ context.Context, err error) error { return p.settle("reject", 0) }

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
