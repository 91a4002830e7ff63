package queue

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	patience = 2 * time.Minute // a test that waits longer has failed
	childEnv = "DRAFTMILL_QUEUE_TEST_CHILD"
)

// TestMain also is the process that the kill -9 tests kill: run with childEnv naming a folder, it publishes there and
// says on stdout what was confirmed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		fmt.Println("error:", publishForever(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func publishForever(dir string) error {
	ctx := context.Background()
	s, err := Embed(dir, EmbedOptions{})
	if err != nil {
		return err
	}
	q, err := s.Connect(ctx, Options{AckWait: time.Second})
	if err != nil {
		return err
	}
	src, err := q.Source(ctx)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		key := fmt.Sprintf("job/ars/%05d", i)
		if _, err := q.Publish(ctx, key, []byte(key)); err != nil {
			return err
		}
		if i < 3 { // the first shard is tried three times before its process dies with it in hand
			d, err := src.Next(ctx)
			if err != nil {
				return err
			}
			if i < 2 {
				if err := d.Retry(ctx, 0); err != nil {
					return err
				}
			}
		}
		fmt.Println(key)
	}
}

// child starts this test binary as publishForever and returns it with its output lines.
func child(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func embed(t *testing.T, dir string, o EmbedOptions) *Server {
	t.Helper()
	s, err := Embed(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// open connects to s in process, with AckWait.
func open(t *testing.T, s *Server, ackWait time.Duration) *Queue {
	t.Helper()
	q, err := s.Connect(t.Context(), Options{AckWait: ackWait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, q.Close()) })
	return q
}

func openURL(t *testing.T, url string, ackWait time.Duration) *Queue {
	t.Helper()
	q, err := Connect(t.Context(), url, Options{AckWait: ackWait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, q.Close()) })
	return q
}

// fresh is a server of its own and a queue on it.
func fresh(t *testing.T, ackWait time.Duration) *Queue {
	t.Helper()
	return open(t, embed(t, t.TempDir(), EmbedOptions{}), ackWait)
}

// source begins with the oldest run.
func source(t *testing.T, q *Queue) *Source {
	t.Helper()
	s, err := q.Source(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.first = 0
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

func publish(t *testing.T, q *Queue, want bool, keys ...string) {
	t.Helper()
	for _, key := range keys {
		got, err := q.Publish(t.Context(), key, []byte("data of "+key))
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("publish %s: fresh = %v, want %v", key, got, want)
		}
	}
}

// take gets the next shard and checks which one and which attempt it is.
func take(t *testing.T, s *Source, key string, attempt int) *Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	d, err := s.Next(ctx)
	if err != nil {
		t.Fatalf("next: %v", err)
	}
	if d.Key() != key || d.Attempt() != attempt {
		t.Fatalf("next: got %s, attempt %d; want %s, attempt %d", d.Key(), d.Attempt(), key, attempt)
	}
	return d.(*Delivery)
}

// nothing checks that no shard comes for a while.
func nothing(t *testing.T, s *Source, while time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), while)
	defer cancel()
	d, err := s.Next(ctx)
	if err == nil {
		t.Fatalf("next: got %s, attempt %d; want nothing for %v", d.Key(), d.Attempt(), while)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("next: %v", err)
	}
}

func pending(t *testing.T, q *Queue, job string, want int) {
	t.Helper()
	keys, err := q.Queued(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != want {
		t.Fatalf("queued of %q: %v, want %d", job, keys, want)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-end.C:
			t.Fatalf("%s: not within %v", what, patience)
		case <-again.C:
		}
	}
}

// proxy is a network that can be cut between a client and a server.
type proxy struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to, conns: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.set(true)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	if p.cut {
		p.mu.Unlock()
		return
	}
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		p.wg.Go(func() {
			io.Copy(way[0], way[1])
			done <- struct{}{}
		})
	}
	<-done
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
}

// set cuts or mends the network.
func (p *proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		for c := range p.conns {
			c.Close()
		}
	}
}
