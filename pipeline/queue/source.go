package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/draftmill/draftmill/pipeline"
)

const (
	newsSubject = "draftmill.news" // something to do has come; nothing is stored, workers look by themselves, too
	newsEvery   = 100 * time.Millisecond
	lookAgain   = 10 * time.Second // a worker's list of runs is no older
	lookPause   = 250 * time.Millisecond
	pullTimeout = 10 * time.Second // what is lost with the answer comes back after AckWait

	defaultTurn = 10 * time.Second
	shortIdle   = 50 * time.Millisecond // between two looks of an idle worker: longer each time, an eighth of AckWait at last, within these
	longIdle    = 4 * time.Second
)

var (
	_ pipeline.Source    = (*Source)(nil)
	_ pipeline.Delivery  = (*Delivery)(nil)
	_ pipeline.Publisher = (*Queue)(nil)
)

// errEmpty says that a consumer has nothing to hand out.
var errEmpty = errors.New("no shard waits")

// Source hands out shards, one for each call of Next: of the runs with the highest priority that have work, one run
// after the other, each for a turn. It is safe for concurrent use.
type Source struct {
	q    *Queue
	life context.Context // ends with Close, or with the queue's
	end  context.CancelFunc

	pulls sync.WaitGroup     // questions under way
	heard *nats.Subscription // news

	mu      sync.Mutex
	news    chan struct{} // closed at the next news
	first   int           // where to begin: anywhere, so that workers that start together do not all serve the same run
	runs    []run         // that had work when looked at last and have not shown to be empty since
	looked  time.Time     // when that was
	stale   bool          // there were news since
	current string        // the scope whose turn it is
	since   time.Time     // the turn's begin
}

// Source opens the queue for a worker.
func (q *Queue) Source(context.Context) (*Source, error) {
	s := &Source{q: q, news: make(chan struct{}), first: rand.IntN(1 << 16)}
	var err error
	s.heard, err = q.nc.Subscribe(newsSubject, func(*nats.Msg) { s.wake() })
	if err != nil {
		return nil, fmt.Errorf("listen for news of the queue: %w", err)
	}
	s.life, s.end = context.WithCancel(q.life)
	q.start(func() { s.bury() })
	return s, nil
}

func (s *Source) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
	close(s.news)
	s.news = make(chan struct{})
}

// Close ends waiting calls of Next with ErrClosed. Deliveries handed out stay valid.
func (s *Source) Close() error {
	s.end()
	s.pulls.Wait()
	if err := s.heard.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
		return fmt.Errorf("close the source: %w", err)
	}
	return nil
}

// Next waits for a shard. It waits through a server's restart, and ends with ctx's error, with ErrClosed, or with
// what makes the queue unusable.
func (s *Source) Next(ctx context.Context) (pipeline.Delivery, error) {
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(ErrClosed) })()
	said, rest := time.Time{}, shortIdle/2
	for {
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		d, err := s.sweep(wait)
		switch {
		case d != nil:
			return d, nil
		case s.life.Err() != nil || s.q.nc.IsClosed():
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case isRefusal(err) && !lostStream(err):
			return nil, fmt.Errorf("wait for a shard: %w", err)
		case err != nil:
			if time.Since(said) >= sayAgain {
				said = time.Now()
				s.q.log.Warn("queue: the server hands out no shards; still trying", "server", s.q.server, "err", err)
			}
			pause(wait, reconnectWait)
			continue
		}
		rest = min(2*rest, s.idle())
		idle := time.NewTimer(rest)
		select {
		case <-news:
			rest = shortIdle / 2 // a consumer learns of its shards a little later than we
		case <-idle.C:
			s.mu.Lock()
			s.looked = time.Time{} // shards come back without news, from dead workers say
			s.mu.Unlock()
		case <-wait.Done():
		}
		idle.Stop()
	}
}

// idle is how long to wait before looking again, no two workers alike.
func (s *Source) idle() time.Duration {
	s.mu.Lock()
	shortest := s.q.ackWait
	for _, r := range s.runs {
		shortest = min(shortest, r.ackWait)
	}
	s.mu.Unlock()
	d := min(max(shortest/8, shortIdle), longIdle)
	return d*3/4 + rand.N(d/2)
}

// sweep asks the runs that may have work, in order, until one has; a nil delivery without an error says that none has.
func (s *Source) sweep(ctx context.Context) (*Delivery, error) {
	list, err := s.order(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		msg, err := s.pull(ctx, r)
		if errors.Is(err, errEmpty) || errors.Is(err, nats.ErrNoResponders) { // or its consumer is gone, or about to move

			s.drop(r.scope)
			continue
		}
		if err != nil {
			return nil, err
		}
		s.serve(r.scope)
		d, err := s.receive(ctx, msg, r.ackWait)
		if d != nil || err != nil {
			return d, err
		}
	}
	return nil, nil
}

// order lists the runs to ask: the highest priority first, and among equals the one whose turn it is, then those after it.
func (s *Source) order(ctx context.Context) ([]run, error) {
	s.mu.Lock()
	age := time.Since(s.looked)
	look := age > lookAgain || age > s.q.turn || s.stale && age > lookPause || len(s.runs) == 0
	s.mu.Unlock()
	if look {
		var all []run
		err := s.q.ask(ctx, func(ctx context.Context) (err error) {
			all, err = s.q.runs(ctx, "")
			return err
		})
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.runs, s.looked, s.stale = s.runs[:0], time.Now(), false
		for _, r := range all {
			if r.waiting+r.inHand > 0 { // those in hand may come back
				s.runs = append(s.runs, r)
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []run
	for rest := s.runs; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].priority == rest[0].priority {
			n++
		}
		list = append(list, s.rotate(rest[:n])...)
		rest = rest[n:]
	}
	return list, nil
}

// rotate begins with the run whose turn it is, or with the one after it when its turn is over.
func (s *Source) rotate(equals []run) []run {
	first := s.first % len(equals)
	for i, r := range equals {
		if r.scope == s.current {
			if first = i; time.Since(s.since) >= s.q.turn {
				first++
			}
		}
	}
	list := make([]run, 0, len(equals))
	for i := range equals {
		list = append(list, equals[(first+i)%len(equals)])
	}
	return list
}

// serve notes which run was served.
func (s *Source) serve(scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != scope || time.Since(s.since) >= s.q.turn {
		s.current, s.since = scope, time.Now()
	}
}

// drop takes a run that is empty off the list until the next look.
func (s *Source) drop(scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.runs {
		if r.scope == scope {
			s.runs = append(s.runs[:i:i], s.runs[i+1:]...)
			return
		}
	}
}

// pull asks a run's consumer for one shard. A shard that comes after ctx has ended is given back.
func (s *Source) pull(ctx context.Context, r run) (*nats.Msg, error) {
	type answer struct {
		msg *nats.Msg
		err error
	}
	got := make(chan answer, 1)
	given := make(chan bool, 1) // whether somebody waits for the answer
	s.pulls.Add(1)
	if !s.q.start(func() {
		defer s.pulls.Done()
		msg, err := s.q.next(s.q.life, streamName, consumerOf(r.scope))
		got <- answer{msg, err}
		if wanted := <-given; !wanted && err == nil {
			s.q.log.Debug("queue: gave back a shard that came too late", "subject", msg.Subject)
			_ = msg.Respond([]byte("-NAK")) // lost with the connection, it comes back after AckWait
			s.q.announce(0)
		}
	}) {
		s.pulls.Done()
		return nil, ErrClosed
	}
	select {
	case a := <-got:
		given <- true
		return a.msg, a.err
	case <-ctx.Done():
		given <- false
		return nil, ctx.Err()
	}
}

// next asks a consumer for a message that it has now, by JetStream's pull protocol (ADR-13); errEmpty when there is none.
func (q *Queue) next(ctx context.Context, stream, consumer string) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	// An inbox of its own: a message comes with its stream's subject, by which no request is known.
	inbox := q.nc.NewInbox()
	answer, err := q.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Unsubscribe() }() // fails only on a closed connection
	if err := q.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+consumer, inbox, []byte(`{"batch":1,"no_wait":true}`)); err != nil {
		return nil, err
	}
	msg, err := answer.NextMsgWithContext(ctx)
	if err != nil {
		return nil, err
	}
	if msg.Reply != "" {
		return msg, nil
	}
	switch status := msg.Header.Get("Status"); status {
	case "404", "408":
		return nil, errEmpty
	case "503":
		return nil, nats.ErrNoResponders
	default:
		return nil, fmt.Errorf("the server answers %s %s", status, msg.Header.Get("Description"))
	}
}

// receive makes a delivery of a message: keeps it alive, counts the attempt, fetches a large payload. A nil
// delivery without an error says: not this one, ask for another.
func (s *Source) receive(ctx context.Context, msg *nats.Msg, ackWait time.Duration) (*Delivery, error) {
	q := s.q
	d := newDelivery(q, msg, ackWait)
	if !q.start(d.keepAlive) {
		return nil, ErrClosed
	}
	if _, err := subjectTail(d.key); err != nil {
		return nil, d.discard(ctx, fmt.Errorf("no shard of draftmill: %w", err))
	}
	// Not cut short by ctx at once: a count that the server stores and nobody here knows of could not be taken back.
	counting, cancel := context.WithCancel(q.life)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		pause(counting, giveBackTimeout)
		cancel()
	})()
	try := nuid.Next()
	err := q.ask(counting, func(ctx context.Context) (err error) {
		d.mark, err = q.counts.begin(ctx, d.tail, d.id, try)
		return err
	})
	if err != nil {
		d.abandon()
		return nil, err
	}
	d.data = msg.Data
	d.object = msg.Header.Get(headerPayload)
	if d.object == "" {
		return d, nil
	}
	d.data, err = q.payload(ctx, d.object)
	if sum := sha256.Sum256(d.data); err == nil && hex.EncodeToString(sum[:]) != msg.Header.Get(headerSHA256) {
		err = jetstream.ErrDigestMismatch
	}
	switch {
	case err == nil:
		return d, nil
	case !errors.Is(err, jetstream.ErrObjectNotFound) && !errors.Is(err, jetstream.ErrDigestMismatch) && !errors.Is(err, errTooLarge):
		d.abandon()
		return nil, fmt.Errorf("fetch the payload of shard %s: %w", d.key, err)
	}
	// Done by another worker this moment, or unreadable for everybody.
	queued := d.id
	if err := q.ask(ctx, func(ctx context.Context) (err error) {
		queued, err = q.queuedID(ctx, msg.Subject)
		return err
	}); err != nil || queued != d.id {
		d.abandon()
		return nil, err
	}
	return nil, d.discard(ctx, fmt.Errorf("its payload %s cannot be read: %w", d.object, err))
}

// errTooLarge says that a payload is larger than any that Publish stores.
var errTooLarge = errors.New("larger than a shard may be")

// payload reads an object, after a look at its size.
func (q *Queue) payload(ctx context.Context, object string) (data []byte, err error) {
	err = q.ask(ctx, func(ctx context.Context) error {
		info, err := q.payloads.GetInfo(ctx, object)
		if err == nil && info.Size > uint64(q.maxPayload) {
			err = fmt.Errorf("%d bytes: %w", info.Size, errTooLarge)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*payloadTimeout)
	defer cancel()
	err = q.insist(ctx, object, payloadTimeout, func(ctx context.Context) (err error) {
		data, err = q.payloads.GetBytes(ctx, object)
		return err
	})
	return data, err
}

// announce tells idle workers after delay that there is something to do, seldom enough for any number of shards.
func (q *Queue) announce(delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.life.Err() != nil || delay == 0 && q.announcing {
		return
	}
	if delay == 0 {
		q.announcing = true
		delay = time.Until(q.announced.Add(newsEvery))
	}
	q.work.Go(func() {
		if !pause(q.life, delay) {
			return
		}
		q.mu.Lock()
		q.announcing, q.announced = false, time.Now()
		q.mu.Unlock()
		_ = q.nc.Publish(newsSubject, nil) // workers look by themselves, too
	})
}
