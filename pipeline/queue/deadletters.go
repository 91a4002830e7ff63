package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	headerReason  = "Draftmill-Reason"
	headerAttempt = "Draftmill-Attempt"
	reasonLimit   = 4 << 10 // bytes of a reason that are kept
)

// DeadLetter is a shard that was given up. Rejecting the same key again replaces its letter.
type DeadLetter struct {
	Key     string // "<job>/<run>/<mode>/<shard>"
	Reason  string // one line
	Attempt int    // the attempt that was the last
	Time    time.Time
}

// bury copies a delivery to the dead letters and returns when the copy is stored.
func (q *Queue) bury(ctx context.Context, d *Delivery, reason error) error {
	msg := nats.NewMsg(deadSubjects + d.tail)
	msg.Header.Set(headerReason, oneLine(reason))
	msg.Header.Set(headerAttempt, strconv.Itoa(d.mark.count))
	msg.Header.Set(nats.MsgIdHdr, fmt.Sprintf("%s %d", d.id, d.mark.revision))
	if object := d.msg.Header.Get(headerPayload); object != "" {
		msg.Header.Set(headerPayload, object)
		msg.Header.Set(headerSHA256, d.msg.Header.Get(headerSHA256))
	} else {
		msg.Data = d.msg.Data
	}
	if err := q.storeLetter(ctx, msg); err != nil {
		return fmt.Errorf("copy it to the dead letters: %w", err)
	}
	return nil
}

// storeLetter puts msg, whose id is the letter's alone, among the dead letters.
func (q *Queue) storeLetter(ctx context.Context, msg *nats.Msg) error {
	return q.ask(ctx, func(ctx context.Context) error {
		_, err := q.js.PublishMsg(ctx, msg, jetstream.WithExpectStream(deadStreamName))
		return err
	})
}

func oneLine(err error) string {
	if err == nil {
		return "no reason given"
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > reasonLimit {
		text = strings.ToValidUTF8(text[:reasonLimit], "") + "..."
	}
	return text
}

// DeadLetters lists the shards within scope ("" for all) that were given up, the oldest first.
func (q *Queue) DeadLetters(ctx context.Context, scope string) ([]DeadLetter, error) {
	var list []DeadLetter
	err := q.eachDeadLetter(ctx, scope, func(m *jetstream.RawStreamMsg) error {
		attempt, _ := strconv.Atoi(m.Header.Get(headerAttempt))
		list = append(list, DeadLetter{keyOf(deadSubjects, m.Subject), m.Header.Get(headerReason), attempt, m.Time})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", unavailable(err))
	}
	return list, nil
}

// DeadLetterData returns the bytes of the shard that was given up under key.
func (q *Queue) DeadLetterData(ctx context.Context, key string) ([]byte, error) {
	tail, err := subjectTail(key)
	if err != nil {
		return nil, err
	}
	var m *jetstream.RawStreamMsg
	err = q.ask(ctx, func(ctx context.Context) (err error) {
		m, err = q.dead.GetLastMsgForSubject(ctx, deadSubjects+tail)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the dead letter %s: %w", key, err)
	}
	object := m.Header.Get(headerPayload)
	if object == "" {
		return m.Data, nil
	}
	data, err := q.payload(ctx, object)
	if err != nil {
		return nil, fmt.Errorf("read the payload of the dead letter %s: %w", key, err)
	}
	return data, nil
}

// PurgeDeadLetters removes the dead letters within scope ("" for all) and their payloads.
func (q *Queue) PurgeDeadLetters(ctx context.Context, scope string) error {
	var objects []string
	last := uint64(0)
	err := q.eachDeadLetter(ctx, scope, func(m *jetstream.RawStreamMsg) error {
		last = m.Sequence
		if object := m.Header.Get(headerPayload); object != "" {
			objects = append(objects, object)
		}
		return nil
	})
	if err != nil || last == 0 {
		return err
	}
	// No further than what was read: a letter that came since keeps its payload.
	err = q.ask(ctx, func(ctx context.Context) error {
		return q.dead.Purge(ctx, jetstream.WithPurgeSubject(within(deadSubjects, scope)), jetstream.WithPurgeSequence(last+1))
	})
	if err != nil {
		return fmt.Errorf("purge dead letters: %w", err)
	}
	for _, object := range objects {
		if err := q.ask(ctx, func(ctx context.Context) error { return q.dropPayload(ctx, object) }); err != nil {
			return fmt.Errorf("purge dead letters: %w", err)
		}
	}
	return nil
}

func (q *Queue) eachDeadLetter(ctx context.Context, scope string, f func(*jetstream.RawStreamMsg) error) error {
	if scope != "" {
		if err := ValidateScope(scope); err != nil {
			return err
		}
	}
	for seq := uint64(1); ; {
		var m *jetstream.RawStreamMsg
		err := q.ask(ctx, func(ctx context.Context) (err error) {
			m, err = q.dead.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(within(deadSubjects, scope)))
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f(m); err != nil {
			return err
		}
		seq = m.Sequence + 1
	}
}
