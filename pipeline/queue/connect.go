package queue

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	defaultAckWait  = 60 * time.Second
	dialTimeout     = 5 * time.Second
	reconnectWait   = 250 * time.Millisecond
	dialWait        = time.Second      // between two tries to reach a server for the first time
	giveBackTimeout = 5 * time.Second  // what is said once about a shard, by who stops perhaps
	settleTimeout   = 30 * time.Second // one acknowledgement, all its retries together
)

// ErrClosed says that the queue or the source was closed by this process.
var ErrClosed = errors.New("the queue is closed")

// Options say how to reach a NATS server and how the queue behaves there. The zero value is of use.
type Options struct {
	Credentials string // path of a NATS credentials file; a user and password or a token may stand in the URL instead
	NKey        string // path of a file with an NKey's seed

	TLSCA   string // path of the PEM certificates that sign the server's, when the system does not know them
	TLSCert string // path of the client's PEM certificate; TLSKey goes with it
	TLSKey  string

	// AckWait is how long a silent worker keeps a shard before another gets it; 0: 60 seconds. It belongs to what
	// is published: workers take it from there.
	AckWait time.Duration

	// Turn is how long a worker keeps to one run while another of the same priority has work; 0: 10 seconds.
	Turn time.Duration

	// Worker is for who takes shards and publishes none: it makes nothing on the server. Where no submitter has made
	// the streams yet, Connect waits until one does.
	Worker bool

	// Wait is how long a server that does not answer yet is waited for; 0: not at all. What it answers, a refusal of
	// the credentials say, is never waited out.
	Wait time.Duration

	// Replicas is the copies of each stream and MaxBytes bounds that of the shards; both are used when they are first
	// made. 0: 3 copies on a cluster, else 1; no bound. Who publishes to a full stream waits.
	Replicas int
	MaxBytes int64

	Name   string       // the name by which the server knows this client; "": draftmill
	Logger *slog.Logger // nil: slog.Default()
}

// Queue is a connection to one server's shard queue. It is safe for concurrent use.
type Queue struct {
	nc *nats.Conn
	js jetstream.JetStream
	stores
	ackWait    time.Duration
	turn       time.Duration
	maxDeliver int
	maxPayload int
	replicas   int
	maxBytes   int64
	answer     time.Duration // answerTimeout; shorter where a test loses many
	worker     bool          // makes nothing on the server
	server     string        // the addresses that were given, without secrets
	log        *slog.Logger

	life     context.Context // ends with Close
	end      context.CancelFunc
	work     sync.WaitGroup // heartbeats, watchers, give-backs; guarded by mu so that none is added after Close
	mu       sync.Mutex
	asyncErr atomic.Value // the last error the server sent out of turn, an error in a box

	// guarded by mu
	opened     map[string]bool // runs whose consumers are as they should be
	clocks     map[string]sighting
	priorities map[string]int // of runs, as chosen here
	announcing bool           // news are about to be sent
	announced  time.Time      // when they were sent last
}

type boxedError struct {
	error
	when time.Time
}

// forbidden is the violation of this user's permissions that the server spoke of since then; it answers to none of them.
func (q *Queue) forbidden(since time.Time) error {
	if last, ok := q.asyncErr.Load().(boxedError); ok && last.when.After(since) && errors.Is(last.error, nats.ErrPermissionViolation) {
		return fmt.Errorf("this user may not do that; configs/nats/roles.conf shows what submitters and workers may: %w", last.error)
	}
	return nil
}

// Connect reaches the server at url (several, separated by commas, are one cluster) and makes the queue's streams
// where they are absent. Close the queue when done. Errors name the server, what is wrong and what to do.
func Connect(ctx context.Context, url string, o Options) (*Queue, error) {
	return connect(ctx, url, o)
}

func connect(ctx context.Context, address string, o Options, more ...nats.Option) (*Queue, error) {
	q := &Queue{
		ackWait: o.AckWait, turn: o.Turn, maxDeliver: maxDeliveries, maxPayload: maxPayload, replicas: o.Replicas, maxBytes: o.MaxBytes, worker: o.Worker, answer: answerTimeout,
		server: Redact(address), log: o.Logger, opened: map[string]bool{}, clocks: map[string]sighting{}, priorities: map[string]int{},
	}
	if q.turn == 0 {
		q.turn = defaultTurn
	}
	if q.ackWait < 0 {
		return nil, fmt.Errorf("connect to NATS: the ack wait is %v, it must be positive", q.ackWait)
	}
	if q.ackWait == 0 {
		q.ackWait = defaultAckWait
	}
	if q.log == nil {
		q.log = slog.Default()
	}
	q.life, q.end = context.WithCancel(context.Background())

	opts, err := q.natsOptions(ctx, o)
	if err != nil {
		return nil, err
	}
	if q.nc, err = q.reach(ctx, address, append(opts, more...), o.Wait); err != nil {
		q.end()
		return nil, explain(q.server, scrub(address, err))
	}
	if q.replicas == 0 {
		if q.replicas = 1; q.nc.ConnectedClusterName() != "" {
			q.replicas = 3
		}
	}
	if q.js, err = jetstream.New(q.nc, jetstream.WithPublishAsyncMaxPending(uploadWindow)); err == nil {
		err = q.open(ctx)
	}
	if err != nil {
		_ = q.Close() // never fails
		return nil, explain(q.server, scrub(address, err))
	}
	return q, nil
}

// Server is where the queue is, without secrets: fit for a log.
func (q *Queue) Server() string { return q.server }

// Close ends the connection. Deliveries that are not settled are lost at once and come back after AckWait.
func (q *Queue) Close() error {
	q.mu.Lock()
	q.end()
	q.mu.Unlock()
	q.work.Wait()
	q.nc.Close()
	return nil
}

// start runs f in a goroutine that Close waits for; it reports false, and runs nothing, once the queue is closed.
func (q *Queue) start(f func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.life.Err() != nil {
		return false
	}
	q.work.Go(f)
	return true
}

func (q *Queue) natsOptions(ctx context.Context, o Options) ([]nats.Option, error) {
	timeout := dialTimeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(end), time.Millisecond))
	}
	name := o.Name
	if name == "" {
		name = "draftmill"
	}
	opts := []nats.Option{
		nats.Name(name),
		nats.Timeout(timeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait, 2*reconnectWait),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if q.life.Err() == nil { // else it is Close
				q.log.Warn("queue: the connection is lost; trying to reach the server again", "server", q.server, "err", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			q.log.Warn("queue: connected again", "server", q.server)
			q.forgetRuns() // the server may have lost its store
		}),
		nats.ClosedHandler(func(*nats.Conn) { q.end() }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			q.asyncErr.Store(boxedError{err, time.Now()})
			q.log.Debug("queue: connection", "err", err)
		}),
	}
	if o.Credentials != "" {
		opts = append(opts, nats.UserCredentials(o.Credentials))
	}
	if o.NKey != "" {
		key, err := nats.NkeyOptionFromSeed(o.NKey)
		if err != nil {
			return nil, fmt.Errorf("connect to NATS: read the NKey's seed %s: %w; name a file that holds one (nk -gen user)", o.NKey, err)
		}
		opts = append(opts, key)
	}
	if o.TLSCA != "" {
		opts = append(opts, nats.RootCAs(o.TLSCA))
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return nil, errors.New("connect to NATS: a client certificate needs its key and a key its certificate; give both files or neither")
	}
	if o.TLSCert != "" {
		opts = append(opts, nats.ClientCert(o.TLSCert, o.TLSKey))
	}
	return opts, nil
}

// reach dials, and again until wait is over while nobody answers.
func (q *Queue) reach(ctx context.Context, address string, opts []nats.Option, wait time.Duration) (*nats.Conn, error) {
	until := time.Now().Add(wait)
	for said := false; ; said = true {
		nc, err := dial(ctx, address, opts)
		if err == nil || ctx.Err() != nil || !silent(err) || time.Now().Add(dialWait).After(until) {
			return nc, err
		}
		if !said {
			q.log.Warn("queue: the server does not answer yet; waiting for it", "server", q.server, "at most", wait)
		}
		if !pause(ctx, dialWait) {
			return nil, ctx.Err()
		}
	}
}

// silent says that nobody answered, or not in time.
func silent(err error) bool {
	var late net.Error
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.As(err, &late) && late.Timeout()
}

// dial is nats.Connect that also ends with ctx; a connection that comes too late is closed.
func dial(ctx context.Context, address string, opts []nats.Option) (*nats.Conn, error) {
	type answer struct {
		nc  *nats.Conn
		err error
	}
	got := make(chan answer, 1)
	go func() {
		nc, err := nats.Connect(address, opts...)
		got <- answer{nc, err}
	}()
	select {
	case a := <-got:
		return a.nc, a.err
	case <-ctx.Done():
		go func() {
			if a := <-got; a.nc != nil {
				a.nc.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// explain turns what NATS says into one line that names the server, the fault and the remedy.
func explain(server string, err error) error {
	var (
		verify  *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		record  tls.RecordHeaderError
		path    *fs.PathError
		late    net.Error
		setup   *setupError
	)
	hint := ""
	switch {
	case errors.As(err, &setup):
		return fmt.Errorf("connect to NATS at %s: %w", server, err)
	case errors.Is(err, context.Canceled):
		hint = "interrupted"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired):
		hint = "the server refused the credentials; give a valid credentials file, or a user and password in the URL"
	case errors.Is(err, nats.ErrPermissionViolation):
		hint = "this user may not use the queue"
	case errors.Is(err, nats.ErrSecureConnWanted):
		hint = "the server does not speak TLS; use a nats:// URL without TLS files, or enable TLS on the server"
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &verify):
		hint = "the server's TLS certificate is not trusted; name the file of the authority that signed it"
	case errors.Is(err, nats.ErrNoInfoReceived), errors.As(err, &record):
		hint = "what answers there is no NATS server, or it wants TLS first"
	case strings.Contains(err.Error(), "tls:"), strings.Contains(err.Error(), "tls error"):
		hint = "TLS failed; check the certificate, key and authority files"
	case errors.As(err, &path):
		hint = "a credentials or TLS file cannot be read"
	case errors.Is(err, nats.ErrNoServers):
		hint = "nothing answers there; start a server, correct the URL, or leave it out to use the embedded one"
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.As(err, &late) && late.Timeout():
		hint = "no answer in time; check the address and the server's load"
	default:
		return fmt.Errorf("connect to NATS at %s: %w", server, err)
	}
	return fmt.Errorf("connect to NATS at %s: %s: %w", server, hint, err)
}

// Redact hides users, passwords and tokens in a list of server URLs.
func Redact(addresses string) string {
	list := strings.Split(addresses, ",")
	for i, a := range list {
		list[i] = strings.TrimSpace(a)
		at := strings.LastIndex(list[i], "@")
		if at < 0 {
			continue
		}
		scheme, _, found := strings.Cut(list[i][:at], "://")
		if found {
			scheme += "://"
		} else {
			scheme = ""
		}
		list[i] = scheme + "xxxxx" + list[i][at:]
	}
	return strings.Join(list, ",")
}

// scrub hides the address in the text of an error; errors about URLs cite them.
func scrub(address string, err error) error {
	text := err.Error()
	for a := range strings.SplitSeq(address, ",") {
		if a = strings.TrimSpace(a); strings.Contains(a, "@") {
			text = strings.ReplaceAll(text, a, Redact(a))
		}
	}
	if text == err.Error() {
		return err
	}
	return &scrubbed{text, err}
}

type scrubbed struct {
	text string
	error
}

func (s *scrubbed) Error() string { return s.text }
func (s *scrubbed) Unwrap() error { return s.error }
