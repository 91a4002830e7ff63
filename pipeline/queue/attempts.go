package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// attempts counts how often each queued shard was handed out: one key per shard, "<count> <message id>". The
// message id ties the count to one publish; doc.go says why the count is not the server's.
type attempts struct {
	kv     jetstream.KeyValue
	stream jetstream.Stream // the bucket's stream: purging a subject there leaves no delete marker behind
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
	kv, err := js.KeyValue(ctx, attemptsBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
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
	return attempts{kv, s}, nil
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

// begin counts one more attempt at the shard of that subject tail and publish, and returns the new count.
func (a attempts) begin(ctx context.Context, tail, id string) (mark, error) {
	for {
		old, err := a.read(ctx, tail, id)
		if err != nil {
			return mark{}, fmt.Errorf("read the attempts of %s: %w", tail, err)
		}
		next, err := a.write(ctx, tail, id, old.count+1, old.revision)
		if err == nil {
			return next, nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) || ctx.Err() != nil { // else another worker counted meanwhile
			return mark{}, fmt.Errorf("count the attempts of %s: %w", tail, err)
		}
	}
}

// undo takes back the attempt that m counted, unless somebody counted since.
func (a attempts) undo(ctx context.Context, tail, id string, m mark) error {
	_, err := a.write(ctx, tail, id, m.count-1, m.revision)
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

func (a attempts) read(ctx context.Context, tail, id string) (mark, error) {
	e, err := a.kv.Get(ctx, tail)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, err
	}
	var m mark
	count, of, _ := strings.Cut(string(e.Value()), " ")
	if of == id { // else it counted an earlier publish of the same key
		if _, err := fmt.Sscanf(count, "%d", &m.count); err != nil {
			return mark{}, fmt.Errorf("the stored value %q is no count", e.Value())
		}
	}
	m.revision = e.Revision()
	return m, nil
}

// write stores a count if the key is still at the given revision, else the error is jetstream.ErrKeyExists.
func (a attempts) write(ctx context.Context, tail, id string, count int, after uint64) (mark, error) {
	revision, err := a.kv.Update(ctx, tail, fmt.Appendf(nil, "%d %s", count, id), after)
	return mark{count, revision}, err
}
