package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// attempts counts how often each queued shard was handed out: one key per shard, "<count> <message id>". The
// message id ties the count to one publish; doc.go says why the count is not the server's. It is a key-value bucket
// used through its stream: a key's message also tells which try wrote it, and purging a subject leaves no delete marker.
type attempts struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

// attemptsAge is how long a count is kept that nobody wrote again. A worker that counts a shard and dies after another
// has settled it leaves a count that nothing else would remove.
const attemptsAge = 7 * 24 * time.Hour

// mark is one shard's count as stored.
type mark struct {
	count    int
	revision uint64 // 0: never stored
}

func ensureAttempts(ctx context.Context, js jetstream.JetStream, replicas int) (attempts, error) {
	_, err := js.KeyValue(ctx, attemptsBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: attemptsBucket, Description: "draftmill: attempts per queued shard", History: 1, Storage: jetstream.FileStorage, Replicas: replicas,
			TTL: attemptsAge,
		})
	} else if err == nil {
		err = limitAge(ctx, js)
	}
	if err != nil {
		return attempts{}, fmt.Errorf("make the bucket %s: %w", attemptsBucket, err)
	}
	s, err := js.Stream(ctx, "KV_"+attemptsBucket)
	if err != nil {
		return attempts{}, fmt.Errorf("open the bucket %s: %w", attemptsBucket, err)
	}
	return attempts{js, s}, nil
}

// limitAge gives a bucket of an earlier draftmill its age limit.
func limitAge(ctx context.Context, js jetstream.JetStream) error {
	s, err := js.Stream(ctx, "KV_"+attemptsBucket)
	if err != nil {
		return err
	}
	config := s.CachedInfo().Config
	if config.MaxAge == attemptsAge {
		return nil
	}
	config.MaxAge = attemptsAge
	_, err = js.UpdateStream(ctx, config)
	return err
}

// begin counts one more attempt at the shard of that subject tail and publish, and returns the new count. try is the
// attempt's own name, by which a repetition knows what it has counted already.
func (a attempts) begin(ctx context.Context, tail, id, try string) (mark, error) {
	for {
		old, by, err := a.read(ctx, tail, id)
		if err != nil {
			return mark{}, fmt.Errorf("read the attempts of %s: %w", tail, err)
		}
		if by == try {
			return old, nil
		}
		next, err := a.write(ctx, tail, id, try, old.count+1, old.revision)
		if err == nil {
			return next, nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) || ctx.Err() != nil { // else another worker counted meanwhile, or an earlier try of ours
			return mark{}, fmt.Errorf("count the attempts of %s: %w", tail, err)
		}
	}
}

// undo takes back the attempt that m counted, unless somebody counted since.
func (a attempts) undo(ctx context.Context, tail, id string, m mark) error {
	_, err := a.write(ctx, tail, id, nuid.Next(), m.count-1, m.revision)
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("take back an attempt of %s: %w", tail, err)
	}
	return nil
}

// forget removes the count up to m, and leaves one that somebody wrote since.
func (a attempts) forget(ctx context.Context, tail string, m mark) error {
	return a.stream.Purge(ctx, jetstream.WithPurgeSubject(a.subject(tail)), jetstream.WithPurgeSequence(m.revision+1))
}

func (a attempts) forgetAll(ctx context.Context, scope string) error {
	return a.stream.Purge(ctx, jetstream.WithPurgeSubject(within(a.subject(""), scope)))
}

func (a attempts) subject(tail string) string { return "$KV." + attemptsBucket + "." + tail }

// read returns the count as stored and the name of the try that stored it.
func (a attempts) read(ctx context.Context, tail, id string) (m mark, by string, err error) {
	stored, err := a.stream.GetLastMsgForSubject(ctx, a.subject(tail))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return mark{}, "", nil
	}
	if err != nil {
		return mark{}, "", err
	}
	count, of, _ := strings.Cut(string(stored.Data), " ")
	if of == id { // else it counted an earlier publish of the same key
		if _, err := fmt.Sscanf(count, "%d", &m.count); err != nil {
			return mark{}, "", fmt.Errorf("the stored value %q is no count", stored.Data)
		}
	}
	m.revision = stored.Sequence
	return m, stored.Header.Get(nats.MsgIdHdr), nil
}

// write stores a count if the key is still at the given revision, else the error is jetstream.ErrKeyExists.
func (a attempts) write(ctx context.Context, tail, id, try string, count int, after uint64) (mark, error) {
	msg := nats.NewMsg(a.subject(tail))
	msg.Data = fmt.Appendf(nil, "%d %s", count, id)
	stored, err := a.js.PublishMsg(ctx, msg, jetstream.WithMsgID(try), jetstream.WithExpectLastSequencePerSubject(after))
	if err != nil {
		return mark{}, err
	}
	return mark{count, stored.Sequence}, nil
}
