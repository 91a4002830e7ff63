package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// turns opens a queue whose workers take one shard of a run at a time.
func turns(t *testing.T, s *Server, turn time.Duration) *Queue {
	t.Helper()
	q, err := s.Connect(t.Context(), Options{AckWait: 30 * time.Second, Turn: turn})
	check(t, err)
	t.Cleanup(func() { check(t, q.Close()) })
	return q
}

// queue publishes keys and waits until the consumers know of them, a little later than we.
func queue(t *testing.T, q *Queue, keys ...string) {
	t.Helper()
	publish(t, q, true, keys...)
	eventually(t, "consumers that know of what is queued", func() bool {
		jobs, err := q.Jobs(t.Context(), "")
		check(t, err)
		known := 0
		for _, j := range jobs {
			known += j.Queued
		}
		info, err := q.shards.Info(t.Context())
		check(t, err)
		return known == int(info.State.Msgs)
	})
}

// drain takes and acknowledges n shards and returns the first letters of their jobs.
func drain(t *testing.T, s *Source, n int) string {
	t.Helper()
	got := ""
	for range n {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		d, err := s.Next(ctx)
		cancel()
		check(t, err)
		got += d.Key()[:1]
		check(t, d.Ack(t.Context()))
	}
	return got
}

// Jobs with work take turns, however many shards the first one has queued before the others came.
func TestJobsTakeTurns(t *testing.T) {
	t.Parallel()
	q := turns(t, embed(t, t.TempDir(), EmbedOptions{}), 1)
	for i := range 20 {
		queue(t, q, fmt.Sprintf("a/run/ars/%d", i))
	}
	s := source(t, q)
	if got := drain(t, s, 3); got != "aaa" {
		t.Errorf("one job alone: %s", got)
	}
	for i := range 3 {
		queue(t, q, fmt.Sprintf("b/run/ars/%d", i), fmt.Sprintf("c/run/ars/%d", i))
	}
	got := drain(t, s, 12)
	if first := got[:9]; strings.Count(first, "a") != 3 || strings.Count(first, "b") != 3 || strings.Count(first, "c") != 3 || got[9:] != "aaa" {
		t.Errorf("three jobs: %s", got)
	}
	pending(t, q, "", 11)
}

// A worker keeps to a run for its turn, so that it does not open models for each shard, and leaves it when it is empty.
func TestATurnLasts(t *testing.T) {
	t.Parallel()
	q := turns(t, embed(t, t.TempDir(), EmbedOptions{}), time.Hour)
	for i := range 3 {
		queue(t, q, fmt.Sprintf("a/run/ars/%d", i), fmt.Sprintf("b/run/ars/%d", i))
	}
	if got := drain(t, source(t, q), 6); got != "aaabbb" {
		t.Errorf("%s", got)
	}
}

// The highest priority goes first, in the middle of a turn, too; equals take turns; it can be changed while shards wait.
func TestPriorities(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{})
	q := turns(t, server, 1)
	check(t, q.Prioritize(t.Context(), "z/run", -1))
	for i := range 4 {
		queue(t, q, fmt.Sprintf("z/run/ars/%d", i), fmt.Sprintf("a/run/ars/%d", i), fmt.Sprintf("b/run/ars/%d", i))
	}
	s := source(t, q)
	if got := drain(t, s, 2); got != "ab" {
		t.Errorf("two equals: %s", got)
	}
	check(t, q.Prioritize(t.Context(), "c/run", 5))
	queue(t, q, "c/run/ars/0", "c/run/ars/1")
	if got := drain(t, s, 2); got != "cc" {
		t.Errorf("an urgent job: %s", got)
	}
	check(t, q.Prioritize(t.Context(), "z/run", 1))
	if got := drain(t, s, 4); got != "zzzz" {
		t.Errorf("a job that has become urgent: %s", got)
	}
	if got := drain(t, s, 6); strings.Count(got, "a") != 3 || strings.Contains(got, "aa") && strings.Contains(got, "bb") {
		t.Errorf("two equals again: %s", got)
	}
	for _, p := range []int{-MaxPriority - 1, MaxPriority + 1} {
		if err := q.Prioritize(t.Context(), "c/run", p); err == nil {
			t.Errorf("priority %d was taken", p)
		}
	}
	// Another submitter, or a retry, leaves it as it is.
	other := turns(t, server, 1)
	queue(t, other, "z/run/ars/9")
	jobs, err := q.Jobs(t.Context(), "z")
	check(t, err)
	if len(jobs) != 1 || jobs[0].Priority != 1 {
		t.Errorf("jobs %+v", jobs)
	}
}

// Shards that the server gives up on, because workers that died never counted them, become dead letters and can be retried.
func TestTheServersLimitOfDeliveries(t *testing.T) {
	t.Parallel()
	q := fresh(t, time.Second)
	q.maxDeliver = 2
	s := source(t, q)
	_, err := q.Publish(t.Context(), "job/run/ars/1", []byte("data"))
	check(t, err)
	for range 2 { // a worker that dies before anything else
		eventually(t, "the shard", func() bool {
			_, err := q.next(t.Context(), streamName, consumerOf("job/run"))
			return err == nil
		})
	}
	idle, busy := context.WithCancel(t.Context()) // a living worker that asks
	asks := make(chan error, 1)
	go func() {
		_, err := s.Next(idle)
		asks <- err
	}()
	eventually(t, "a dead letter", func() bool {
		letters, err := q.DeadLetters(t.Context(), "job/run")
		check(t, err)
		return len(letters) == 1 && letters[0].Key == "job/run/ars/1" && letters[0].Attempt == 2 && strings.Contains(letters[0].Reason, "handed out 2 times")
	})
	busy()
	if err := <-asks; !errors.Is(err, context.Canceled) {
		t.Errorf("the shard came once more: %v", err)
	}
	eventually(t, "the shard off the queue", func() bool { // after its letter is there
		keys, err := q.Queued(t.Context(), "job/run")
		check(t, err)
		return len(keys) == 0
	})
	n, err := q.Retry(t.Context(), "job")
	check(t, err)
	if n != 1 {
		t.Errorf("%d retried", n)
	}
	d := take(t, s, "job/run/ars/1", 1)
	if string(d.Data()) != "data" {
		t.Errorf("data %q", d.Data())
	}
	check(t, d.Ack(t.Context()))
	leftovers(t, q)
	eventually(t, "the end of the advisories", func() bool {
		left, err := q.js.Stream(t.Context(), exhaustedStream)
		check(t, err)
		return left.CachedInfo().State.Msgs == 0
	})
}

// A worker makes nothing on the server; it waits until a submitter has been there.
func TestAWorkerWaitsForTheFirstJob(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{Listen: "127.0.0.1:-1"})
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Connect(short, server.URL(), Options{Worker: true}); err == nil {
		t.Error("a worker opened a queue that is not there")
	}
	ready := make(chan *Queue, 1)
	go func() {
		q, err := Connect(context.Background(), server.URL(), Options{Worker: true})
		if err != nil {
			t.Error(err)
		}
		ready <- q
	}()
	submit := open(t, server, time.Second)
	publish(t, submit, true, "job/run/ars/1")
	q := <-ready
	defer q.Close()
	check(t, take(t, source(t, q), "job/run/ars/1", 1).Ack(t.Context()))
}

// The list of runs forgets those that ended.
func TestFinish(t *testing.T) {
	t.Parallel()
	q := fresh(t, time.Second)
	publish(t, q, true, "a/run/ars/1", "b/run/ars/1")
	s := source(t, q)
	drain(t, s, 2)
	eventually(t, "the end of one run", func() bool { // once its consumer knows that nothing is left
		check(t, q.Finish(t.Context(), "a/run"))
		left, err := q.runs(t.Context(), "")
		check(t, err)
		return len(left) == 1 && left[0].scope == "b/run"
	})
	publish(t, q, true, "b/run/ars/2")
	check(t, q.Finish(t.Context(), "b/run")) // not at its end
	check(t, take(t, s, "b/run/ars/2", 1).Ack(t.Context()))
}
