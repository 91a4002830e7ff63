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
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const (
	headerPayload = "Draftmill-Payload" // name of the object that holds the shard; the message is then empty
	headerSHA256  = "Draftmill-Sha256"  // hex digest of that object's bytes

	chunkSize     = 128 << 10 // of an object, the Object Store's default; less on servers that take less
	messageMargin = 16 << 10  // left of the server's limit for headers, a dead letter's reason among them

	codeStoreFailed jetstream.ErrorCode = 10077 // a stream's limit refused the message; the description says which
	refusedPerKey                       = "maximum messages per subject exceeded"
)

// Publish queues the shard's bytes under key "<job>/<mode>/<shard>" and returns once they are on the server's disk.
// fresh is false, and nothing changes, while an earlier publish of the key is queued or in a worker's hands. After
// an error the shard may or may not be queued; publishing it again is always safe. data is not kept.
func (q *Queue) Publish(ctx context.Context, key string, data []byte) (fresh bool, err error) {
	tail, err := subjectTail(key)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()

	msg := nats.NewMsg(shardSubjects + tail)
	msg.Header.Set(nats.MsgIdHdr, nuid.Next())
	object := ""
	if len(data) <= q.inlineLimit() {
		msg.Data = data
	} else {
		if queued, err := q.queuedID(ctx, msg.Subject); err != nil || queued != "" {
			return false, wrapPublish(key, err) // spares the upload; the stream's own refusal is what counts
		}
		object = key + "/" + msg.Header.Get(nats.MsgIdHdr)
		sum := sha256.Sum256(data)
		meta := jetstream.ObjectMeta{Name: object, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(min(q.inlineLimit(), chunkSize))}}
		if _, err := q.payloads.Put(ctx, meta, bytes.NewReader(data)); err != nil {
			return false, wrapPublish(key, fmt.Errorf("store its %d bytes as an object: %w", len(data), err))
		}
		msg.Header.Set(headerPayload, object)
		msg.Header.Set(headerSHA256, hex.EncodeToString(sum[:]))
	}
	fresh, err = q.store(ctx, msg)
	if object != "" && !fresh && (err == nil || isRefusal(err)) { // without an answer the message may be there, and need it
		err = both(err, q.dropPayload(ctx, object))
	}
	return fresh, wrapPublish(key, err)
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
	for try := 0; ; try++ {
		once, cancel := context.WithTimeout(ctx, requestTimeout)
		_, err = q.js.PublishMsg(once, msg, jetstream.WithExpectStream(streamName))
		cancel()
		var refused *jetstream.APIError
		switch {
		case err == nil:
			return true, nil // also when marked a duplicate: the id is ours, and so is what is stored
		case errors.As(err, &refused) && refused.ErrorCode == codeStoreFailed && refused.Description == refusedPerKey:
			if try == 0 {
				return false, nil
			}
			id, err := q.queuedID(ctx, msg.Subject) // an earlier try may be what is in the way
			return err == nil && id == msg.Header.Get(nats.MsgIdHdr), err
		case isRefusal(err), errors.Is(err, nats.ErrConnectionClosed):
			return false, err
		}
		if !pause(ctx, reconnectWait) {
			return false, fmt.Errorf("no confirmation from the server: %w", err)
		}
	}
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

// isRefusal says that the server answered, with an error: trying again changes nothing.
func isRefusal(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.Code != 503 || api.ErrorCode == codeStoreFailed)
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
			marker := "$O." + payloadBucket + ".M." + base64.URLEncoding.EncodeToString([]byte(object))
			err = s.Purge(ctx, jetstream.WithPurgeSubject(marker))
		}
	}
	if err != nil {
		return fmt.Errorf("remove the payload %s: %w", object, err)
	}
	return nil
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
