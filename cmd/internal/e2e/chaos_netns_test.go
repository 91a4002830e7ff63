//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// cable leads from this machine's network namespace to one of its own, in which
// workers run.
type cable struct {
	t              *testing.T
	namespace      string
	here, there    string // names of its two ends
	server, client string // their addresses
}

// newCable makes a namespace and a cable to it. Without root there is none, and
// the line of the table says so.
func newCable(t *testing.T, f *fault) *cable {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Fatal("network namespaces take ip: apt-get install iproute2")
	}
	if os.Geteuid() != 0 && os.Getenv("CI") == "" {
		f.Where = "not run: only root may make network namespaces"
		t.Skip(f.Where)
	}
	id := os.Getpid() % (1 << 14)
	address := func(n int) string { return fmt.Sprintf("198.18.%d.%d", id>>6, id&63<<2+n) }
	c := &cable{
		t: t, namespace: fmt.Sprint("draftmill-chaos-", os.Getpid()), here: fmt.Sprintf("dm%dh", os.Getpid()), there: fmt.Sprintf("dm%dt", os.Getpid()),
		server: address(1), client: address(2),
	}
	c.ip("netns", "add", c.namespace)
	t.Cleanup(func() { c.ip("netns", "del", c.namespace) }) // and both ends with it
	c.ip("link", "add", c.here, "type", "veth", "peer", "name", c.there, "netns", c.namespace)
	c.ip("addr", "add", c.server+"/30", "dev", c.here)
	c.ip("link", "set", c.here, "up")
	c.ip("-n", c.namespace, "addr", "add", c.client+"/30", "dev", c.there)
	c.ip("-n", c.namespace, "link", "set", "lo", "up")
	c.ip("-n", c.namespace, "link", "set", c.there, "up")
	return c
}

func (c *cable) ip(args ...string) {
	c.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		c.t.Fatalf("ip %q: %v\n%s", args, err, out)
	}
}

// inside has a program run at the far end.
func (c *cable) inside(p *program) {
	ip, err := exec.LookPath("ip")
	if err != nil {
		c.t.Fatal(err)
	}
	p.Args = append([]string{ip, "netns", "exec", c.namespace, p.Path}, p.Args[1:]...)
	p.Path = ip
}

// breakage is a way in which a network breaks, and how it is mended.
type breakage struct {
	name        string
	begin, mend func(*cable)
}

// nobody is an address that no end of a cable has: frames to it vanish.
const nobody = "02:00:00:00:00:01"

var breakages = []breakage{
	{"pulled out", func(c *cable) { c.ip("-n", c.namespace, "link", "set", c.there, "down") },
		func(c *cable) { c.ip("-n", c.namespace, "link", "set", c.there, "up") }},
	{"lost from workers", func(c *cable) {
		c.ip("-n", c.namespace, "neigh", "replace", c.server, "lladdr", nobody, "dev", c.there, "nud", "permanent")
	}, func(c *cable) { c.ip("-n", c.namespace, "neigh", "del", c.server, "dev", c.there) }},
	{"lost to workers", func(c *cable) {
		c.ip("neigh", "replace", c.client, "lladdr", nobody, "dev", c.here, "nud", "permanent")
	},
		func(c *cable) { c.ip("neigh", "del", c.client, "dev", c.here) }},
}

// The cable between workers and the server is pulled out for longer than AckWait,
// or loses all that goes one way.
func TestChaosABrokenCable(t *testing.T) {
	fullOnly(t, "it takes root; TestChaosAPartition is near")
	f := faults.begin(t, "the network of workers is cut off", "a network namespace: its cable pulled past AckWait, or losing every packet one way; one worker of two, then all of four")
	c := newCable(t, f)
	servers := startClusterAt(t, 1, c.server, func(*program) {})
	for _, way := range breakages {
		t.Run(way.name, func(t *testing.T) {
			tr := newTrial(t, f, servers, large())
			tr.submit()
			behind := tr.workerAs(c.inside, servers.url(), slow)
			tr.commits(2)
			way.begin(c)
			f.Disturbed++
			other := tr.worker(slow)
			tr.commits(2)
			<-time.After(3 * ackWait)
			way.mend(c)
			for range 3 {
				tr.workerAs(c.inside, servers.url(), slow)
			}
			other.signal(t, syscall.SIGTERM)
			tr.commits(5)
			way.begin(c)
			f.Disturbed++
			<-time.After(3 * ackWait)
			way.mend(c)
			tr.complete(patience)
			behind.signal(t, syscall.SIGTERM)
			if code := behind.code(t); code != 0 {
				t.Errorf("the worker that was cut off exits with %d:\n%s", code, &behind.stderr)
			}
			tr.end()
		})
	}
}
