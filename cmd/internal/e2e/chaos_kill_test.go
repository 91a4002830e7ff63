package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/cmd/internal/chaos"
)

// A worker is killed at a step of the commit, another one goes on.
func TestChaosKillAtEveryStep(t *testing.T) {
	f := faults.begin(t, "a worker is killed at a step of the commit", "")
	type step struct {
		point string
		nth   int
	}
	steps := []step{
		{"write", 40}, // in the middle of a row group
		{"before link", 2},
		{"renamed loops", 2},
		{chaos.BeforeAck, 2},
	}
	if *full {
		steps = append(steps, []step{
			{"before footer", 3}, {"manifest written", 1}, {chaos.AfterAck, 2}, {chaos.Taken, 1}, {chaos.Taken, 3}, {"write", 1}, {"write", 200}, {"write", 333},
			{"before staging", 2}, {"before footer", 4}, {"completions staged", 2}, {"loops staged", 2},
			{"link synced", 2}, {"before rename completions", 2}, {"renamed completions", 2}, {"before rename loops", 2},
			{chaos.BeforeAck, 24}, {"before manifest", 1}, {"success written", 1},
		}...)
	}
	f.Where = plural(len(steps), "point", "points") + ": in a row group, before the footer, before and after the link and each rename, before and after the ack, before and after the job's marks"
	servers := startCluster(t, 1)
	for _, s := range steps {
		t.Run(s.point, func(t *testing.T) {
			tr := newTrial(t, f, servers, standard())
			tr.submit()
			tr.dies(tr.worker(at("kill", s.point, s.nth)))
			tr.worker()
			tr.end()
		})
	}
}

// A worker is killed while it writes a shard of some megabytes, when a part of a
// file is on the disk.
func TestChaosKillInARowGroup(t *testing.T) {
	fullOnly(t, "it takes large shards; TestChaosKillAtEveryStep is near")
	f := faults.begin(t, "a worker is killed in the middle of a file", "a shard of thousands of loops; a part of its file is on the disk")
	tr := newTrial(t, f, startCluster(t, 1), makeDataset(160, 160, 8, 250))
	tr.submit()
	for _, nth := range []int{40, 50, 60} {
		tr.dies(tr.worker(at("kill", "write", nth)))
	}
	tr.dies(tr.worker(at("kill", "before footer", 2)))
	parts, err := filepath.Glob(filepath.Join(tr.here, "_staging", "*"))
	if err != nil {
		t.Fatal(err)
	}
	written := false
	for _, path := range parts {
		stat, err := os.Stat(path)
		written = written || err == nil && stat.Size() > 0
	}
	if !written {
		t.Errorf("no part of a file was on the disk: %q", parts)
	}
	tr.worker()
	tr.end()
}

// Workers are killed at any time, and others take their places.
func TestChaosKillAtRandom(t *testing.T) {
	f := faults.begin(t, "a worker is killed each second, another takes its place", "8 workers, 1,000 shards")
	var data dataset
	workers, every, pace := 8, time.Second, chaos.Pace+"=10ms"
	if *full {
		data, pace = makeDataset(500, 1, 1, 24), chaos.Pace+"=40ms"
	} else {
		f.Where = "4 workers, 48 shards"
		data, workers, every = makeDataset(24, 1, 1, 24), 4, 150*time.Millisecond
	}
	tr := newTrial(t, f, startCluster(t, 1), data)
	want := undisturbed(t, data)
	tr.submit()
	for range workers {
		tr.worker(pace)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for done, end := succeeded(tr.here), time.Now().Add(2*patience); !done(); {
		if time.Now().After(end) {
			t.Fatal("the job does not end")
		}
		<-time.After(every)
		n := r.IntN(len(tr.workers))
		tr.kill(tr.workers[n])
		tr.workers = append(tr.workers[:n], tr.workers[n+1:]...)
		tr.worker(pace)
	}
	if f.Disturbed < 3 {
		t.Errorf("only %d kills: the test does not disturb", f.Disturbed)
	}
	tr.holds(want)
	tr.dismiss()
}

// Submit is killed while it publishes; the same command again does the rest.
func TestChaosKillSubmit(t *testing.T) {
	f := faults.begin(t, "submit is killed half-way through publishing", "by the bytes it has sent; then the same command again")
	limits := []int{40 << 10}
	if *full {
		limits = []int{2 << 10, 5 << 10, 10 << 10, 15 << 10, 20 << 10, 30 << 10, 40 << 10}
	}
	servers := startCluster(t, 1)
	tr := newTrial(t, f, servers, standard())
	most := 0
	for _, bytes := range limits {
		net := newNetwork(t, servers.nodes[0].client)
		net.limit(bytes)
		p := command("submit", append(tr.submitFlags("--detach"), "--nats", net.url())...).start(t)
		until(t, "the network to stop", net.stands)
		p.signal(t, syscall.SIGKILL)
		p.code(t)
		f.Disturbed++
		most = max(most, servers.queued())
	}
	if most < 1 || most > 23 {
		t.Errorf("%d shards were queued when submit was killed, want some of 24", most)
	}
	tr.submit()
	tr.worker()
	tr.end()
}

// plural is n with its noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
