package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/draftmill/draftmill/pipeline"
)

const (
	durableName     = "workers"
	presenceSubject = "draftmill.workers." // where the sources of a consumer answer; no answer, no source
	maxInFlight     = 1 << 16              // shards in the hands of all workers together
	jobIdle         = 24 * time.Hour       // the consumer of one job is removed when nobody pulled for so long
	pullHeartbeat   = 3 * time.Second      // a pull that the server is silent about for two of these has no consumer
	openTries       = 10

	codeOverlap jetstream.ErrorCode = 10100 // another consumer of the work queue has these subjects
)

var (
	_ pipeline.Source    = (*Source)(nil)
	_ pipeline.Delivery  = (*Delivery)(nil)
	_ pipeline.Publisher = (*Queue)(nil)
)

// Source hands out shards, one for each call of Next. It is safe for concurrent use.
type Source struct {
	q    *Queue
	job  string
	life context.Context // ends with Close, or with the queue's
	end  context.CancelFunc

	pulls sync.WaitGroup     // pulls being wound up
	alive *nats.Subscription // answers whoever asks if the consumer is in use

	mu       sync.Mutex
	consumer jetstream.Consumer
}

// Source opens the shared consumer of all jobs, or of one when job is not "". On a work queue every shard has one
// consumer: workers of all jobs and workers of a single job cannot run side by side, and the latecomer gets an
// error. What workers that are all gone left unsettled is handed out at once, without waiting for AckWait, and their
// consumer makes way.
func (q *Queue) Source(ctx context.Context, job string) (*Source, error) {
	if job != "" {
		if err := ValidateScope(job); err != nil {
			return nil, err
		}
	}
	s := &Source{q: q, job: job}
	q.opening.Lock() // one after the other, so that each sees the one before
	defer q.opening.Unlock()
	if err := s.dropOrphans(ctx); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	var err error
	s.alive, err = q.nc.Subscribe(presenceSubject+s.durable(), func(m *nats.Msg) { _ = m.Respond(nil) })
	if err != nil {
		return nil, fmt.Errorf("open the consumer %s: %w", s.durable(), err)
	}
	s.life, s.end = context.WithCancel(q.life)
	return s, nil
}

func (s *Source) durable() string {
	if s.job == "" {
		return durableName
	}
	return durableName + "-" + s.job
}

// open makes or updates the consumer.
func (s *Source) open(ctx context.Context) error {
	config := jetstream.ConsumerConfig{
		Durable:       s.durable(),
		Description:   "draftmill: workers",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       s.q.ackWait,
		MaxDeliver:    -1,
		MaxAckPending: maxInFlight,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		FilterSubject: within(shardSubjects, s.job),
	}
	if s.job != "" {
		config.InactiveThreshold = jobIdle
	}
	var c jetstream.Consumer
	var err error
	for range openTries {
		var api *jetstream.APIError
		c, err = s.q.shards.CreateOrUpdateConsumer(ctx, config)
		if errors.As(err, &api) && api.ErrorCode == codeOverlap {
			if err := s.clearWay(ctx, config); err != nil {
				return err
			}
		} else if !errors.As(err, &api) || api.Code != 500 || !pause(ctx, reconnectWait) {
			break // else the server is still removing the files of a consumer of that name
		}
	}
	if err != nil {
		return fmt.Errorf("open the consumer %s of stream %s: %w", config.Durable, streamName, err)
	}
	s.mu.Lock()
	s.consumer = c
	s.mu.Unlock()
	return nil
}

// inUse says whether a consumer has a source anywhere. The server cannot tell: a dead worker's shards count as being
// worked on until somebody pulls again. Silence, where somebody listens, is use.
func (q *Queue) inUse(ctx context.Context, durable string) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := q.nc.RequestWithContext(ctx, presenceSubject+durable, nil)
	return !errors.Is(err, nats.ErrNoResponders)
}

// dropOrphans removes the source's own consumer when it has shards in the hands of workers and no worker is left: made
// anew, it hands them out. Should one live on behind a broken network, two work on a shard, as after AckWait. The
// question comes after the count: whoever got a shard answers before.
func (s *Source) dropOrphans(ctx context.Context) error {
	c, err := s.q.shards.Consumer(ctx, s.durable())
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the consumer %s of stream %s: %w", s.durable(), streamName, err)
	}
	if c.CachedInfo().NumAckPending == 0 || s.q.inUse(ctx, s.durable()) {
		return nil
	}
	if err := s.q.shards.DeleteConsumer(ctx, s.durable()); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("take over from the dead workers of consumer %s: %w", s.durable(), err)
	}
	return nil
}

// clearWay removes the consumers whose subjects overlap those of want and that nobody uses.
func (s *Source) clearWay(ctx context.Context, want jetstream.ConsumerConfig) error {
	list := s.q.shards.ListConsumers(ctx)
	var rivals []string
	for info := range list.Info() { // to its end, or its goroutine stays
		f, all := info.Config.FilterSubject, within(shardSubjects, "")
		if info.Name != want.Durable && (f == want.FilterSubject || f == all || want.FilterSubject == all) {
			rivals = append(rivals, info.Name)
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list the consumers of stream %s: %w", streamName, err)
	}
	for _, rival := range rivals {
		if s.q.inUse(ctx, rival) {
			return &setupError{text: fmt.Sprintf(
				"open the consumer %s: the consumer %s serves these shards and is in use; run all workers for all jobs, or each for one job", want.Durable, rival)}
		}
		if err := s.q.shards.DeleteConsumer(ctx, rival); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("remove the idle consumer %s: %w", rival, err)
		}
	}
	return nil
}

// Close ends waiting calls of Next with ErrClosed. Deliveries handed out stay valid.
func (s *Source) Close() error {
	s.end()
	s.pulls.Wait()
	if err := s.alive.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
		return fmt.Errorf("close the source: %w", err)
	}
	return nil
}

// Next waits for a shard. It waits through a server's restart, and ends with ctx's error, with ErrClosed, or with
// what makes the queue unusable.
func (s *Source) Next(ctx context.Context) (pipeline.Delivery, error) {
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(ErrClosed) })()
	said := time.Time{}
	for {
		msg, err := s.pull(wait)
		if err == nil {
			var d *Delivery
			if d, err = s.receive(wait, msg); err == nil && d != nil {
				return d, nil
			}
		}
		switch {
		case s.life.Err() != nil || s.q.nc.IsClosed():
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case isRefusal(err) && !lostStream(err):
			return nil, fmt.Errorf("wait for a shard: %w", err)
		case err != nil:
			if time.Since(said) >= sayAgain {
				said = time.Now()
				s.q.log.Warn("queue: the server hands out no shards; still trying", "server", s.q.server, "err", err)
			}
			pause(wait, reconnectWait)
		}
	}
}

// pull asks the server for one message and waits for it. The subscription lives as long as the call, so that no
// message can wait unseen in its buffer while its time runs.
func (s *Source) pull(ctx context.Context) (jetstream.Msg, error) {
	for ctx.Err() == nil {
		s.mu.Lock()
		c := s.consumer
		s.mu.Unlock()
		it, err := c.Messages(jetstream.PullMaxMessages(1), jetstream.PullHeartbeat(pullHeartbeat))
		if err != nil {
			return nil, err
		}
		msg, err := it.Next(jetstream.NextContext(ctx))
		if err == nil {
			it.Stop() // nothing else was asked for
			return msg, nil
		}
		s.windUp(it)
		if ctx.Err() != nil || s.q.nc.IsClosed() {
			return nil, both(ctx.Err(), err)
		}
		// The consumer is gone, or the server does not answer for it: it may have lost its disk, or be restarting.
		for {
			err = s.open(ctx)
			if err == nil {
				break
			}
			if lostStream(err) {
				once, cancel := context.WithTimeout(ctx, requestTimeout)
				_ = s.q.remake(once) // the next try says what is wrong
				cancel()
			} else if isRefusal(err) || errors.Is(err, nats.ErrConnectionClosed) {
				return nil, err
			}
			if !pause(ctx, reconnectWait) {
				return nil, ctx.Err()
			}
		}
	}
	return nil, ctx.Err()
}

// windUp ends a pull that was given up and gives back at once what the server sent meanwhile, in the background.
func (s *Source) windUp(it jetstream.MessagesContext) {
	it.Drain()
	s.pulls.Go(func() {
		for {
			m, err := it.Next(jetstream.NextMaxWait(requestTimeout))
			if err != nil {
				it.Stop()
				return
			}
			s.q.log.Debug("queue: gave back a shard that came too late", "subject", m.Subject())
			_ = m.Nak() // lost with the connection, it comes back after AckWait
		}
	})
}

// receive makes a delivery of a message: keeps it alive, counts the attempt, fetches a large payload. A nil
// delivery without an error says: not this one, ask for another.
func (s *Source) receive(ctx context.Context, msg jetstream.Msg) (*Delivery, error) {
	q := s.q
	d := newDelivery(q, msg)
	if !q.start(d.keepAlive) {
		return nil, ErrClosed
	}
	if _, err := subjectTail(d.key); err != nil {
		return nil, d.discard(ctx, fmt.Errorf("no shard of draftmill: %w", err))
	}
	// Not cut short by ctx: a count that the server stores and nobody here knows of could not be taken back.
	counting, cancel := context.WithTimeout(q.life, requestTimeout)
	defer cancel()
	var err error
	if d.mark, err = q.counts.begin(counting, d.tail, d.id); err != nil {
		d.abandon()
		return nil, err
	}
	d.data = msg.Data()
	d.object = msg.Headers().Get(headerPayload)
	if d.object == "" {
		return d, nil
	}
	d.data, err = q.payloads.GetBytes(ctx, d.object)
	if sum := sha256.Sum256(d.data); err == nil && hex.EncodeToString(sum[:]) != msg.Headers().Get(headerSHA256) {
		err = jetstream.ErrDigestMismatch
	}
	switch {
	case err == nil:
		return d, nil
	case !errors.Is(err, jetstream.ErrObjectNotFound) && !errors.Is(err, jetstream.ErrDigestMismatch):
		d.abandon()
		return nil, fmt.Errorf("fetch the payload of shard %s: %w", d.key, err)
	}
	// Done by another worker this moment, or unreadable for everybody.
	if id, err := q.queuedID(ctx, msg.Subject()); err == nil && id != d.id {
		d.abandon()
		return nil, nil
	}
	return nil, d.discard(ctx, fmt.Errorf("its payload %s cannot be read: %w", d.object, err))
}
