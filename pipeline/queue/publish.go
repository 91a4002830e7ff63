package queue

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/propagation"
)

const (
	headerPayload = "Draftmill-Payload" // name of the object that holds the shard; the message is then empty
	headerSHA256  = "Draftmill-Sha256"  // hex digest of that object's bytes

	uploadWindow  = 64        // chunks on their way at a time: more than the server takes in gives "too many requests"
	chunkSize     = 128 << 10 // of an object, the Object Store's default; less on servers that take less
	maxPayload    = 1 << 30   // bytes of a shard, above any that a submitter makes
	messageMargin = 16 << 10  // left of the server's limit for headers, a dead letter's reason among them

	codeStoreFailed jetstream.ErrorCode = 10077 // a stream's limit refused the message; the description says which
	refusedPerKey                       = "maximum messages per subject exceeded"
)

// Publish queues the shard's bytes under its key and returns once they are on the server's disk. It waits for a server
// that does not answer, and for one that has no room, until ctx ends. fresh is false, and nothing changes, while an
// earlier publish of the key is queued or in a worker's hands. After an error the shard may or may not be queued;
// publishing it again is always safe. data is not kept.
func (q *Queue) Publish(ctx context.Context, key string, data []byte) (fresh bool, err error) {
	tail, err := subjectTail(key)
	if err != nil {
		return false, err
	}
	if len(data) > q.maxPayload {
		return false, wrapPublish(key, fmt.Errorf("%d bytes: %w", len(data), errTooLarge))
	}
	msg := nats.NewMsg(shardSubjects + tail)
	msg.Header.Set(nats.MsgIdHdr, nuid.Next())
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(msg.Header))
	object := ""
	if len(data) <= q.inlineLimit() {
		msg.Data = data
	} else {
		object = key + "/" + msg.Header.Get(nats.MsgIdHdr)
		queued := ""
		err := q.insist(ctx, key, q.answer, func(ctx context.Context) (err error) {
			queued, err = q.queuedID(ctx, msg.Subject)
			return err
		})
		if err != nil || queued != "" { // spares the upload; the stream's own refusal is what counts
			return false, wrapPublish(key, err)
		}
		err = q.insist(ctx, key, payloadTimeout, func(ctx context.Context) error { return q.upload(ctx, object, data) })
		if err != nil {
			return false, wrapPublish(key, err)
		}
		sum := sha256.Sum256(data)
		msg.Header.Set(headerPayload, object)
		msg.Header.Set(headerSHA256, hex.EncodeToString(sum[:]))
	}
	fresh, err = q.store(ctx, msg)
	if object != "" && !fresh && (err == nil || isRefusal(err)) { // without an answer the message may be there, and need it
		err = both(err, q.ask(ctx, func(ctx context.Context) error { return q.dropPayload(ctx, object) }))
	}
	return fresh, wrapPublish(key, err)
}

func (q *Queue) upload(ctx context.Context, object string, data []byte) error {
	meta := jetstream.ObjectMeta{Name: object, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(min(q.inlineLimit(), chunkSize))}}
	if _, err := q.payloads.Put(ctx, meta, bytes.NewReader(data)); err != nil {
		return fmt.Errorf("store its %d bytes as an object: %w", len(data), err)
	}
	return nil
}

func wrapPublish(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("publish shard %s: %w", key, err)
}

func (q *Queue) inlineLimit() int {
	limit := int(q.nc.MaxPayload())
	return max(limit-messageMargin, limit/2)
}

// store sends msg until the server says that it is stored or refused. All tries carry one id, so that a try whose
// answer was lost is recognised by the server.
func (q *Queue) store(ctx context.Context, msg *nats.Msg) (fresh bool, err error) {
	try := 0
	err = q.insist(ctx, keyOf(shardSubjects, msg.Subject), q.answer, func(ctx context.Context) error {
		try++
		if err := q.openRun(ctx, scopeOf(keyOf(shardSubjects, msg.Subject))); err != nil {
			return err
		}
		_, err := q.js.PublishMsg(ctx, msg, jetstream.WithExpectStream(streamName))
		var refused *jetstream.APIError
		switch {
		case err == nil:
			fresh = true // also when marked a duplicate: the id is ours, and so is what is stored
			q.announce(0)
		case errors.As(err, &refused) && refused.ErrorCode == codeStoreFailed && refused.Description == refusedPerKey:
			if try == 1 {
				return nil
			}
			var id string
			id, err = q.queuedID(ctx, msg.Subject) // an earlier try may be what is in the way
			fresh = err == nil && id == msg.Header.Get(nats.MsgIdHdr)
		}
		return err
	})
	return fresh, err
}

// queuedID is the message id of what is queued under subject, "" when nothing is.
func (q *Queue) queuedID(ctx context.Context, subject string) (string, error) {
	m, err := q.shards.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if id := m.Header.Get(nats.MsgIdHdr); id != "" {
		return id, nil
	}
	return "(none)", nil // not published by us
}

// dropPayload removes an object and its delete marker; it is no error when it is gone already.
func (q *Queue) dropPayload(ctx context.Context, object string) error {
	err := q.payloads.Delete(ctx, object)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil
	}
	if err == nil {
		var s jetstream.Stream
		if s, err = q.js.Stream(ctx, "OBJ_"+payloadBucket); err == nil {
			err = s.Purge(ctx, jetstream.WithPurgeSubject(payloadNames+base64.URLEncoding.EncodeToString([]byte(object))))
		}
	}
	if err != nil {
		return fmt.Errorf("remove the payload %s: %w", object, err)
	}
	return nil
}

// payloadNames begins the subjects under which the object store keeps what it knows of objects (ADR-20).
const payloadNames = "$O." + payloadBucket + ".M."

// listPayloads lists the objects in one question; the object store's own list asks for each.
func (q *Queue) listPayloads(ctx context.Context) ([]string, error) {
	s, err := q.js.Stream(ctx, "OBJ_"+payloadBucket)
	if err != nil {
		return nil, fmt.Errorf("list the payloads: %w", err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(payloadNames+">"))
	if err != nil {
		return nil, fmt.Errorf("list the payloads: %w", err)
	}
	var list []string
	for subject := range info.State.Subjects {
		object, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(subject, payloadNames))
		if err != nil {
			return nil, fmt.Errorf("list the payloads: the subject %s names none: %w", subject, err)
		}
		list = append(list, string(object))
	}
	return list, nil
}

// both is errors.Join on one line.
func both(a, b error) error {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return fmt.Errorf("%w; %w", a, b)
}

// pause waits for d; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
