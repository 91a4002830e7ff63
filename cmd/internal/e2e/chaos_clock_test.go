package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/draftmill/draftmill/storage/bucket/buckettest"
)

// clock is the wall clock of some processes. It jumps; their monotonic clock, like
// the machine's, does not. Go reads the time without a call of any library, so
// that nothing can stand between: the processes run in qemu-user, whose own calls
// of the C library libfaketime answers.
type clock struct {
	t    *testing.T
	qemu string
	lib  string
	file string // holds the offset
}

// newClock is one that is right.
func newClock(t *testing.T) *clock {
	t.Helper()
	c := &clock{t: t, file: filepath.Join(t.TempDir(), "offset")}
	qemu, err := exec.LookPath("qemu-x86_64")
	libs, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(libs) == 0 {
		t.Fatal("a clock that jumps takes qemu-x86_64 and libfaketime: apt-get install qemu-user faketime")
	}
	c.qemu, c.lib = qemu, libs[0]
	c.set(0)
	return c
}

// set makes the clock go ahead of the machine's, or behind it.
func (c *clock) set(ahead time.Duration) {
	c.t.Helper()
	next := c.file + ".next" // read at any time: it must always be whole
	err := os.WriteFile(next, fmt.Appendf(nil, "%+d", int(ahead.Seconds())), 0o600)
	if err == nil {
		err = os.Rename(next, c.file)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// rules has a program run by this clock. It is not started yet.
func (c *clock) rules(p *program) {
	p.Args = append([]string{c.qemu, "-U", "LD_PRELOAD", p.Path}, p.Args[1:]...) // the program itself is not to have it, too
	p.Path = c.qemu
	p.Env = append(p.Env, "LD_PRELOAD="+c.lib, "FAKETIME_TIMESTAMP_FILE="+c.file, "FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1")
}

// is checks that a time is that of the clock when it is so far ahead.
func (c *clock) is(ahead time.Duration, now time.Time) bool {
	return now.Sub(time.Now().Add(ahead)).Abs() < time.Minute
}

// lastSaid is when a program said something last, by its own clock.
func (p *program) lastSaid() time.Time {
	var last time.Time
	for line := range strings.Lines(p.stderr.String()) {
		text, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		if t, err := time.Parse(time.RFC3339, text); err == nil {
			last = t
		}
	}
	return last
}

// now is what the server's clock says; zero while there is no answer.
func (c *cluster) now() (now time.Time) {
	_ = c.ask(func(ctx context.Context, js jetstream.JetStream) error {
		s, err := js.Stream(ctx, "DRAFTMILL")
		if err == nil {
			now = s.CachedInfo().TimeStamp
		}
		return err
	})
	return now
}

// jump is how far a clock jumps.
const jump = 2 * time.Hour

// The server's clock jumps, under workers of which one is killed.
func TestChaosTheServersClockJumps(t *testing.T) {
	fullOnly(t, "it takes qemu-user and libfaketime")
	f := faults.begin(t, "the server's clock is set", "one server: 2 h ahead, back, and 2 h behind, under an attached submit and 3 workers, one of them killed as it is set back")
	c := newClock(t)
	servers := startClusterAt(t, 1, "127.0.0.1", c.rules)
	tr := newTrial(t, f, servers, large())
	submit := tr.attached(3, slow)
	for _, ahead := range []time.Duration{jump, 0, -jump} {
		tr.commits(6)
		if ahead < 0 { // who is dead now is missed by a clock that would have to catch up
			tr.kill(tr.workers[0])
			tr.workers = tr.workers[1:]
			tr.worker(slow)
		}
		c.set(ahead)
		until(t, "the server's clock to be set", func() bool { return c.is(ahead, servers.now()) })
		f.Disturbed++
	}
	tr.ends(submit)
	tr.end()
}

// The clocks of workers, and of who waits for the job, jump.
func TestChaosWorkersClocksJump(t *testing.T) {
	fullOnly(t, "it takes qemu-user and libfaketime")
	f := faults.begin(t, "clocks of workers and of a submitter are set", "3 workers and an attach, each at its own times 2 h ahead, right or 2 h behind")
	servers := startCluster(t, 1)
	tr := newTrial(t, f, servers, large())
	tr.submit()
	var clocks []*clock
	var workers []*program
	for range 3 {
		c := newClock(t)
		clocks = append(clocks, c)
		workers = append(workers, tr.workerAs(c.rules, servers.url(), slow))
	}
	submitter := newClock(t)
	attached := command("submit", "DRAFTMILL_NATS_ACK_WAIT="+ackWait.String(), "attach", tr.dir(), "--nats", servers.url())
	submitter.rules(attached)
	attached.start(t)
	offsets := []time.Duration{jump, 0, -jump}
	for round := range 4 {
		tr.commits(5)
		for i, c := range append(clocks, submitter) {
			c.set(offsets[(i+round)%3])
			f.Disturbed++
		}
	}
	tr.ends(attached)
	tr.complete(patience)
	// The processor of qemu-user adds up in another order.
	tr.holds(undisturbedAs(t, tr.data, " in qemu-user", newClock(t).rules))
	tr.dismiss()
	for i, c := range clocks {
		if said := workers[i].lastSaid(); !c.is(offsets[i%3], said) {
			t.Errorf("worker %d ended at %v by its clock, which should be %v ahead", i, said, offsets[i%3])
		}
	}
}

// An object store takes no request whose signature is off by a quarter of an hour;
// the client library learns the store's time from its answer.
func TestChaosAWrongClockAndAnObjectStore(t *testing.T) {
	fullOnly(t, "it takes qemu-user and libfaketime")
	f := faults.begin(t, "clocks of workers are wrong by more than an object store takes", "S3 (versitygw), 2 workers, 2 h ahead and 2 h behind; both set right and wrong again")
	store := buckettest.Start(t)
	tr := newTrial(t, f, startCluster(t, 1), standard())
	tr.out, tr.here = store.URL("runs"), filepath.Join(store.Dir, "runs", chaosJob)
	tr.submit()
	clocks := []*clock{newClock(t), newClock(t)}
	for _, c := range clocks {
		tr.workerAs(c.rules, tr.servers.url(), slow)
	}
	for _, ahead := range []time.Duration{jump, 0, -jump} {
		tr.commits(2)
		clocks[0].set(ahead)
		clocks[1].set(-ahead)
		f.Disturbed += 2
	}
	tr.complete(patience)
	tr.holds(undisturbedAs(t, tr.data, " in qemu-user", newClock(t).rules))
	tr.dismiss()
}
