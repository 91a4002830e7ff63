package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/cmd/internal/chaos"
)

// Paces at which there is time to disturb a job; a cluster takes its time to agree.
const (
	slow    = chaos.Pace + "=8ms"
	slowest = chaos.Pace + "=100ms"
)

// attached starts a submit that waits for the job, and workers.
func (tr *trial) attached(workers int, pace string) *program {
	tr.t.Helper()
	p := command("submit", tr.submitFlags()...).start(tr.t)
	for range workers {
		tr.worker(pace)
	}
	return p
}

// ends waits for an attached submit, which must succeed.
func (tr *trial) ends(submit *program) {
	tr.t.Helper()
	if code := submit.code(tr.t); code != 0 {
		tr.t.Errorf("submit exits with %d:\n%s", code, &submit.stderr)
	}
}

// commits waits until so many shards more are committed; some must be left then,
// or there is nothing to disturb.
func (tr *trial) commits(more int) {
	tr.t.Helper()
	n := committed(tr.t, tr.here) + more
	until(tr.t, "commits", func() bool { return committed(tr.t, tr.here) >= n || succeeded(tr.here)() })
	if succeeded(tr.here)() {
		tr.t.Errorf("the job is over before it was disturbed %d times", tr.fault.Disturbed+1)
	}
}

// outage is how long a killed server stays away.
const outage = 700 * time.Millisecond

// The only server is killed and started again.
func TestChaosKillTheServer(t *testing.T) {
	f := faults.begin(t, "the server is killed and started again", "one server, under an attached submit and 3 workers")
	times, data := 1, standard()
	if *full {
		times, data = 5, large()
	}
	servers := startCluster(t, 1)
	tr := newTrial(t, f, servers, data)
	submit := tr.attached(3, slow)
	for range times {
		tr.commits(2)
		servers.kill(servers.nodes...)
		f.Disturbed++
		<-time.After(outage)
		servers.start(servers.nodes...)
		servers.ready()
	}
	tr.ends(submit)
	tr.end()
}

// A cluster of three loses its leader, and later everything at once.
func TestChaosKillInACluster(t *testing.T) {
	fullOnly(t, "three servers take their time to elect a leader")
	leader := faults.begin(t, "the leader of the stream is killed and started again", "three servers, 3 replicas, attached submit and 3 workers")
	servers := startCluster(t, 3)
	const rounds = 3
	t.Run("leader", func(t *testing.T) {
		tr := newTrial(t, leader, servers, large())
		submit := tr.attached(3, slowest)
		for range rounds {
			tr.commits(2)
			n := servers.leader()
			servers.kill(n)
			leader.Disturbed++
			tr.commits(2) // without it
			servers.start(n)
			until(t, "the replicas", servers.whole)
		}
		tr.ends(submit)
		tr.end()
	})
	all := faults.line(t, "all servers are killed and started again", "three servers, 3 replicas, attached submit and 3 workers")
	t.Run("all", func(t *testing.T) {
		tr := newTrial(t, all, servers, large())
		submit := tr.attached(3, slowest)
		for range rounds {
			tr.commits(2)
			servers.kill(servers.nodes...)
			all.Disturbed++
			<-time.After(outage)
			servers.start(servers.nodes...)
			servers.ready()
		}
		tr.ends(submit)
		tr.end()
	})
}

// stopped says whether a process is stopped by a signal.
func (p *program) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T")
}

// A worker stands still past AckWait, at a point of the commit, and wakes up
// when another one has done its shard.
func TestChaosAWorkerStandsStill(t *testing.T) {
	f := faults.begin(t, "a worker is stopped past AckWait (SIGSTOP), and goes on later", "")
	points := []string{"before link"}
	if *full {
		points = []string{chaos.Taken, "write", "before staging", "loops staged", "before link", "link synced", chaos.BeforeAck, chaos.AfterAck}
	}
	f.Where = plural(len(points), "point", "points") + " of the commit; another worker does the job meanwhile"
	servers := startCluster(t, 1)
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			tr := newTrial(t, f, servers, standard())
			tr.submit()
			first := tr.worker(at("stop", point, 2))
			until(t, "the worker to stop", first.stopped)
			f.Disturbed++
			tr.worker()
			tr.complete(patience)
			first.signal(t, syscall.SIGCONT)
			first.signal(t, syscall.SIGTERM)
			if code := first.code(t); code != 0 {
				t.Errorf("the worker that slept exits with %d:\n%s", code, &first.stderr)
			}
			tr.end()
		})
	}
	if !*full {
		return
	}
	locked := faults.line(t, "a worker is stopped with a lock of the job in hand", "between the renames; at the job's marks")
	for _, point := range []string{"renamed completions", "manifest written"} {
		t.Run(point, func(t *testing.T) {
			tr := newTrial(t, locked, servers, standard())
			tr.submit()
			first := tr.worker(at("stop", point, 1))
			until(t, "the worker to stop", first.stopped)
			locked.Disturbed++
			tr.worker()
			<-time.After(4 * ackWait)
			first.signal(t, syscall.SIGCONT)
			tr.end()
		})
	}
}

// The network between a worker and its server stands still for longer than
// AckWait, while others go on.
func TestChaosAPartition(t *testing.T) {
	f := faults.begin(t, "a partition between workers and the server", "a proxy that stops forwarding past AckWait; connections that are cut")
	servers := startCluster(t, 1)
	t.Run("one worker", func(t *testing.T) {
		tr := newTrial(t, f, servers, standard())
		net := newNetwork(t, servers.nodes[0].client)
		tr.submit()
		behind := tr.workerAt(net.url(), slow)
		tr.commits(2)
		net.set(true)
		f.Disturbed++
		tr.worker()
		tr.complete(patience)
		net.set(false)
		behind.signal(t, syscall.SIGTERM)
		if code := behind.code(t); code != 0 {
			t.Errorf("the worker behind the partition exits with %d:\n%s", code, &behind.stderr)
		}
		tr.end()
	})
	if !*full {
		return
	}
	t.Run("all workers, again and again", func(t *testing.T) {
		tr := newTrial(t, f, servers, standard())
		net := newNetwork(t, servers.nodes[0].client)
		tr.submit()
		for range 4 {
			tr.workerAt(net.url(), slow)
		}
		for _, cut := range []bool{false, true, false} {
			tr.commits(3)
			if cut {
				net.cut()
			} else {
				net.set(true)
				<-time.After(3 * ackWait)
				net.set(false)
			}
			f.Disturbed++
		}
		tr.end()
	})
}

// Two people submit one job at once.
func TestChaosTwoSubmits(t *testing.T) {
	f := faults.begin(t, "two submits of one job at once", "one folder, one server; the later one says so and ends")
	rounds := 1
	if *full {
		rounds = 5
	}
	servers := startCluster(t, 1)
	for range rounds {
		t.Run("", func(t *testing.T) {
			tr := newTrial(t, f, servers, standard())
			both := []*program{command("submit", tr.submitFlags()...).start(t), command("submit", tr.submitFlags()...).start(t)}
			f.Disturbed++
			tr.worker()
			ok := 0
			for _, p := range both {
				switch code := p.code(t); {
				case code == 0:
					ok++
				case code != 1 || !strings.Contains(p.stderr.String(), "by another process"):
					t.Errorf("a submit exits with %d:\n%s", code, &p.stderr)
				}
			}
			if ok == 0 {
				t.Errorf("neither submit succeeded:\n%s\n%s", &both[0].stderr, &both[1].stderr)
			}
			tr.end()
		})
	}
}

// The server is killed the moment a detached submit ends, when nobody is left to
// look after the job: what NATS has confirmed and not yet written is lost. The
// same command again finds out what is missing.
func TestChaosKillTheServerAfterSubmit(t *testing.T) {
	fullOnly(t, "TestChaosKillTheServer is near")
	f := faults.begin(t, "the server is killed as a detached submit ends", "one server, NATS's own sync_interval; then the same command again")
	lost := 0
	for range 5 {
		servers := startCluster(t, 1)
		tr := newTrial(t, f, servers, standard())
		tr.submit()
		servers.kill(servers.nodes...)
		f.Disturbed++
		servers.start(servers.nodes...)
		servers.ready()
		lost += 24 - max(0, servers.queued())
		tr.submit()
		tr.worker()
		tr.end()
	}
	f.Where += fmt.Sprintf(" (the server had lost %d of %d messages)", lost, 24*f.Runs)
}
