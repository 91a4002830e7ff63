package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The server stops handing out a shard after maxDeliveries and says so once, in an advisory. A stream keeps these, and
// any worker turns them into dead letters.
const (
	exhaustedStream   = "DRAFTMILL_EXHAUSTED"
	exhaustedConsumer = "bury"
	exhaustedSubjects = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES." + streamName + ".>"
	exhaustedLook     = 30 * time.Second // between two looks of a worker
)

func ensureExhausted(ctx context.Context, js jetstream.JetStream, replicas int) error {
	s, err := ensureStream(ctx, js, jetstream.StreamConfig{
		Name:              exhaustedStream,
		Description:       "draftmill: shards handed out too often, on their way to the dead letters",
		Subjects:          []string{exhaustedSubjects},
		Retention:         jetstream.WorkQueuePolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardOld,
		MaxMsgsPerSubject: -1,
		Duplicates:        publishWindow,
		Replicas:          replicas,
	})
	if err != nil {
		return err
	}
	_, err = s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: exhaustedConsumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: defaultAckWait, DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return fmt.Errorf("make the consumer %s of stream %s: %w", exhaustedConsumer, exhaustedStream, err)
	}
	return nil
}

// bury turns advisories into dead letters until the source is closed.
func (s *Source) bury() {
	every := min(exhaustedLook, 4*s.q.ackWait)
	for pause(s.life, every/2+rand.N(every)) {
		for {
			again, err := s.q.buryExhausted(s.life)
			if err != nil && s.life.Err() == nil && !lostStream(err) {
				s.q.log.Debug("queue: look for shards that were handed out too often", "err", err)
			}
			if !again {
				break
			}
		}
	}
}

// buryExhausted deals with one advisory; it reports whether there may be more.
func (q *Queue) buryExhausted(ctx context.Context) (bool, error) {
	advisory, err := q.next(ctx, exhaustedStream, exhaustedConsumer)
	if errors.Is(err, errEmpty) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var about struct {
		Sequence   uint64 `json:"stream_seq"`
		Deliveries int    `json:"deliveries"`
	}
	if err := json.Unmarshal(advisory.Data, &about); err != nil {
		return false, errors.Join(fmt.Errorf("read an advisory: %w", err), advisory.Respond([]byte("+TERM")))
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var m *jetstream.RawStreamMsg
	err = q.ask(ctx, func(ctx context.Context) (err error) {
		m, err = q.shards.GetMsg(ctx, about.Sequence)
		return err
	})
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, fmt.Errorf("read the shard %d: %w", about.Sequence, err) // the advisory comes back
	}
	if err == nil { // else it was done after all
		if err := q.buryStored(ctx, m, about.Deliveries); err != nil {
			return false, err
		}
	}
	_, err = q.nc.RequestWithContext(ctx, advisory.Reply, []byte("+ACK")) // unheard, the advisory comes back
	return err == nil, err
}

// buryStored copies a shard of the stream to the dead letters and takes it off.
func (q *Queue) buryStored(ctx context.Context, m *jetstream.RawStreamMsg, deliveries int) error {
	key := keyOf(shardSubjects, m.Subject)
	reason := fmt.Errorf("it was handed out %d times and never done: its workers were killed each time, or gave it back", deliveries)
	letter := nats.NewMsg(deadSubjects + m.Subject[len(shardSubjects):])
	letter.Header.Set(headerReason, oneLine(reason))
	letter.Header.Set(headerAttempt, strconv.Itoa(deliveries))
	letter.Header.Set(nats.MsgIdHdr, m.Header.Get(nats.MsgIdHdr)+" exhausted")
	for _, h := range []string{headerPayload, headerSHA256} {
		if v := m.Header.Get(h); v != "" {
			letter.Header.Set(h, v)
		}
	}
	letter.Data = m.Data
	if err := q.storeLetter(ctx, letter); err != nil {
		return fmt.Errorf("copy the shard %s to the dead letters: %w", key, err)
	}
	q.log.Error("queue: shard set aside", "shard", key, "err", reason)
	if err := q.ask(ctx, func(ctx context.Context) error { return deleteMessage(ctx, q.shards, m.Sequence) }); err != nil {
		return fmt.Errorf("take the shard %s off the queue: %w", key, err)
	}
	tail := m.Subject[len(shardSubjects):]
	return q.ask(ctx, func(ctx context.Context) error {
		count, _, err := q.counts.read(ctx, tail, m.Header.Get(nats.MsgIdHdr))
		if err != nil || count.revision == 0 {
			return err
		}
		return q.counts.forget(ctx, tail, count)
	})
}
