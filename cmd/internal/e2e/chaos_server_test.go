package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/draftmill/draftmill/pipeline/queue/queuetest"
)

// builtForChaos builds the fault suite's worker and the pinned nats-server, once.
var builtForChaos = sync.OnceValue(func() error {
	if err := build("github.com/nats-io/nats-server/v2"); err != nil {
		return err
	}
	return buildAs("chaos-worker", "-tags", "chaos", "./cmd/worker")
})

// cluster is a number of nats-servers, each a process.
type cluster struct {
	t     *testing.T
	nodes []*node
	as    func(*program) // readies a node before it starts
}

type node struct {
	name, config, client string // client is the address for clients
	process              *program
}

// startCluster starts n servers with JetStream that know each other, and waits
// until they take requests.
func startCluster(t *testing.T, n int) *cluster {
	t.Helper()
	return startClusterAt(t, n, "127.0.0.1", func(*program) {})
}

// startClusterAt is startCluster at an address of this machine, of nodes that are
// made ready by as.
func startClusterAt(t *testing.T, n int, host string, as func(*program)) *cluster {
	t.Helper()
	if err := builtForChaos(); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, as: as}
	var addresses []string
	for range 2 * n {
		addresses = append(addresses, queuetest.Address(t, host))
	}
	var routes []string
	for _, a := range addresses[n:] {
		routes = append(routes, "nats://"+a)
	}
	dir := t.TempDir()
	for i := range n {
		name := fmt.Sprintf("n%d", i+1)
		text := fmt.Sprintf("server_name: %s\nlisten: %s\njetstream { store_dir: %q }\n", name, addresses[i], filepath.Join(dir, name))
		if n > 1 {
			text += fmt.Sprintf("cluster { name: chaos, listen: %s, routes: [%s] }\n", addresses[n+i], strings.Join(routes, ", "))
		}
		config := filepath.Join(dir, name+".conf")
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, &node{name: name, config: config, client: addresses[i]})
	}
	c.start(c.nodes...)
	c.ready()
	return c
}

// url is what clients are told: all servers.
func (c *cluster) url() string {
	var list []string
	for _, n := range c.nodes {
		list = append(list, "nats://"+n.client)
	}
	return strings.Join(list, ",")
}

func (c *cluster) start(nodes ...*node) {
	c.t.Helper()
	for _, n := range nodes {
		n.process = command("nats-server", "-c", n.config)
		c.as(n.process)
		n.process.start(c.t)
	}
}

// kill ends servers with SIGKILL, all before it waits for the first.
func (c *cluster) kill(nodes ...*node) {
	c.t.Helper()
	for _, n := range nodes {
		n.process.signal(c.t, syscall.SIGKILL)
	}
	for _, n := range nodes {
		n.process.code(c.t)
	}
}

// ready waits until JetStream answers.
func (c *cluster) ready() {
	c.t.Helper()
	until(c.t, "the servers", func() bool {
		return c.ask(func(ctx context.Context, js jetstream.JetStream) error {
			_, err := js.AccountInfo(ctx)
			return err
		}) == nil
	})
}

// ask connects to the servers for one question.
func (c *cluster) ask(f func(context.Context, jetstream.JetStream) error) error {
	nc, err := nats.Connect(c.url(), nats.Timeout(time.Second))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	return f(ctx, js)
}

// leader is the server that leads the stream of shards.
func (c *cluster) leader() (found *node) {
	c.t.Helper()
	until(c.t, "a leader of the stream", func() bool {
		name := ""
		err := c.ask(func(ctx context.Context, js jetstream.JetStream) error {
			s, err := js.Stream(ctx, "DRAFTMILL")
			if err == nil && s.CachedInfo().Cluster != nil {
				name = s.CachedInfo().Cluster.Leader
			}
			return err
		})
		for _, n := range c.nodes {
			if err == nil && n.name == name {
				found = n
			}
		}
		return found != nil
	})
	return found
}

// whole says whether every replica of the queue has what its leader has.
func (c *cluster) whole() bool {
	return c.ask(func(ctx context.Context, js jetstream.JetStream) error {
		for _, name := range []string{"DRAFTMILL", "KV_DRAFTMILL_ATTEMPTS"} {
			s, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			for _, r := range s.CachedInfo().Cluster.Replicas {
				if !r.Current {
					return fmt.Errorf("%s of %s is behind", r.Name, name)
				}
			}
		}
		return nil
	}) == nil
}

// queued is how many shards are on the queue; -1 while there is no answer.
func (c *cluster) queued() (n int) {
	err := c.ask(func(ctx context.Context, js jetstream.JetStream) error {
		s, err := js.Stream(ctx, "DRAFTMILL")
		if err == nil {
			n = int(s.CachedInfo().State.Msgs)
		}
		return err
	})
	if err != nil {
		return -1
	}
	return n
}

// queueState is what is left on the servers.
type queueState struct {
	shards, inFlight, dead, exhausted, payloads, counts int
}

func (c *cluster) state() (s queueState, err error) {
	err = c.ask(func(ctx context.Context, js jetstream.JetStream) error {
		for name, count := range map[string]*int{
			"DRAFTMILL": &s.shards, "DRAFTMILL_DEAD": &s.dead, "OBJ_DRAFTMILL_PAYLOADS": &s.payloads, "DRAFTMILL_EXHAUSTED": &s.exhausted, "KV_DRAFTMILL_ATTEMPTS": &s.counts,
		} {
			stream, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			*count = int(stream.CachedInfo().State.Msgs)
		}
		shards, err := js.Stream(ctx, "DRAFTMILL")
		if err != nil {
			return err
		}
		consumers := shards.ListConsumers(ctx)
		for c := range consumers.Info() {
			s.inFlight += c.NumAckPending
		}
		if err := consumers.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			return err
		}
		return nil
	})
	return s, err
}
