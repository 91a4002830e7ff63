//go:build linux

package chaos

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/draftmill/draftmill/pipeline"
)

// What a worker is told, in its environment.
const (
	// At is "kill:POINT:N" or "stop:POINT:N": the worker sends itself SIGKILL or
	// SIGSTOP when it reaches a point for the N-th time, from 1. Points are the
	// steps of storage's commit protocol, "write" (each write to a table's file),
	// and the points named below.
	At = "CHAOS_AT"
	// Pace is how long a pass of the scripted target takes.
	Pace = "CHAOS_PACE"
	// Cured says that the model takes prompts with BadShard or Deadly in them.
	Cured = "CHAOS_CURED"
)

// Points beside those of storage.
const (
	Taken     = "taken"      // a shard was handed out
	BeforeAck = "before ack" // a shard is committed, the queue not told
	AfterAck  = "after ack"  // the queue has confirmed
)

// Points is what one worker process does to itself.
type Points struct {
	at     string
	signal syscall.Signal
	nth    int
	pace   time.Duration
	cured  bool

	mu   sync.Mutex
	seen int // of at
}

// FromEnvironment reads what the worker is to do. What it cannot read ends the
// process: a suite that disturbs nothing would prove nothing.
func FromEnvironment() *Points {
	p := &Points{cured: os.Getenv(Cured) != ""}
	var err error
	if text := os.Getenv(At); text != "" {
		parts := strings.SplitN(text, ":", 3)
		signals := map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP}
		if len(parts) == 3 && signals[parts[0]] != 0 {
			p.signal, p.at = signals[parts[0]], parts[1]
			p.nth, err = strconv.Atoi(parts[2])
		} else {
			err = fmt.Errorf("%s=%s is not kill|stop:POINT:N", At, text)
		}
	}
	if text := os.Getenv(Pace); text != "" && err == nil {
		p.pace, err = time.ParseDuration(text)
	}
	if err != nil {
		panic(err)
	}
	return p
}

// Reach is called at every point.
func (p *Points) Reach(point string) {
	if point != p.at {
		return
	}
	p.mu.Lock()
	p.seen++
	now := p.seen == p.nth
	p.mu.Unlock()
	if now {
		end(p.signal)
	}
}

// end sends the process a signal and returns when it was continued. The signal goes
// to this very thread: one to the process may come when the thread is steps ahead.
func end(s syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), s); err != nil {
		panic(err)
	}
	if s == syscall.SIGKILL {
		select {} // it is on its way
	}
}

// Rig gives a worker the scripted model and watches its shards.
func (p *Points) Rig(w *pipeline.Worker) {
	w.Open, w.Check = p.open, nil
	w.Source = source{w.Source, p}
}

type source struct {
	pipeline.Source
	points *Points
}

// Next implements pipeline.Source.
func (s source) Next(ctx context.Context) (pipeline.Delivery, error) {
	d, err := s.Source.Next(ctx)
	if err != nil {
		return nil, err
	}
	s.points.Reach(Taken)
	return delivery{d, s.points}, nil
}

type delivery struct {
	pipeline.Delivery
	points *Points
}

// Ack implements pipeline.Delivery.
func (d delivery) Ack(ctx context.Context) error {
	d.points.Reach(BeforeAck)
	err := d.Delivery.Ack(ctx)
	d.points.Reach(AfterAck)
	return err
}
