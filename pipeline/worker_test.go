package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/storage"
)

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

// TestTheCommitSaysWhichAttempt: a shard's commit record has the count of attempts.
func TestTheCommitSaysWhichAttempt(t *testing.T) {
	b := newBench(t)
	b.publish(t, 1)
	p := <-b.waiting
	p.attempt = 3
	b.waiting <- p
	b.work(t, 2)
	for mode, want := range map[string]string{"ars": `"attempt": 3,`, "sps": `"attempt": 1,`} {
		text, err := os.ReadFile(filepath.Join(b.folder.Dir(), "_shards", "mode="+mode, "part-00000.json"))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, want %s in\n%s", mode, err, want, text)
		}
	}
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

// gone is what a decoder says whose device is lost.
type gone struct{}

func (gone) Error() string { return "device cuda:1 is lost" }

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
