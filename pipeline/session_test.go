package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/storage"
)

// TestShardsShareLanes: the rows of several shards are decoded together, and
// every shard's files are what they are when it is decoded alone.
func TestShardsShareLanes(t *testing.T) {
	read := func(lanes int) (string, int) {
		b := newBench(t)
		b.worker.Lanes = lanes
		b.publish(t, 18)
		b.work(t, 18)
		text, most := "", 0
		for _, m := range b.job.Modes {
			if err := b.folder.ReadCompletions(string(m), func(c storage.Completion) error {
				text += fmt.Sprintln(m, c.Row, c.Sample, c.Tokens, c.Loops, c.FinishReason)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := b.folder.ReadLoops(string(m), func(l storage.Loop) error {
				most = max(most, int(l.Lanes))
				l.Lanes, l.DraftNS, l.ScoreNS, l.SampleNS = 0, 0, 0, 0
				text += fmt.Sprintln(m, l)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		return text, most
	}
	want, most := read(1)
	if most != 1 {
		t.Errorf("one lane takes %d", most)
	}
	for _, lanes := range []int{3, 7} {
		got, most := read(lanes)
		if got != want {
			t.Errorf("%d lanes write other files than one:\n%s\n%s", lanes, got, want)
		}
		if most <= 2 { // a shard has no more samples
			t.Errorf("of %d lanes %d are used", lanes, most)
		}
	}
}

// TestFailedShardsRunAlone: a shard that was delivered before shares no lanes,
// so that one which fails again and again takes no other down with it.
func TestFailedShardsRunAlone(t *testing.T) {
	b := newBench(t)
	b.worker.Lanes = 8
	b.job.Modes = []Mode{ArS}
	b.create(t, t.TempDir())
	b.publish(t, 16)
	once := true
	sound := b.worker.Open
	b.worker.Open = func(ctx context.Context, job *Job, place Place, m Mode) (engine.Pair, func(), error) {
		pair, release, err := sound(ctx, job, place, m)
		if once {
			pair.Target = picky{b.target}
		}
		once = false
		return pair, release, err
	}
	drain, stop := context.WithCancel(t.Context())
	defer stop()
	failed, acked := map[int64]bool{}, 0
	b.onSettle = func() {
		var shard int64
		switch last := b.settled[len(b.settled)-1]; {
		case strings.HasPrefix(last, "ack"):
			if acked++; acked == 8 {
				stop()
			}
		default:
			if _, err := fmt.Sscanf(last, "retry job/ars/%d", &shard); err != nil {
				t.Error(last)
			}
			failed[shard] = true
		}
	}
	if err := b.worker.Run(t.Context(), drain); err != nil {
		t.Fatal(err)
	}
	most := map[bool]int32{}
	if err := b.folder.ReadLoops(string(ArS), func(l storage.Loop) error {
		before := failed[l.Row/2]
		most[before] = max(most[before], l.Lanes)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(failed) == 0 || most[true] > 2 || most[false] <= 2 {
		t.Errorf("shards %v failed; they share lanes with %d sequences, others with %d", failed, most[true], most[false])
	}
}
