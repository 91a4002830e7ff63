package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	streamName      = "DRAFTMILL"
	deadStreamName  = "DRAFTMILL_DEAD"
	payloadBucket   = "DRAFTMILL_PAYLOADS"
	attemptsBucket  = "DRAFTMILL_ATTEMPTS"
	shardSubjects   = "draftmill.shards."
	deadSubjects    = "draftmill.dead."
	progressSubject = "draftmill.progress."

	codeNoPeers     jetstream.ErrorCode = 10005
	codeNoResources jetstream.ErrorCode = 10023

	publishWindow = 2 * time.Minute // how long the server remembers a Nats-Msg-Id; far longer than settleTimeout
)

var name = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// ValidateScope reports why scope is not what begins a shard's key, a job's name or "<job>/<run>", or nil.
func ValidateScope(scope string) error {
	for part := range strings.SplitSeq(scope, "/") {
		if !name.MatchString(part) {
			return fmt.Errorf("%q names no job: only letters, digits, _ and - are allowed, and / between the parts of a key", scope)
		}
	}
	return nil
}

// subjectTail turns the key "<job>/<run>/<mode>/<shard>" into "<job>.<run>.<mode>.<shard>". What stands between run
// and shard is the publisher's, and may be nothing.
func subjectTail(key string) (string, error) {
	if err := ValidateScope(key); err != nil || strings.Count(key, "/") < 2 {
		return "", fmt.Errorf("shard key %q: want <job>/<run>/<mode>/<shard>, of letters, digits, _ and -", key)
	}
	return strings.ReplaceAll(key, "/", "."), nil
}

// keyOf is the inverse of subjectTail on a whole subject under prefix.
func keyOf(prefix, subject string) string {
	return strings.ReplaceAll(strings.TrimPrefix(subject, prefix), ".", "/")
}

// within is the subject filter under prefix of the keys that begin with scope; "" is all of them.
func within(prefix, scope string) string {
	if scope == "" {
		return prefix + ">"
	}
	return prefix + strings.ReplaceAll(scope, "/", ".") + ".>"
}

// setupError is a fault of what exists on the server; its text says what to do.
type setupError struct {
	text  string
	cause error
}

func (e *setupError) Error() string {
	if e.cause == nil {
		return e.text
	}
	return e.text + ": " + e.cause.Error()
}

func (e *setupError) Unwrap() error { return e.cause }

// stores are what the queue has on the server.
type stores struct {
	shards   jetstream.Stream
	dead     jetstream.Stream
	counts   attempts
	payloads jetstream.ObjectStore
}

// open makes what the queue needs on the server, or opens what is there. A worker waits until it is there.
func (q *Queue) open(ctx context.Context) error {
	for said := false; ; said = true {
		missing := false
		err := q.ask(ctx, func(ctx context.Context) (err error) {
			if q.worker {
				q.stores, err = q.find(ctx)
				missing = lostStream(err)
			} else {
				q.stores, err = q.ensure(ctx)
			}
			switch {
			case missing:
				return nil
			case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
				return &setupError{text: "the server has no JetStream for this account; start it with -js or enable JetStream in its configuration", cause: err}
			}
			return err
		})
		if !missing || err != nil {
			return err
		}
		if !said {
			q.log.Info("queue: nothing was submitted to this server yet; waiting for the first job", "server", q.server)
		}
		if !pause(ctx, dialWait) {
			return ctx.Err()
		}
	}
}

// find opens what the queue needs; an error for which lostStream is true says that not all of it is there.
func (q *Queue) find(ctx context.Context) (s stores, err error) {
	if s.shards, err = q.js.Stream(ctx, streamName); err != nil {
		return s, fmt.Errorf("open the stream %s: %w", streamName, err)
	}
	if s.dead, err = q.js.Stream(ctx, deadStreamName); err != nil {
		return s, fmt.Errorf("open the stream %s: %w", deadStreamName, err)
	}
	s.counts.js = q.js
	if s.counts.stream, err = q.js.Stream(ctx, "KV_"+attemptsBucket); err != nil {
		return s, fmt.Errorf("open the bucket %s: %w", attemptsBucket, err)
	}
	if s.payloads, err = q.js.ObjectStore(ctx, payloadBucket); err != nil {
		return s, fmt.Errorf("open the bucket %s: %w", payloadBucket, err)
	}
	if _, err = q.js.Stream(ctx, exhaustedStream); err != nil {
		return s, fmt.Errorf("open the stream %s: %w", exhaustedStream, err)
	}
	return s, nil
}

// ensure makes what the queue needs. It may be called by many processes at once and any number of times: what exists
// and fits stays as it is.
func (q *Queue) ensure(ctx context.Context) (s stores, err error) {
	js, replicas := q.js, q.replicas
	shards := jetstream.StreamConfig{
		Name:                 streamName,
		Description:          "draftmill: shards to do",
		Subjects:             []string{shardSubjects + ">"},
		Retention:            jetstream.WorkQueuePolicy,
		Storage:              jetstream.FileStorage,
		Discard:              jetstream.DiscardNew,
		MaxBytes:             cmp.Or(q.maxBytes, -1), // -1: no bound
		MaxMsgsPerSubject:    1,
		DiscardNewPerSubject: true,
		Duplicates:           publishWindow,
		Replicas:             replicas,
	}
	// Made last: where it is, all is. What somebody else has under its name is refused before anything is made.
	if _, err = js.Stream(ctx, streamName); err == nil {
		_, err = ensureStream(ctx, js, shards)
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return s, err
	}
	s.dead, err = ensureStream(ctx, js, jetstream.StreamConfig{
		Name:              deadStreamName,
		Description:       "draftmill: shards given up, with the reason",
		Subjects:          []string{deadSubjects + ">"},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardOld,
		MaxMsgsPerSubject: 1,
		Duplicates:        publishWindow,
		Replicas:          replicas,
	})
	if err != nil {
		return s, err
	}
	if err = ensureExhausted(ctx, js, replicas); err != nil {
		return s, err
	}
	if s.counts, err = ensureAttempts(ctx, js, replicas); err != nil {
		return s, err
	}
	s.payloads, err = js.ObjectStore(ctx, payloadBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		s.payloads, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: payloadBucket, Description: "draftmill: shards larger than a message", Storage: jetstream.FileStorage, Replicas: replicas,
		})
	}
	if err != nil {
		return s, fmt.Errorf("make the bucket %s: %w", payloadBucket, err)
	}
	s.shards, err = ensureStream(ctx, js, shards)
	return s, err
}

// ensureStream opens the stream want.Name, making it when absent. Of an existing one it sets right what can be set
// right, leaves limits and replicas to whoever chose them, and refuses what would lose shards or steal subjects.
func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // made by another in between, with other limits
			s, err = js.Stream(ctx, want.Name)
		}
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == codeNoPeers || api.ErrorCode == codeNoResources) {
		return nil, &setupError{text: fmt.Sprintf(
			"the servers cannot keep %d copies of the stream %s with the limits asked for; set nats.replicas to the number of servers, or less, and nats.stream_mb to what they have room for",
			want.Replicas, want.Name), cause: err}
	}
	if err != nil {
		return nil, fmt.Errorf("open the stream %s: %w", want.Name, err)
	}
	have := s.CachedInfo().Config
	if why := incompatible(have, want); why != "" {
		return nil, &setupError{text: fmt.Sprintf(
			"the stream %s exists but is not draftmill's: %s; remove it (nats stream rm %s) or use another account", want.Name, why, want.Name)}
	}
	fixed := have
	fixed.Discard, fixed.DiscardNewPerSubject, fixed.MaxMsgsPerSubject = want.Discard, want.DiscardNewPerSubject, want.MaxMsgsPerSubject
	fixed.Duplicates = want.Duplicates
	if fixed.Discard == have.Discard && fixed.DiscardNewPerSubject == have.DiscardNewPerSubject &&
		fixed.MaxMsgsPerSubject == have.MaxMsgsPerSubject && fixed.Duplicates == have.Duplicates {
		return s, nil
	}
	if s, err = js.UpdateStream(ctx, fixed); err != nil {
		return nil, &setupError{text: fmt.Sprintf(
			"the stream %s exists with another configuration and cannot be changed; remove it (nats stream rm %s)", want.Name, want.Name), cause: err}
	}
	return s, nil
}

func incompatible(have, want jetstream.StreamConfig) string {
	switch {
	case have.Retention != want.Retention:
		return fmt.Sprintf("its retention is %v, not %v", have.Retention, want.Retention)
	case have.Storage != want.Storage:
		return fmt.Sprintf("its storage is %v, not %v", have.Storage, want.Storage)
	case !slices.Equal(have.Subjects, want.Subjects):
		return fmt.Sprintf("its subjects are %v, not %v", have.Subjects, want.Subjects)
	case have.MaxAge != 0:
		return fmt.Sprintf("it drops messages after %v", have.MaxAge)
	case have.Mirror != nil || len(have.Sources) > 0:
		return "it copies another stream"
	case have.NoAck || have.Sealed:
		return "it is sealed or does not acknowledge"
	}
	return ""
}

// Queued lists the keys within scope that are not done: waiting or in a worker's hands. Scope "" lists all jobs'. Of
// one run it also makes sure that workers get what is listed.
func (q *Queue) Queued(ctx context.Context, scope string) ([]string, error) {
	if scope != "" {
		if err := ValidateScope(scope); err != nil {
			return nil, err
		}
	}
	var keys []string
	err := q.ask(ctx, func(ctx context.Context) error {
		info, err := q.shards.Info(ctx, jetstream.WithSubjectFilter(within(shardSubjects, scope)))
		if err != nil {
			return err
		}
		keys = make([]string, 0, len(info.State.Subjects))
		for subject := range info.State.Subjects {
			keys = append(keys, keyOf(shardSubjects, subject))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the queued shards of %s: %w", nameOf(scope), unavailable(err))
	}
	slices.Sort(keys)
	if len(keys) > 0 && strings.Contains(scope, "/") && !q.worker { // a consumer that is gone would leave them there for ever
		q.forgetRun(scope)
		if err := q.ask(ctx, func(ctx context.Context) error { return q.openRun(ctx, scope) }); err != nil {
			return nil, unavailable(err)
		}
	}
	return keys, nil
}

func nameOf(scope string) string {
	if scope == "" {
		return "all jobs"
	}
	return "job " + scope
}

// Purge takes the shards within scope, a job or "<job>/<run>", off the queue, with their payloads and counts. Dead
// letters stay. Shards in the hands of workers are finished there; settling them does no harm. Nobody may publish
// there meanwhile.
func (q *Queue) Purge(ctx context.Context, scope string) error {
	if err := ValidateScope(scope); err != nil {
		return err
	}
	if err := q.purge(ctx, scope); err != nil {
		return fmt.Errorf("purge job %s: %w", scope, err)
	}
	return nil
}

func (q *Queue) purge(ctx context.Context, scope string) error {
	var list []run
	err := q.ask(ctx, func(ctx context.Context) (err error) {
		if err = q.shards.Purge(ctx, jetstream.WithPurgeSubject(within(shardSubjects, scope))); err == nil {
			list, err = q.runs(ctx, scope)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range list {
		if err := q.ask(ctx, func(ctx context.Context) error { return q.closeRun(ctx, r.scope) }); err != nil {
			return err
		}
	}
	if err := q.ask(ctx, func(ctx context.Context) error { return q.counts.forgetAll(ctx, scope) }); err != nil {
		return err
	}
	keep := map[string]bool{}
	err = q.eachDeadLetter(ctx, scope, func(m *jetstream.RawStreamMsg) error {
		keep[m.Header.Get(headerPayload)] = true
		return nil
	})
	if err != nil {
		return err
	}
	var objects []string
	err = q.ask(ctx, func(ctx context.Context) (err error) {
		objects, err = q.listPayloads(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for _, object := range objects {
		if strings.HasPrefix(object, scope+"/") && !keep[object] {
			if err := q.ask(ctx, func(ctx context.Context) error { return q.dropPayload(ctx, object) }); err != nil {
				return err
			}
		}
	}
	return nil
}
