package queue

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/draftmill/draftmill/pipeline/queue/queuetest"
)

// A worker that starts before its server waits for it, and no longer than it was told.
func TestConnectWaitsForAServer(t *testing.T) {
	t.Parallel()
	address := queuetest.Address(t, "127.0.0.1")
	if _, err := Connect(t.Context(), "nats://"+address, Options{}); !errors.Is(err, nats.ErrNoServers) {
		t.Fatalf("without a server: %v", err)
	}
	connected := make(chan error, 1)
	logs := &syncBuffer{}
	go func() {
		q, err := Connect(context.Background(), "nats://"+address, Options{Wait: patience, Logger: slog.New(slog.NewTextHandler(logs, nil))})
		if err == nil {
			err = q.Close()
		}
		connected <- err
	}()
	eventually(t, "a word about waiting", func() bool { return strings.Contains(logs.String(), "waiting for it") })
	embed(t, t.TempDir(), EmbedOptions{Listen: address})
	check(t, <-connected)
	if n := strings.Count(logs.String(), "waiting for it"); n != 1 {
		t.Errorf("said %d times:\n%s", n, logs)
	}
}

// An outage is said once, its end is said once, and nothing that was asked meanwhile fails.
func TestAnOutageIsRiddenOut(t *testing.T) {
	t.Parallel()
	server := embed(t, t.TempDir(), EmbedOptions{Listen: "127.0.0.1:-1"})
	network := newProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	logs := &syncBuffer{}
	q, err := Connect(t.Context(), strings.Replace(network.url(), "//", "//me:planted-secret@", 1), Options{AckWait: time.Second, Logger: slog.New(slog.NewTextHandler(logs, nil))})
	check(t, err)
	s, err := q.Source(t.Context())
	check(t, err)
	network.set(true)
	eventually(t, "a word about the outage", func() bool { return strings.Contains(logs.String(), "level=WARN msg=\"queue: the connection is lost") })
	published, taken := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := q.Publish(context.Background(), "job/run/ars/1", []byte("data"))
		published <- err
	}()
	go func() {
		d, err := s.Next(context.Background())
		if err == nil {
			err = d.Ack(context.Background())
		}
		taken <- err
	}()
	pause(t.Context(), 2*answerTimeout) // what is asked at first gets no answer
	network.set(false)
	check(t, <-published)
	check(t, <-taken)
	eventually(t, "a word about its end", func() bool { return strings.Contains(logs.String(), "connected again") })
	check(t, errors.Join(s.Close(), q.Close()))
	for _, line := range []string{"the connection is lost", "connected again"} {
		if n := strings.Count(logs.String(), line); n != 1 {
			t.Errorf("%q is said %d times:\n%s", line, n, logs)
		}
	}
	if strings.Contains(logs.String(), "planted-secret") {
		t.Errorf("the log gives a password away:\n%s", logs)
	}
}

// A server that lost its store is empty and usable: what is queued can be asked, and put there again.
func TestTheServerLosesItsStore(t *testing.T) {
	t.Parallel()
	first, err := Embed(t.TempDir(), EmbedOptions{Listen: queuetest.Address(t, "127.0.0.1")})
	check(t, err)
	url := first.URL()
	q := openURL(t, url, 30*time.Second)
	s := source(t, q)
	publish(t, q, true, "job/run/ars/1", "job/run/ars/2")
	if keys, err := q.Queued(t.Context(), "job/run"); err != nil || strings.Join(keys, " ") != "job/run/ars/1 job/run/ars/2" {
		t.Fatalf("queued: %v (%v)", keys, err)
	}
	check(t, take(t, s, "job/run/ars/1", 1).Ack(t.Context()))
	check(t, first.Close())
	embed(t, t.TempDir(), EmbedOptions{Listen: strings.TrimPrefix(url, "nats://")})
	eventually(t, "the connection", q.nc.IsConnected)
	pending(t, q, "job/run", 0)
	publish(t, q, true, "job/run/ars/2")
	check(t, take(t, s, "job/run/ars/2", 1).Ack(t.Context()))
	pending(t, q, "", 0)
}

// A server that lost part of its store, or on which it was made in part, is whole again for who uses it.
func TestTheServerLosesPartOfItsStore(t *testing.T) {
	t.Parallel()
	q := open(t, embed(t, t.TempDir(), EmbedOptions{MaxPayload: 64 << 10}), time.Hour)
	s := source(t, q)
	large := noise(100 << 10)
	for _, lost := range []string{"KV_" + attemptsBucket, deadStreamName, "OBJ_" + payloadBucket, streamName} {
		check(t, q.js.DeleteStream(t.Context(), lost))
		key := "job/run/ars/" + lost
		fresh, err := q.Publish(t.Context(), key, large)
		check(t, err)
		if !fresh {
			t.Errorf("%s is there already", key)
		}
		check(t, take(t, s, key, 1).Reject(t.Context(), errors.New("no")))
		letters, err := q.DeadLetters(t.Context(), "job")
		check(t, err)
		if len(letters) != 1 || letters[0].Key != key {
			t.Errorf("dead letters %+v", letters)
		}
		check(t, q.PurgeDeadLetters(t.Context(), "job"))
		leftovers(t, q)
	}
}

// A count of attempts that nobody removes does not stay for ever.
func TestCountsAreForgottenInTime(t *testing.T) {
	t.Parallel()
	q := fresh(t, 0)
	if age := q.counts.stream.CachedInfo().Config.MaxAge; age != attemptsAge {
		t.Errorf("the bucket of attempts keeps its keys for %v", age)
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"nats://host:4222":                        "nats://host:4222",
		"nats://user:password@host:4222":          "nats://xxxxx@host:4222",
		"nats://token@host":                       "nats://xxxxx@host",
		"user:password@host":                      "xxxxx@host",
		"tls://a:b@h1:1, nats://h2,nats://c:d@h3": "tls://xxxxx@h1:1,nats://h2,nats://xxxxx@h3",
		"nats://user:pa@ss@host":                  "nats://xxxxx@host",
		"nats://user:pass%zz@host":                "nats://xxxxx@host",
	} {
		if got := Redact(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
