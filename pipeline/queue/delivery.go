package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/propagation"
)

// ErrSettled says that the delivery was acknowledged, given back or rejected before.
var ErrSettled = errors.New("the delivery is settled already")

// Delivery is one shard handed to a worker. It keeps itself alive while its worker advances, until it is settled by
// exactly one of Ack, Retry, Release and Reject; another one after that returns ErrSettled.
//
// What it tells the server goes as a request on the message's reply subject, which the server confirms.
type Delivery struct {
	q       *Queue
	msg     *nats.Msg
	ackWait time.Duration // the consumer's
	key     string
	tail    string // the key as part of a subject
	id      string // the publish's Nats-Msg-Id
	object  string // where a large payload lies
	data    []byte
	mark    mark // the attempt as counted

	received time.Time
	advanced atomic.Int64 // when the worker last did, in nanoseconds since received
	settled  atomic.Bool
	beating  context.Context // ends when the heartbeats are to stop
	stop     context.CancelFunc
	stopped  chan struct{} // closed when they have stopped
	lost     chan struct{}
}

func newDelivery(q *Queue, msg *nats.Msg, ackWait time.Duration) *Delivery {
	d := &Delivery{
		q: q, msg: msg, ackWait: ackWait, received: time.Now(),
		key: keyOf(shardSubjects, msg.Subject), tail: msg.Subject[len(shardSubjects):], id: msg.Header.Get(nats.MsgIdHdr),
		stopped: make(chan struct{}), lost: make(chan struct{}),
	}
	d.beating, d.stop = context.WithCancel(q.life)
	return d
}

// Key is "<job>/<run>/<mode>/<shard>".
func (d *Delivery) Key() string { return d.key }

// Data is the shard's bytes. They belong to the receiver.
func (d *Delivery) Data() []byte { return d.data }

// Attempt is 1 when the shard is handed out for the first time since it was published.
func (d *Delivery) Attempt() int { return d.mark.count }

// Trace is ctx with the span in which the shard was published, if there is one.
func (d *Delivery) Trace(ctx context.Context) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(d.msg.Header))
}

// Advance says that the worker gets on with the shard. Without it for an AckWait the delivery stops keeping itself
// alive, so that a worker that hangs loses the shard to another. It is cheap, and safe for concurrent use.
func (d *Delivery) Advance() { d.advanced.Store(int64(time.Since(d.received))) }

// Lost is closed when the server confirmed no progress for an AckWait: somebody else may have the shard by now. Work
// may go on, since results commit first-writer-wins, and Ack still takes the shard off the queue.
func (d *Delivery) Lost() <-chan struct{} { return d.lost }

// keepAlive tells the server of progress every third of AckWait, while there is some, until the delivery is settled or
// lost. A heartbeat counts from when it was sent, the server's clock never being ahead of that.
func (d *Delivery) keepAlive() {
	defer close(d.stopped)
	interval := d.ackWait / 3
	last, next := d.received, d.received.Add(interval)
	for {
		if !pause(d.beating, time.Until(next)) {
			if !d.settled.Load() { // the queue was closed under it
				close(d.lost)
			}
			return
		}
		sent := time.Now()
		hangs := sent.Sub(d.received)-time.Duration(d.advanced.Load()) >= d.ackWait
		if left := d.ackWait - sent.Sub(last); left > 0 && !hangs {
			once, cancel := context.WithTimeout(d.beating, min(interval, left))
			err := d.tell(once, "+WPI")
			cancel()
			if err == nil {
				last, next = sent, sent.Add(interval)
				continue
			}
		}
		if time.Since(last) >= d.ackWait {
			if hangs {
				d.q.log.Warn("queue: the worker does not get on with a shard; others may have it now", "shard", d.key, "ack_wait", d.ackWait)
			}
			d.q.log.Debug("queue: shard lost", "key", d.key, "silent", time.Since(last))
			close(d.lost)
			return
		}
		next = time.Now().Add(min(interval/8, d.ackWait-time.Since(last)))
	}
}

// stopHeartbeats ends the heartbeats and waits until none can follow: one that came after a give-back would undo its delay.
func (d *Delivery) stopHeartbeats() {
	d.stop()
	<-d.stopped
}

// tell sends an answer about this message and waits for the server's confirmation.
func (d *Delivery) tell(ctx context.Context, answer string) error {
	_, err := d.q.nc.RequestWithContext(ctx, d.msg.Reply, []byte(answer))
	return err
}

// takeOff makes sure that the shard is off the queue: answer, which is an ack or a term, is confirmed, or the message
// is gone, or deleted here. A consumer whose state was set back by a crash says nothing to the ack of a message that
// it believes it never sent; on a work queue, deleting the message says the same.
func (d *Delivery) takeOff(ctx context.Context, answer string) error {
	for {
		err := inTime(ctx, d.q.answer, func(ctx context.Context) error { return d.tell(ctx, answer) })
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && d.q.nc.IsConnected() {
			if err = inTime(ctx, d.q.answer, d.deleteMessage); err == nil {
				return nil
			}
		}
		if d.q.nc.IsClosed() {
			return err
		}
		if !pause(ctx, reconnectWait) {
			return fmt.Errorf("no confirmation from the server: %w", both(ctx.Err(), err))
		}
	}
}

func (d *Delivery) deleteMessage(ctx context.Context) error {
	meta, err := d.msg.Metadata()
	if err != nil {
		return err
	}
	m, err := d.q.shards.GetMsg(ctx, meta.Sequence.Stream)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil
	case err != nil:
		return err
	case m.Subject != d.msg.Subject || m.Header.Get(nats.MsgIdHdr) != d.id: // the stream was made anew
		return nil
	}
	d.q.log.Debug("queue: the consumer does not confirm; deleting the message", "key", d.key)
	return deleteMessage(ctx, d.q.shards, meta.Sequence.Stream)
}

// deleteMessage deletes a message of a stream; it is no error when it is gone.
func deleteMessage(ctx context.Context, s jetstream.Stream, sequence uint64) error {
	err := s.DeleteMsg(ctx, sequence)
	if !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return err
	}
	if _, gone := s.GetMsg(ctx, sequence); errors.Is(gone, jetstream.ErrMsgNotFound) {
		return nil
	}
	return err
}

// settle claims the one settlement and runs it within settleTimeout. The heartbeats stop in any case: what could not be
// settled comes back after AckWait.
func (d *Delivery) settle(ctx context.Context, step string, f func(context.Context) error) error {
	if !d.settled.CompareAndSwap(false, true) {
		return fmt.Errorf("%s shard %s: %w", step, d.key, ErrSettled)
	}
	defer d.stopHeartbeats()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	defer context.AfterFunc(d.q.life, cancel)()
	err := f(ctx)
	if err == nil {
		return nil
	}
	if d.q.life.Err() != nil {
		err = both(ErrClosed, err)
	}
	return fmt.Errorf("%s shard %s: %w", step, d.key, err)
}

// Ack takes the shard off the queue for good and returns when the server confirmed that.
func (d *Delivery) Ack(ctx context.Context) error {
	return d.settle(ctx, "acknowledge", func(ctx context.Context) error {
		if err := d.takeOff(ctx, "+ACK"); err != nil {
			return err
		}
		d.tidy(ctx, d.object)
		return nil
	})
}

// Retry gives the shard back, not to be handed out again before delay has passed.
func (d *Delivery) Retry(ctx context.Context, delay time.Duration) error {
	return d.settle(ctx, "give back", func(ctx context.Context) error {
		defer d.q.announce(max(delay, 0))
		if delay <= 0 {
			return d.giveBack(ctx, "-NAK")
		}
		args, err := json.Marshal(map[string]int64{"delay": delay.Nanoseconds()})
		if err != nil {
			return err
		}
		return d.giveBack(ctx, "-NAK "+string(args))
	})
}

// Release gives the shard back at once and takes back the attempt: nobody tried.
func (d *Delivery) Release(ctx context.Context) error {
	return d.settle(ctx, "release", func(ctx context.Context) error {
		// A server whose disk is full does not answer; who stops does not wait for it.
		defer d.q.announce(0)
		uncounted := inTime(ctx, giveBackTimeout, d.uncount)
		return both(d.giveBack(ctx, "-NAK"), uncounted)
	})
}

// Reject copies the shard and the reason to the dead letters, then takes it off the queue.
func (d *Delivery) Reject(ctx context.Context, reason error) error {
	return d.settle(ctx, "reject", func(ctx context.Context) error {
		if err := d.q.bury(ctx, d, reason); err != nil {
			return err
		}
		if err := d.takeOff(ctx, "+TERM"); err != nil {
			return err
		}
		d.tidy(ctx, "") // the dead letter refers to the payload
		return nil
	})
}

// giveBack is said once: repeated, it could take the shard from whoever got it in between.
func (d *Delivery) giveBack(ctx context.Context, answer string) error {
	d.stopHeartbeats()
	return inTime(ctx, giveBackTimeout, func(ctx context.Context) error { return d.tell(ctx, answer) })
}

// uncount takes back the attempt.
func (d *Delivery) uncount(ctx context.Context) error {
	return d.q.counts.undo(ctx, d.tail, d.id, d.mark)
}

// tidy removes what belonged to a shard that is off the queue. A failure leaves rubbish, never a wrong answer.
func (d *Delivery) tidy(ctx context.Context, object string) {
	err := d.q.ask(ctx, func(ctx context.Context) error { return d.q.counts.forget(ctx, d.tail, d.mark) })
	if object != "" {
		err = both(err, d.q.ask(ctx, func(ctx context.Context) error { return d.q.dropPayload(ctx, object) }))
	}
	if err != nil {
		d.q.log.Debug("queue: tidy up after a shard", "key", d.key, "err", err)
	}
}

// abandon gives back a message that never became a delivery, without waiting for anything.
func (d *Delivery) abandon() {
	d.settled.Store(true)
	d.q.start(func() {
		d.stopHeartbeats()
		if d.mark.revision > 0 {
			if err := inTime(d.q.life, giveBackTimeout, d.uncount); err != nil {
				d.q.log.Debug("queue: abandon a shard", "key", d.key, "err", err)
			}
		}
		_ = d.q.nc.Publish(d.msg.Reply, []byte("-NAK")) // if that is lost, it comes back after AckWait
	})
}

// discard buries a message that no worker could read.
func (d *Delivery) discard(ctx context.Context, reason error) error {
	d.q.log.Warn("queue: unreadable shard put among the dead letters", "key", d.key, "reason", reason)
	return d.Reject(ctx, reason)
}
