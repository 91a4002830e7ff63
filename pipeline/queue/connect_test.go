package queue

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/draftmill/draftmill/pipeline/queue/queuetest"
)

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// plain runs a NATS server as somebody else would have set it up.
func plain(t *testing.T, o *server.Options) string {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", -1, true, true
	if o.JetStream {
		o.StoreDir = t.TempDir()
	}
	ns, err := server.NewServer(o)
	check(t, err)
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	return "nats://" + ns.Addr().String()
}

func TestConnectSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	certs := newCertificates(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts, says nothing
	check(t, err)
	t.Cleanup(func() { mute.Close() })
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)

	private := plain(t, &server.Options{JetStream: true, Username: "me", Password: "secret"})
	withTLS := plain(t, &server.Options{JetStream: true, TLS: true, TLSConfig: certs.server(t, false)})
	mutual := plain(t, &server.Options{JetStream: true, TLS: true, TLSConfig: certs.server(t, true)})
	open := plain(t, &server.Options{JetStream: true})
	restricted := plain(t, &server.Options{JetStream: true, Users: []*server.User{{
		Username: "me", Password: "secret", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"elsewhere"}}},
	}}})
	foreign := plain(t, &server.Options{JetStream: true})
	makeStream(t, foreign, jetstream.StreamConfig{Name: streamName, Subjects: []string{"orders.>"}})

	for name, c := range map[string]struct {
		url  string
		o    Options
		want string
	}{
		"nobody there":          {"nats://" + queuetest.Address(t, "127.0.0.1"), Options{}, "nothing answers there"},
		"nothing said":          {"nats://" + mute.Addr().String(), Options{}, "no answer in time"},
		"another protocol":      {strings.Replace(web.URL, "http", "nats", 1), Options{}, "no answer in time"},
		"malformed":             {"nats://host:port:1", Options{}, "too many colons"},
		"no JetStream":          {plain(t, &server.Options{}), Options{}, "no JetStream"},
		"no password":           {private, Options{}, "refused the credentials"},
		"wrong password":        {strings.Replace(private, "//", "//me:wrongpass@", 1), Options{}, "refused the credentials"},
		"no credentials file":   {open, Options{Credentials: "/nowhere/user.creds"}, "cannot be read"},
		"unknown authority":     {withTLS, Options{}, "not trusted"},
		"no authority file":     {withTLS, Options{TLSCA: "/nowhere/ca.pem"}, "cannot be read"},
		"no client certificate": {mutual, Options{TLSCA: certs.ca}, "TLS failed"},
		"certificate alone":     {mutual, Options{TLSCA: certs.ca, TLSCert: certs.client}, "needs its key"},
		"no TLS there":          {open, Options{TLSCA: certs.ca}, "does not speak TLS"},
		"no permission":         {strings.Replace(restricted, "//", "//me:secret@", 1), Options{}, "may not use the queue"},
		"another's stream":      {foreign, Options{}, "is not draftmill's"},
		"negative wait":         {open, Options{AckWait: -1}, "must be positive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			if c.want == "no answer in time" {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				ctx = short
			}
			q, err := Connect(ctx, c.url, c.o)
			if err == nil {
				q.Close()
				t.Fatal("no error")
			}
			text := err.Error()
			if !strings.Contains(text, c.want) || strings.Contains(text, "\n") {
				t.Errorf("%q; want one line with %q", text, c.want)
			}
			if strings.Contains(text, "wrongpass") || strings.Contains(text, "secret") {
				t.Errorf("%q gives a password away", text)
			}
		})
	}
}

func TestConnectWithUserAndTLS(t *testing.T) {
	t.Parallel()
	certs := newCertificates(t)
	url := plain(t, &server.Options{JetStream: true, TLS: true, TLSConfig: certs.server(t, true), Username: "me", Password: "secret"})
	q, err := Connect(t.Context(), strings.Replace(url, "//", "//me:secret@", 1), Options{TLSCA: certs.ca, TLSCert: certs.client, TLSKey: certs.clientKey})
	check(t, err)
	publish(t, q, true, "job/ars/1")
	check(t, q.Close())
}

func TestConnectEndsWithItsContext(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer mute.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ctx, "nats://"+mute.Addr().String(), Options{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("connect: %v", err)
	}
}

// What exists stays as it was chosen, what is safe to set right is set right, and many may come at once.
func TestConnectKeepsAndMendsWhatExists(t *testing.T) {
	t.Parallel()
	url := plain(t, &server.Options{JetStream: true})
	makeStream(t, url, jetstream.StreamConfig{
		Name: streamName, Subjects: []string{shardSubjects + ">"}, Retention: jetstream.WorkQueuePolicy, MaxBytes: 1 << 20, Description: "mine",
	})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			q, err := Connect(t.Context(), url, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer q.Close()
			if _, err := q.Source(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	q := openURL(t, url, 0)
	c := q.shards.CachedInfo().Config
	if c.MaxBytes != 1<<20 || c.Description != "mine" {
		t.Errorf("what its owner chose was changed: %+v", c)
	}
	if !c.DiscardNewPerSubject || c.MaxMsgsPerSubject != 1 || c.Discard != jetstream.DiscardNew {
		t.Errorf("not a queue that holds each key once: %+v", c)
	}
	publish(t, q, true, "job/ars/1")
	publish(t, q, false, "job/ars/1")
	_, err := q.Publish(t.Context(), "job/ars/2", noise(900<<10))
	check(t, err)
	// A full queue is waited for.
	eventually(t, "a word about the limit", func() bool {
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := q.Publish(short, "job/ars/3", noise(900<<10))
		if err == nil {
			t.Fatal("a full queue took a shard")
		}
		return strings.Contains(err.Error(), "maximum bytes") // not there yet on a machine that takes a second for an answer
	})
	time.AfterFunc(100*time.Millisecond, func() { _ = q.Purge(context.Background(), "job") })
	publish(t, q, true, "job/ars/3")
}

func makeStream(t *testing.T, url string, c jetstream.StreamConfig) {
	t.Helper()
	nc, err := dial(t.Context(), url, nil)
	check(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	check(t, err)
	_, err = js.CreateStream(t.Context(), c)
	check(t, err)
}

// certificates are an authority's and what it signed for 127.0.0.1 and for a client, as PEM files.
type certificates struct{ ca, serverCert, serverKey, client, clientKey string }

func newCertificates(t *testing.T) certificates {
	t.Helper()
	dir := t.TempDir()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	sign := func(name string, c *x509.Certificate, key *ecdsa.PrivateKey) (certFile, keyFile string) {
		der, err := x509.CreateCertificate(rand.Reader, c, authority, &key.PublicKey, authorityKey)
		check(t, err)
		private, err := x509.MarshalECPrivateKey(key)
		check(t, err)
		return write(name+".pem", "CERTIFICATE", der), write(name+".key", "EC PRIVATE KEY", private)
	}
	leaf := func(serial int64, use x509.ExtKeyUsage) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		check(t, err)
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}, key
	}
	var c certificates
	c.ca, _ = sign("ca", authority, authorityKey)
	cert, key := leaf(2, x509.ExtKeyUsageServerAuth)
	c.serverCert, c.serverKey = sign("server", cert, key)
	cert, key = leaf(3, x509.ExtKeyUsageClientAuth)
	c.client, c.clientKey = sign("client", cert, key)
	return c
}

func (c certificates) server(t *testing.T, mutual bool) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.serverCert, c.serverKey)
	check(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if mutual {
		text, err := os.ReadFile(c.ca)
		check(t, err)
		config.ClientCAs = x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(text)
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config
}
