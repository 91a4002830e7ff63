package queue

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

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
	publishWindow   = 2 * time.Minute // how long the server remembers a Nats-Msg-Id; far longer than settleTimeout
)

var name = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// ValidateJob reports why a job's name cannot be part of a subject, or nil.
func ValidateJob(job string) error {
	if !name.MatchString(job) {
		return fmt.Errorf("job name %q: only letters, digits, _ and - are allowed", job)
	}
	return nil
}

// subjectTail turns the key "<job>/<mode>/<shard>" into "<job>.<mode>.<shard>".
func subjectTail(key string) (string, error) {
	parts := strings.Split(key, "/")
	if len(parts) != 3 {
		return "", fmt.Errorf("shard key %q: want <job>/<mode>/<shard>", key)
	}
	for _, p := range parts {
		if !name.MatchString(p) {
			return "", fmt.Errorf("shard key %q: its parts may hold letters, digits, _ and - only", key)
		}
	}
	return strings.Join(parts, "."), nil
}

// keyOf is the inverse of subjectTail on a whole subject under prefix.
func keyOf(prefix, subject string) string {
	return strings.ReplaceAll(strings.TrimPrefix(subject, prefix), ".", "/")
}

// ofJob is the subject filter of one job under prefix, or of all jobs.
func ofJob(prefix, job string) string {
	if job == "" {
		return prefix + ">"
	}
	return prefix + job + ".>"
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

// ensure makes what the queue needs on the server. It may be called by many processes at once and any number of
// times: what exists and fits stays as it is.
func (q *Queue) ensure(ctx context.Context, replicas int) (err error) {
	q.shards, err = ensureStream(ctx, q.js, jetstream.StreamConfig{
		Name:                 streamName,
		Description:          "draftmill: shards to do",
		Subjects:             []string{shardSubjects + ">"},
		Retention:            jetstream.WorkQueuePolicy,
		Storage:              jetstream.FileStorage,
		Discard:              jetstream.DiscardNew,
		MaxMsgsPerSubject:    1,
		DiscardNewPerSubject: true,
		Duplicates:           publishWindow,
		Replicas:             replicas,
	})
	if err != nil {
		return err
	}
	q.dead, err = ensureStream(ctx, q.js, jetstream.StreamConfig{
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
		return err
	}
	if q.counts, err = ensureAttempts(ctx, q.js, replicas); err != nil {
		return err
	}
	q.payloads, err = q.js.ObjectStore(ctx, payloadBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		q.payloads, err = q.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: payloadBucket, Description: "draftmill: shards larger than a message", Storage: jetstream.FileStorage, Replicas: replicas,
		})
	}
	if err != nil {
		return fmt.Errorf("make the bucket %s: %w", payloadBucket, err)
	}
	return nil
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

// Pending counts a job's shards that are not done: waiting or in a worker's hands. Job "" counts all jobs.
func (q *Queue) Pending(ctx context.Context, job string) (int, error) {
	if job == "" {
		info, err := q.shards.Info(ctx)
		if err != nil {
			return 0, fmt.Errorf("count pending shards: %w", err)
		}
		return int(info.State.Msgs), nil
	}
	if err := ValidateJob(job); err != nil {
		return 0, err
	}
	info, err := q.shards.Info(ctx, jetstream.WithSubjectFilter(ofJob(shardSubjects, job)))
	if err != nil {
		return 0, fmt.Errorf("count pending shards of job %s: %w", job, err)
	}
	var n uint64
	for _, msgs := range info.State.Subjects {
		n += msgs
	}
	return int(n), nil
}

// PurgeJob takes a job's shards off the queue, with their payloads and counts. Dead letters stay. Shards in the
// hands of workers are finished there; settling them does no harm. Nobody may publish for the job meanwhile.
func (q *Queue) PurgeJob(ctx context.Context, job string) error {
	if err := ValidateJob(job); err != nil {
		return err
	}
	if err := q.shards.Purge(ctx, jetstream.WithPurgeSubject(ofJob(shardSubjects, job))); err != nil {
		return fmt.Errorf("purge job %s: %w", job, err)
	}
	if err := q.counts.forgetJob(ctx, job); err != nil {
		return fmt.Errorf("purge job %s: %w", job, err)
	}
	keep := map[string]bool{}
	err := q.eachDeadLetter(ctx, job, func(m *jetstream.RawStreamMsg) error {
		keep[m.Header.Get(headerPayload)] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("purge job %s: %w", job, err)
	}
	objects, err := q.payloads.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return fmt.Errorf("purge job %s: list payloads: %w", job, err)
	}
	for _, o := range objects {
		if strings.HasPrefix(o.Name, job+"/") && !keep[o.Name] {
			if err := q.dropPayload(ctx, o.Name); err != nil {
				return fmt.Errorf("purge job %s: %w", job, err)
			}
		}
	}
	return nil
}
