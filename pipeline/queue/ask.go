package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/draftmill/draftmill/pipeline"
)

// A connection that breaks, a server that stops or starts and one that has no leader lose what is on its way to them: a
// question gets no answer then, however long it is waited for, and is asked again. Not repeated is only what hands out
// or gives back a shard, which comes back after AckWait.
const (
	answerTimeout  = 2 * time.Second  // the first wait for an answer; each later one is twice as long
	longestAnswer  = 30 * time.Second // no wait is longer, but for a large payload
	requestTimeout = 30 * time.Second // one question to the server, all its repetitions together
	payloadTimeout = 2 * time.Minute  // one try to store or to read a large payload; chunks of one that is given up stay
	sayAgain       = 30 * time.Second // between two warnings about the same wait

	codeNoStorage jetstream.ErrorCode = 10047 // the server's disk or its limit for JetStream is full
	codeInProcess jetstream.ErrorCode = 10158 // the same message came before and is being stored
)

// ask asks the server what f asks, for requestTimeout at most; see insist.
func (q *Queue) ask(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return q.insist(ctx, "", q.answer, f)
}

// insist repeats f, with more time each time, until it succeeds, the server refuses or ctx ends. f may be done twice, its
// first answer being lost: it must come to the same. first is the time of the first try. Streams that the server has lost
// a submitter makes anew, empty: a server without them is not broken. It says now and then what it waits for.
func (q *Queue) insist(ctx context.Context, shard string, first time.Duration, f func(context.Context) error) error {
	said := time.Now()
	for limit := first; ; limit = min(2*limit, max(first, longestAnswer)) {
		began := time.Now()
		err := inTime(ctx, limit, f)
		if refused := q.forbidden(began); err != nil && refused != nil {
			return both(refused, err)
		}
		if err == nil || isRefusal(err) && !lostStream(err) || q.nc.IsClosed() {
			return err
		}
		if time.Since(said) >= sayAgain {
			said = time.Now()
			q.log.Warn("queue: the server does not take a shard; still trying", "server", q.server, "shard", shard, "err", err)
		}
		if !pause(ctx, min(limit, reconnectWait)) {
			return fmt.Errorf("no answer from the server: %w", err)
		}
		if (lostStream(err) || errors.Is(err, nats.ErrNoResponders)) && !q.worker { // a direct read of a stream that is lost has no responders
			if err := inTime(ctx, limit, q.remake); isRefusal(err) && !lostStream(err) {
				return err
			}
		}
	}
}

func inTime(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}

// remake makes the streams anew that the server has lost. Handles of streams name them; those that are open serve.
func (q *Queue) remake(ctx context.Context) error {
	if _, err := q.js.Stream(ctx, streamName); errors.Is(err, jetstream.ErrStreamNotFound) {
		q.log.Warn("queue: the server has lost its streams; making them anew, empty", "server", q.server)
	}
	q.forgetRuns()
	_, err := q.ensure(ctx)
	return err
}

// isRefusal says that the server answered, with an error that trying again does not change. Without room, or without
// a leader, it takes the same message later.
func isRefusal(err error) bool {
	for _, answer := range []error{jetstream.ErrKeyNotFound, jetstream.ErrObjectNotFound, jetstream.ErrNoObjectsFound, jetstream.ErrDigestMismatch, errTooLarge} {
		if errors.Is(err, answer) {
			return true
		}
	}
	var setup *setupError
	if errors.As(err, &setup) {
		return true
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code != 503 && api.Code != 429 && api.ErrorCode != codeNoStorage && api.ErrorCode != codeInProcess
}

// lostStream says that the server does not have the stream that was open.
func lostStream(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrBucketNotFound) ||
		errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound
}

// unavailable blames the network for an error that is no answer of the server's.
func unavailable(err error) error {
	var setup *setupError
	if err == nil || isRefusal(err) && !lostStream(err) || errors.As(err, &setup) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrConnectionClosed) {
		return err
	}
	return &pipeline.Fault{Blame: pipeline.BlameNetwork, Err: err}
}
