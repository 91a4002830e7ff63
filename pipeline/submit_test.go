package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/draftmill/draftmill/storage"
)

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
