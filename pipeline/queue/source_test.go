package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline/queue/queuetest"
)

func TestTwoWorkersShareTheWork(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{})
	q := open(t, server, 0)
	const shards = 60
	for i := range shards {
		publish(t, q, true, fmt.Sprintf("job/ars/%d", i))
	}
	var mu sync.Mutex
	times := map[string]int{}
	var wg sync.WaitGroup
	for range 2 {
		s := source(t, open(t, server, 0))
		wg.Go(func() {
			for {
				mu.Lock()
				done := len(times) == shards
				mu.Unlock()
				if done {
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				d, err := s.Next(ctx)
				cancel()
				if errors.Is(err, context.DeadlineExceeded) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				times[d.Key()]++
				mu.Unlock()
				if err := d.Ack(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for key, n := range times {
		if n != 1 {
			t.Errorf("%s was handed out %d times", key, n)
		}
	}
	pending(t, q, "", 0)
}

// A worker that is busy with one shard leaves all the others to the rest.
func TestABusyWorkerHoldsOneShard(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{})
	busy, idle := open(t, server, time.Hour), open(t, server, time.Hour)
	for i := range 10 {
		publish(t, busy, true, fmt.Sprintf("job/ars/%d", i))
	}
	held := take(t, source(t, busy), "job/ars/0", 1)
	s := source(t, idle)
	for i := 1; i < 10; i++ {
		check(t, take(t, s, fmt.Sprintf("job/ars/%d", i), 1).Ack(t.Context()))
	}
	pending(t, idle, "", 1)
	check(t, held.Ack(t.Context()))
}

func TestManyCallsOfNextOnOneSource(t *testing.T) {
	t.Parallel()
	q := fresh(t, time.Hour)
	s := source(t, q)
	const calls = 8
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for range calls {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			d, err := s.Next(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			seen[d.Key()] = true
			mu.Unlock()
			if err := d.Ack(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range calls {
		publish(t, q, true, fmt.Sprintf("job/ars/%d", i))
	}
	wg.Wait()
	if len(seen) != calls {
		t.Fatalf("%d shards for %d calls", len(seen), calls)
	}
}

func TestNextEndsPromptly(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{})
	for name, c := range map[string]struct {
		end  func(cancel context.CancelFunc, s *Source, q *Queue)
		want error
	}{
		"cancel":         {func(cancel context.CancelFunc, _ *Source, _ *Queue) { cancel() }, context.Canceled},
		"close":          {func(_ context.CancelFunc, s *Source, _ *Queue) { s.Close() }, ErrClosed},
		"queue closed":   {func(_ context.CancelFunc, _ *Source, q *Queue) { q.Close() }, ErrClosed},
		"no connection":  {func(_ context.CancelFunc, _ *Source, q *Queue) { q.nc.Close() }, ErrClosed},
		"before waiting": {nil, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := server.Connect(t.Context(), Options{})
			check(t, err)
			defer q.Close()
			s, err := q.Source(t.Context())
			check(t, err)
			defer s.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.end == nil {
				cancel()
			}
			ended := make(chan error, 1)
			go func() {
				_, err := s.Next(ctx)
				ended <- err
			}()
			if c.end != nil {
				eventually(t, "a look at the queue", s.hasLooked)
				c.end(cancel, s, q)
			}
			select {
			case err := <-ended:
				if !errors.Is(err, c.want) {
					t.Fatalf("next: %v, want %v", err, c.want)
				}
			case <-time.After(patience):
				t.Fatalf("next did not end within %v", patience)
			}
		})
	}
}

// A shard that the server sends just when Next is given up must not stay hidden until AckWait has passed.
func TestAShardThatMeetsACancelledNextIsNotHeldUp(t *testing.T) {
	t.Parallel()
	q := fresh(t, time.Hour)
	s := source(t, q)
	for i := range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var got bool
		wg.Go(func() {
			d, err := s.Next(ctx)
			if err == nil {
				got = true
				err = d.Ack(t.Context())
			} else if errors.Is(err, context.Canceled) {
				err = nil
			}
			if err != nil {
				t.Error(err)
			}
		})
		key := fmt.Sprintf("job/ars/%d", i)
		wg.Go(func() {
			if _, err := q.Publish(t.Context(), key, nil); err != nil {
				t.Error(err)
			}
			cancel()
		})
		wg.Wait()
		if !got {
			check(t, take(t, s, key, 1).Ack(t.Context()))
		}
	}
	pending(t, q, "", 0)
}

func TestNextWaitsThroughAServerRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := Embed(dir, EmbedOptions{Listen: queuetest.Address(t, "127.0.0.1")})
	check(t, err)
	url := server.URL()
	q := openURL(t, url, 0)
	s := source(t, q)
	got := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		d, err := s.Next(ctx)
		if err == nil {
			err = d.Ack(ctx)
		}
		got <- err
	}()
	eventually(t, "a look at the queue", s.hasLooked)
	check(t, server.Close())
	server = embed(t, dir, EmbedOptions{Listen: strings.TrimPrefix(url, "nats://")})
	publish(t, open(t, server, 0), true, "job/ars/1")
	check(t, <-got)
	pending(t, q, "", 0)
}

// A consumer that somebody removed is made anew by whoever publishes, or looks at what is queued.
func TestALostConsumerIsMadeAnew(t *testing.T) {
	t.Parallel()
	q := fresh(t, time.Second)
	s := source(t, q)
	publish(t, q, true, "job/run/ars/1")
	check(t, take(t, s, "job/run/ars/1", 1).Ack(t.Context()))
	publish(t, q, true, "job/run/ars/2")
	check(t, q.shards.DeleteConsumer(t.Context(), consumerOf("job/run")))
	nothing(t, s, time.Second)
	pending(t, q, "job/run", 1)
	check(t, take(t, s, "job/run/ars/2", 1).Ack(t.Context()))
	check(t, q.Finish(t.Context(), "job/run"))
	publish(t, q, true, "job/run/ars/3")
	check(t, take(t, s, "job/run/ars/3", 1).Ack(t.Context()))
}

func (s *Source) hasLooked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.looked.IsZero()
}

func TestPurge(t *testing.T) {
	t.Parallel()
	q := open(t, embed(t, t.TempDir(), EmbedOptions{MaxPayload: 64 << 10}), 0)
	s := source(t, q)
	publish(t, q, true, "job/ars/1", "job/ars/2", "job-2/ars/1")
	for _, job := range []string{"job", "job-2"} {
		_, err := q.Publish(t.Context(), job+"/sps/1", noise(100<<10))
		check(t, err)
	}
	held := take(t, s, "job/ars/1", 1)
	pending(t, q, "job", 3)
	pending(t, q, "job-2", 2)
	pending(t, q, "", 5)

	check(t, q.Purge(t.Context(), "job"))
	pending(t, q, "job", 0)
	pending(t, q, "", 2)
	objects(t, q, 1)
	check(t, held.Ack(t.Context())) // does no harm
	check(t, take(t, s, "job-2/ars/1", 1).Ack(t.Context()))
	check(t, take(t, s, "job-2/sps/1", 1).Ack(t.Context()))
	leftovers(t, q)
	if err := q.Purge(t.Context(), ">"); err == nil {
		t.Fatal("a job named > was purged")
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{})
	worker, submit := open(t, server, 0), open(t, server, 0)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := submit.Watch(ctx, "job")
	check(t, err)
	check(t, worker.Report("other", []byte("not for us")))
	for i := range 3 {
		check(t, worker.Report("job", fmt.Appendf(nil, "%d", i)))
	}
	for i := range 3 {
		select {
		case e := <-events:
			if string(e) != fmt.Sprint(i) {
				t.Fatalf("event %d: %q", i, e)
			}
		case <-time.After(patience):
			t.Fatal("no event")
		}
	}
	cancel()
	eventually(t, "the channel's end", func() bool {
		select {
		case _, ok := <-events:
			return !ok
		default:
			return false
		}
	})
	if err := worker.Report("a.b", nil); err == nil {
		t.Error("a report of a job that cannot be")
	}
	if _, err := submit.Watch(t.Context(), "*"); err == nil {
		t.Error("a watch of a job that cannot be")
	}
}
