package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline/queue/queuetest"
)

func TestAShardOfADeadWorkerComesBack(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{})
	dying, living := open(t, server, time.Second), open(t, server, time.Second)
	s := source(t, living)
	publish(t, living, true, "job/ars/1")
	d := take(t, source(t, dying), "job/ars/1", 1)
	dying.nc.Close() // as its process would end
	wait(t, d.Lost(), "lost")
	check(t, take(t, s, "job/ars/1", 2).Ack(t.Context()))
	pending(t, living, "", 0)
}

// What a dead process had in hand, its embedded queue hands out at once when it is opened again.
func TestTheShardsOfADeadProcessAreAdopted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for attempt := 1; attempt <= 3; attempt++ {
		server, err := Embed(dir, EmbedOptions{})
		check(t, err)
		q, err := server.Connect(t.Context(), Options{AckWait: time.Hour})
		check(t, err)
		publish(t, q, attempt == 1, "job/run/ars/1", "job/run/ars/2")
		if attempt == 1 {
			check(t, q.Prioritize(t.Context(), "job/run", 3))
		}
		s, err := q.Source(t.Context())
		check(t, err)
		take(t, s, "job/run/ars/1", attempt)
		jobs, err := q.Jobs(t.Context(), "")
		check(t, err)
		if want := (JobState{Scope: "job/run", Queued: 2, InHand: 1, Priority: 3}); len(jobs) != 1 || jobs[0] != want {
			t.Errorf("jobs %+v, want %+v", jobs, want)
		}
		check(t, errors.Join(s.Close(), q.Close(), server.Close()))
	}
}

// A server whose clock was set back would keep the shards of a dead worker for as long.
func TestTheServersClockIsSetBack(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{})
	q, worker := open(t, server, time.Hour), open(t, server, time.Hour)
	publish(t, q, true, "job/run/ars/1")
	take(t, source(t, worker), "job/run/ars/1", 1)
	q.mu.Lock()
	if q.clocks["job/run"].server.IsZero() {
		t.Error("who made the run has not looked at the server's clock")
	}
	q.mu.Unlock()
	pending(t, q, "job/run", 1)
	nothing(t, source(t, q), time.Second) // a clock that goes right changes nothing
	q.mu.Lock()
	was := q.clocks["job/run"]
	q.clocks["job/run"] = sighting{was.server.Add(2 * time.Hour), was.ours}
	q.mu.Unlock()
	pending(t, q, "job/run", 1)
	check(t, take(t, source(t, q), "job/run/ars/1", 2).Ack(t.Context()))
	pending(t, q, "", 0)

	// A worker has committed the last shard and died before it said so.
	publish(t, q, true, "job/run/ars/2")
	take(t, source(t, worker), "job/run/ars/2", 1)
	check(t, q.Finish(t.Context(), "job/run"))
	pending(t, q, "", 1)
	q.mu.Lock()
	was = q.clocks["job/run"]
	q.clocks["job/run"] = sighting{was.server.Add(2 * time.Hour), was.ours}
	q.mu.Unlock()
	check(t, q.Finish(t.Context(), "job/run"))
	pending(t, q, "", 0)
	jobs, err := q.Jobs(t.Context(), "job/run")
	check(t, err)
	if len(jobs) != 0 {
		t.Errorf("the run is still there: %+v", jobs)
	}
}

func TestCloseLosesWhatIsNotSettled(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{})
	q, err := server.Connect(t.Context(), Options{})
	check(t, err)
	publish(t, q, true, "job/ars/1")
	s, err := q.Source(t.Context())
	check(t, err)
	d := take(t, s, "job/ars/1", 1)
	check(t, s.Close())
	check(t, q.Close())
	wait(t, d.Lost(), "lost")
	if err := d.Ack(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatalf("ack after close: %v", err)
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatalf("next after close: %v", err)
	}
}

func TestHeartbeatsCarryADeliveryPastAckWait(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{})
	const ackWait = 2 * time.Second
	q, other := open(t, server, ackWait), open(t, server, ackWait)
	s := source(t, other)
	for try := range 20 {
		key := fmt.Sprintf("job/ars/%d", try)
		publish(t, q, true, key)
		d := take(t, source(t, q), key, 1)
		working, rest := context.WithCancel(t.Context())
		stood := make(chan time.Duration)
		go func() { // the worker, and how long it stood still
			longest, last := time.Duration(0), time.Now()
			for pause(working, ackWait/20) {
				d.Advance()
				longest, last = max(longest, time.Since(last)), time.Now()
			}
			stood <- max(longest, time.Since(last))
		}()
		while, cancel := context.WithTimeout(t.Context(), 3*ackWait+ackWait/4)
		second, err := s.Next(while)
		cancel()
		lost := false
		select {
		case <-d.Lost():
			lost = true
		default:
		}
		// A worker that hangs, on the same good connection, loses it.
		rest()
		still := <-stood
		wait(t, d.Lost(), "lost")
		if err == nil || lost {
			if still < ackWait/4 {
				t.Fatalf("lost: %v, handed out again: %v, on a good connection and a machine that stood still for %v at most", lost, err == nil, still)
			}
			t.Logf("the machine stood still for %v; again", still)
			check(t, d.Ack(t.Context()))
			if err == nil {
				check(t, second.Ack(t.Context()))
			}
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		again := take(t, s, key, 2)
		check(t, d.Ack(t.Context()))
		check(t, again.Ack(t.Context()))
		pending(t, q, "", 0)
		leftovers(t, q)
		return
	}
	t.Error("the machine never ran for long enough")
}

func TestRetryWaitsForItsDelay(t *testing.T) {
	t.Parallel()
	q := fresh(t, 4*time.Second)
	s := source(t, q)
	publish(t, q, true, "job/ars/1")
	d := take(t, s, "job/ars/1", 1)
	const delay = 5 * time.Second // longer than AckWait: a heartbeat left over would shorten or lengthen it
	began := time.Now()
	check(t, d.Retry(t.Context(), delay))
	d = take(t, s, "job/ars/1", 2)
	if took := time.Since(began); took < delay-50*time.Millisecond {
		t.Fatalf("came back after %v, want %v", took, delay)
	}
	check(t, d.Retry(t.Context(), 0))
	check(t, take(t, s, "job/ars/1", 3).Ack(t.Context()))
	leftovers(t, q)
}

func TestReleaseGivesBackAtOnceAndDoesNotCount(t *testing.T) {
	t.Parallel()
	q := fresh(t, time.Hour) // whatever comes back did not wait for AckWait
	s := source(t, q)
	publish(t, q, true, "job/ars/1")
	for range 3 {
		check(t, take(t, s, "job/ars/1", 1).Release(t.Context()))
	}
	check(t, take(t, s, "job/ars/1", 1).Retry(t.Context(), 0))
	check(t, take(t, s, "job/ars/1", 2).Release(t.Context()))
	check(t, take(t, s, "job/ars/1", 2).Ack(t.Context()))
	leftovers(t, q)
}

func TestRejectPutsTheShardAmongTheDeadLetters(t *testing.T) {
	t.Parallel()
	q := open(t, embed(t, t.TempDir(), EmbedOptions{MaxPayload: 64 << 10}), 0)
	s := source(t, q)
	publish(t, q, true, "job/ars/1", "other/ars/1")
	large := noise(100 << 10)
	_, err := q.Publish(t.Context(), "job/sps/2", large)
	check(t, err)

	check(t, take(t, s, "job/ars/1", 1).Reject(t.Context(), errors.New("step: the model\nis broken")))
	check(t, take(t, s, "other/ars/1", 1).Reject(t.Context(), nil))
	check(t, take(t, s, "job/sps/2", 1).Retry(t.Context(), 0))
	check(t, take(t, s, "job/sps/2", 2).Reject(t.Context(), errors.New("too large")))
	pending(t, q, "", 0)

	letters, err := q.DeadLetters(t.Context(), "job")
	check(t, err)
	want := []DeadLetter{{Key: "job/ars/1", Reason: "step: the model is broken", Attempt: 1}, {Key: "job/sps/2", Reason: "too large", Attempt: 2}}
	if len(letters) != len(want) {
		t.Fatalf("dead letters: %+v", letters)
	}
	for i := range want {
		if letters[i].Time.IsZero() {
			t.Errorf("letter %d has no time", i)
		}
		letters[i].Time = time.Time{}
		if letters[i] != want[i] {
			t.Errorf("letter %d: %+v, want %+v", i, letters[i], want[i])
		}
	}
	data, err := q.DeadLetterData(t.Context(), "job/sps/2")
	check(t, err)
	if string(data) != string(large) {
		t.Error("the large shard changed")
	}
	data, err = q.DeadLetterData(t.Context(), "job/ars/1")
	check(t, err)
	if string(data) != "data of job/ars/1" {
		t.Errorf("data: %q", data)
	}

	check(t, q.Purge(t.Context(), "job")) // the queue's side; dead letters keep their payloads
	objects(t, q, 1)
	check(t, q.PurgeDeadLetters(t.Context(), "job"))
	letters, err = q.DeadLetters(t.Context(), "")
	check(t, err)
	if len(letters) != 1 || letters[0].Key != "other/ars/1" || letters[0].Reason != "no reason given" {
		t.Fatalf("dead letters: %+v", letters)
	}
	leftovers(t, q)
	publish(t, q, true, "job/ars/1") // a rejected shard may be submitted again
	check(t, take(t, s, "job/ars/1", 1).Ack(t.Context()))
}

func TestADeliveryIsSettledOnce(t *testing.T) {
	t.Parallel()
	q := fresh(t, 0)
	s := source(t, q)
	for name, settle := range settlements {
		publish(t, q, true, "job/ars/"+name)
		d := take(t, s, "job/ars/"+name, 1)
		check(t, settle(t.Context(), d))
		for again, settle := range settlements {
			if err := settle(t.Context(), d); !errors.Is(err, ErrSettled) {
				t.Errorf("%s after %s: %v", again, name, err)
			}
		}
		check(t, q.Purge(t.Context(), "job"))
	}
}

var settlements = map[string]func(context.Context, *Delivery) error{
	"ack":     func(ctx context.Context, d *Delivery) error { return d.Ack(ctx) },
	"retry":   func(ctx context.Context, d *Delivery) error { return d.Retry(ctx, time.Hour) },
	"release": func(ctx context.Context, d *Delivery) error { return d.Release(ctx) },
	"reject":  func(ctx context.Context, d *Delivery) error { return d.Reject(ctx, errors.New("no")) },
}

// A worker is cut off, loses its shard to another, and comes back with the work done.
func TestAckAfterLost(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{Listen: "127.0.0.1:-1"})
	network := newProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	q := open(t, server, time.Second)
	publish(t, q, true, "job/ars/1")
	cutOff := openURL(t, network.url(), time.Second)
	late := take(t, source(t, cutOff), "job/ars/1", 1)

	network.set(true)
	wait(t, late.Lost(), "lost")
	second := take(t, source(t, q), "job/ars/1", 2)
	network.set(false)

	check(t, late.Ack(t.Context())) // waits for the connection
	pending(t, q, "", 0)
	check(t, second.Ack(t.Context()))
	leftovers(t, q)
}

// A settlement that the server never hears of fails in its time, and the shard is not lost.
func TestAckWithoutAServerFails(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{Listen: "127.0.0.1:-1"})
	network := newProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	q := openURL(t, network.url(), time.Second)
	publish(t, q, true, "job/ars/1")
	d := take(t, source(t, q), "job/ars/1", 1)
	network.set(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := d.Ack(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("ack without a server: %v", err)
	}
}

// A consumer that forgot what it handed out does not confirm acks; the shard must come off the queue all the same.
func TestSettleWithAConsumerThatForgot(t *testing.T) {
	t.Parallel()
	q := fresh(t, time.Hour)
	s := source(t, q)
	publish(t, q, true, "job/ars/1", "job/ars/2")
	one, two := take(t, s, "job/ars/1", 1), take(t, s, "job/ars/2", 1)
	check(t, q.shards.DeleteConsumer(t.Context(), consumerOf("job/ars")))
	check(t, one.Ack(t.Context())) // no consumer at all
	pending(t, q, "job/ars", 1)
	again := take(t, s, "job/ars/2", 2)
	check(t, q.shards.DeleteConsumer(t.Context(), consumerOf("job/ars")))
	pending(t, q, "job/ars", 1) // makes a new one that sent nothing yet
	check(t, two.Reject(t.Context(), errors.New("no")))
	check(t, again.Ack(t.Context()))
	pending(t, q, "", 0)
}

func TestTheCountOfAttemptsSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for attempt := 1; attempt <= 3; attempt++ {
		server, err := Embed(dir, EmbedOptions{})
		check(t, err)
		q, err := server.Connect(t.Context(), Options{AckWait: time.Second})
		check(t, err)
		publish(t, q, attempt == 1, "job/ars/1")
		s, err := q.Source(t.Context())
		check(t, err)
		take(t, s, "job/ars/1", attempt)
		check(t, errors.Join(s.Close(), q.Close(), server.Close()))
	}
}

func TestAShardOutlivesAServerRestartInAWorkersHands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := Embed(dir, EmbedOptions{Listen: queuetest.Address(t, "127.0.0.1")})
	check(t, err)
	url := server.URL()
	q := openURL(t, url, 20*time.Second)
	s := source(t, q)
	publish(t, q, true, "job/ars/1", "job/ars/2")
	d := take(t, s, "job/ars/1", 1)
	check(t, server.Close())
	embed(t, dir, EmbedOptions{Listen: strings.TrimPrefix(url, "nats://")})
	check(t, d.Ack(t.Context()))
	check(t, take(t, s, "job/ars/2", 1).Ack(t.Context()))
	pending(t, q, "", 0)
	leftovers(t, q)
}
