package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestPublishQueuesAKeyOnceUntilItIsDone(t *testing.T) {
	t.Parallel()
	q := fresh(t, 0)
	s := source(t, q)

	publish(t, q, true, "job/ars/1")
	publish(t, q, false, "job/ars/1")
	publish(t, q, true, "job/sps/1")
	pending(t, q, "job", 2)

	d := take(t, s, "job/ars/1", 1)
	if string(d.Data()) != "data of job/ars/1" {
		t.Fatalf("data: %q", d.Data())
	}
	publish(t, q, false, "job/ars/1") // in a worker's hands
	check(t, d.Ack(t.Context()))
	pending(t, q, "job", 1)

	publish(t, q, true, "job/ars/1") // well within the server's duplicate window
	pending(t, q, "job", 2)
	check(t, take(t, s, "job/ars/1", 1).Ack(t.Context()))
	check(t, take(t, s, "job/sps/1", 1).Ack(t.Context()))
	pending(t, q, "", 0)
}

func TestPublishFromManyAtOnceQueuesOne(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{})
	var queues []*Queue
	for range 4 {
		queues = append(queues, open(t, server, 0))
	}
	for round := range 5 {
		var fresh atomic.Int32
		var wg sync.WaitGroup
		key := fmt.Sprintf("job/ars/%d", round)
		for i := range 16 {
			wg.Go(func() {
				ok, err := queues[i%len(queues)].Publish(t.Context(), key, []byte("x"))
				if err != nil {
					t.Error(err)
				}
				if ok {
					fresh.Add(1)
				}
			})
		}
		wg.Wait()
		if fresh.Load() != 1 {
			t.Fatalf("%s: %d publishers were told that theirs is the one", key, fresh.Load())
		}
		pending(t, queues[0], "job", round+1)
	}
}

// A publish whose answer was lost is repeated with its id: it must come out as stored, and once.
func TestPublishRepeatedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	q := fresh(t, 0)
	msg := nats.NewMsg(shardSubjects + "job.ars.1")
	msg.Header.Set(nats.MsgIdHdr, "one-id")
	for range 2 {
		stored, err := q.store(t.Context(), msg)
		check(t, err)
		if !stored {
			t.Fatal("not reported as stored")
		}
	}
	pending(t, q, "job", 1)
}

func TestPublishRefusesKeysThatAreNoSubjects(t *testing.T) {
	t.Parallel()
	q := fresh(t, 0)
	for _, key := range []string{"", "job", "job//1", "jo.b/ars/1", "job/*/1", "job/>/1", "j b/ars/1", "jöb/ars/1", "job/ars/1\n"} {
		if _, err := q.Publish(t.Context(), key, nil); err == nil {
			t.Errorf("key %q was accepted", key)
		}
	}
	for _, job := range []string{"", "a.b", "*", ">", "a b"} {
		if err := ValidateScope(job); err == nil {
			t.Errorf("job %q was accepted", job)
		}
	}
	pending(t, q, "", 0)
}

func TestLargePayloadGoesThroughTheObjectStore(t *testing.T) {
	t.Parallel()
	q := open(t, embed(t, t.TempDir(), EmbedOptions{MaxPayload: 64 << 10}), 0)
	s := source(t, q)
	data := noise(300 << 10)

	for i, want := range []bool{true, false} {
		got, err := q.Publish(t.Context(), "job/ars/1", data)
		check(t, err)
		if got != want {
			t.Fatalf("publish %d: fresh = %v", i, got)
		}
	}
	objects(t, q, 1)

	d := take(t, s, "job/ars/1", 1)
	if !bytes.Equal(d.Data(), data) {
		t.Fatal("the data changed on its way")
	}
	check(t, d.Retry(t.Context(), 0))
	d = take(t, s, "job/ars/1", 2)
	check(t, d.Ack(t.Context()))
	objects(t, q, 0)
	pending(t, q, "job", 0)
	leftovers(t, q)
}

func TestLargePayloadPublishedByManyLeavesOneObject(t *testing.T) {
	t.Parallel()
	q := open(t, embed(t, t.TempDir(), EmbedOptions{MaxPayload: 64 << 10}), 0)
	data := noise(150 << 10)
	var fresh atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ok, err := q.Publish(t.Context(), "job/ars/1", data)
			if err != nil {
				t.Error(err)
			}
			if ok {
				fresh.Add(1)
			}
		})
	}
	wg.Wait()
	if fresh.Load() != 1 {
		t.Fatalf("%d publishers were told that theirs is the one", fresh.Load())
	}
	objects(t, q, 1)
	d := take(t, source(t, q), "job/ars/1", 1)
	if !bytes.Equal(d.Data(), data) {
		t.Fatal("the data changed on its way")
	}
}

// A payload on the edge of the limit fits a message, with its headers, and as a dead letter too.
func TestPayloadOnTheEdgeOfTheLimit(t *testing.T) {
	t.Parallel()
	q := open(t, embed(t, t.TempDir(), EmbedOptions{MaxPayload: 64 << 10}), 0)
	s := source(t, q)
	for i, c := range []struct{ size, objects int }{{q.inlineLimit(), 0}, {q.inlineLimit() + 1, 1}} {
		key := fmt.Sprintf("job/ars/%d", i)
		data := noise(c.size)
		_, err := q.Publish(t.Context(), key, data)
		check(t, err)
		objects(t, q, c.objects)
		check(t, take(t, s, key, 1).Reject(t.Context(), errors.New(string(bytes.Repeat([]byte("reason "), 4000)))))
		got, err := q.DeadLetterData(t.Context(), key)
		check(t, err)
		if !bytes.Equal(got, data) {
			t.Fatalf("%s: the dead letter's data differ", key)
		}
	}
}

func TestUnreadablePayloadGoesToTheDeadLetters(t *testing.T) {
	t.Parallel()
	q := open(t, embed(t, t.TempDir(), EmbedOptions{MaxPayload: 64 << 10}), 0)
	s := source(t, q)
	_, err := q.Publish(t.Context(), "job/ars/1", noise(100<<10))
	check(t, err)
	list, err := q.listPayloads(t.Context())
	check(t, err)
	check(t, q.dropPayload(t.Context(), list[0]))
	publish(t, q, true, "job/ars/2")

	check(t, take(t, s, "job/ars/2", 1).Ack(t.Context()))
	letters, err := q.DeadLetters(t.Context(), "job")
	check(t, err)
	if len(letters) != 1 || letters[0].Key != "job/ars/1" {
		t.Fatalf("dead letters: %+v", letters)
	}
	pending(t, q, "job", 0)
}

func noise(n int) []byte {
	data := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func objects(t *testing.T, q *Queue, want int) {
	t.Helper()
	list, err := q.listPayloads(t.Context())
	check(t, err)
	if len(list) != want {
		t.Fatalf("%d objects in the store, want %d", len(list), want)
	}
}

// leftovers checks that a queue with nothing to do stores nothing at all.
func leftovers(t *testing.T, q *Queue) {
	t.Helper()
	for _, name := range []string{streamName, "KV_" + attemptsBucket, "OBJ_" + payloadBucket} {
		s, err := q.js.Stream(t.Context(), name)
		check(t, err)
		if n := s.CachedInfo().State.Msgs; n != 0 {
			t.Errorf("%s still holds %d messages", name, n)
		}
	}
}

// A shard may not be of any size: neither is it published, nor read by a worker when somebody else published it.
func TestShardsHaveABound(t *testing.T) {
	t.Parallel()
	q := open(t, embed(t, t.TempDir(), EmbedOptions{MaxPayload: 64 << 10}), time.Second)
	q.maxPayload = 200 << 10
	if _, err := q.Publish(t.Context(), "job/run/ars/1", noise(300<<10)); !errors.Is(err, errTooLarge) {
		t.Errorf("a large shard: %v", err)
	}
	pending(t, q, "", 0)
	q.maxPayload = 1 << 20
	_, err := q.Publish(t.Context(), "job/run/ars/1", noise(300<<10))
	check(t, err)
	q.maxPayload = 200 << 10
	ctx, cancel := context.WithCancel(t.Context())
	asks := make(chan error, 1)
	s := source(t, q)
	go func() {
		_, err := s.Next(ctx)
		asks <- err
	}()
	eventually(t, "a dead letter", func() bool {
		letters, err := q.DeadLetters(t.Context(), "job")
		check(t, err)
		return len(letters) == 1 && strings.Contains(letters[0].Reason, "larger than a shard may be")
	})
	cancel()
	if err := <-asks; !errors.Is(err, context.Canceled) {
		t.Errorf("next: %v", err)
	}
}
