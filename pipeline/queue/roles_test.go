package queue

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/draftmill/draftmill/pipeline/queue/queuetest"
)

// configured runs the server that a file under configs/nats describes, on a free port of loopback and a folder of its own.
func configured(t *testing.T, file string, change func(*server.Options)) *server.Server {
	t.Helper()
	for _, name := range []string{"SUBMIT", "WORKER", "SUBMIT_PRODUCTION", "WORKER_PRODUCTION", "ADMIN", "ROUTE"} {
		t.Setenv(name+"_PASSWORD", "secret-of-"+strings.ToLower(strings.ReplaceAll(name, "_", "-")))
	}
	o, err := server.ProcessConfigFile(filepath.Join("../../configs/nats", file))
	check(t, err)
	o.Host, o.Port, o.HTTPHost, o.HTTPPort, o.StoreDir, o.NoSigs, o.NoLog = "127.0.0.1", -1, "", 0, t.TempDir(), true, true
	o.JetStreamMaxStore = 1 << 30
	if change != nil {
		change(o)
	}
	ns, err := server.NewServer(o)
	check(t, err)
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	return ns
}

func as(ns *server.Server, user string) string {
	return fmt.Sprintf("nats://%s:secret-of-%s@%s", user, user, ns.Addr())
}

// The roles of configs/nats/roles.conf are enough for all that submitters and workers do, and for nothing else.
func TestRoles(t *testing.T) {
	ns := configured(t, "server.conf", func(o *server.Options) { o.MaxPayload = 64 << 10 })
	if !ns.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	submit := openURL(t, as(ns, "submit"), 30*time.Second)
	worker, err := Connect(t.Context(), as(ns, "worker"), Options{Worker: true})
	check(t, err)
	defer worker.Close()

	// All of a job's life.
	events, err := submit.Watch(t.Context(), "job/run")
	check(t, err)
	check(t, submit.Prioritize(t.Context(), "job/run", 2))
	publish(t, submit, true, "job/run/ars/1", "job/run/ars/2")
	large := noise(100 << 10)
	for _, shard := range []string{"3", "4"} {
		_, err = submit.Publish(t.Context(), "job/run/ars/"+shard, large)
		check(t, err)
	}
	s := source(t, worker)
	check(t, take(t, s, "job/run/ars/1", 1).Retry(t.Context(), 0))
	check(t, take(t, s, "job/run/ars/1", 2).Release(t.Context()))
	check(t, take(t, s, "job/run/ars/1", 2).Ack(t.Context()))
	check(t, take(t, s, "job/run/ars/2", 1).Reject(t.Context(), errors.New("no")))
	d := take(t, s, "job/run/ars/3", 1)
	if string(d.Data()) != string(large) {
		t.Error("the large shard changed")
	}
	check(t, d.Ack(t.Context()))
	check(t, take(t, s, "job/run/ars/4", 1).Reject(t.Context(), errors.New("no")))
	check(t, worker.Report("job/run", []byte("done")))
	if e := <-events; string(e) != "done" {
		t.Errorf("event %q", e)
	}
	if n, err := submit.Retry(t.Context(), "job/run"); err != nil || n != 2 {
		t.Errorf("%d retried (%v)", n, err)
	}
	check(t, take(t, s, "job/run/ars/2", 1).Ack(t.Context()))
	check(t, take(t, s, "job/run/ars/4", 1).Ack(t.Context()))
	leftovers(t, submit)
	check(t, submit.Finish(t.Context(), "job/run"))

	// A worker cannot publish jobs, change streams, or hear of other's jobs.
	refuse := func(what, user string, f func(ctx context.Context, nc *nats.Conn) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		nc, err := nats.Connect(as(ns, user), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { cancel() })) // the only answer
		check(t, err)
		defer nc.Close()
		if err := f(ctx, nc); err == nil {
			t.Errorf("%s was allowed %s", user, what)
		} else if !errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
			t.Errorf("%s, %s: %v, %v; want a violation of permissions", user, what, err, nc.LastError())
		}
	}
	request := func(subject, data string) func(context.Context, *nats.Conn) error {
		return func(ctx context.Context, nc *nats.Conn) error {
			_, err := nc.RequestWithContext(ctx, subject, []byte(data))
			return err
		}
	}
	refuse("to publish a shard", "worker", request("draftmill.shards.job.run.ars.9", "x"))
	refuse("to purge the queue", "worker", request("$JS.API.STREAM.PURGE.DRAFTMILL", ""))
	refuse("to delete the queue", "worker", request("$JS.API.STREAM.DELETE.DRAFTMILL", ""))
	refuse("to make a consumer", "worker", request("$JS.API.CONSUMER.CREATE.DRAFTMILL.mine", "{}"))
	refuse("to read another's progress", "worker", func(ctx context.Context, nc *nats.Conn) error {
		_, err := nc.SubscribeSync("draftmill.progress.>")
		check(t, err)
		<-ctx.Done()
		return nc.LastError()
	})
	refuse("to set a shard aside", "submit", request("draftmill.dead.job.run.ars.9", "x"))
	refuse("another stream", "submit", request("$JS.API.STREAM.INFO.ORDERS", ""))
	_, err = worker.Publish(t.Context(), "job/run/ars/9", nil)
	if err == nil || !strings.Contains(err.Error(), "this user may not do that") {
		t.Errorf("a worker publishes a shard: %v", err)
	}

	// Another account sees nothing of it: it has a queue of its own.
	publish(t, submit, true, "job/run/ars/5")
	other := openURL(t, as(ns, "submit-production"), time.Second)
	pending(t, other, "", 0)
	publish(t, other, true, "job/run/ars/5")
	check(t, take(t, s, "job/run/ars/5", 1).Ack(t.Context()))
	pending(t, submit, "", 0)
	pending(t, other, "", 1)
	if _, err := Connect(t.Context(), strings.Replace(as(ns, "submit-production"), "secret-of-", "secret-", 1), Options{}); err == nil || strings.Contains(err.Error(), "secret-submit") {
		t.Errorf("a wrong password: %v", err)
	}
}

// A user that is known by an NKey.
func TestNKey(t *testing.T) {
	t.Parallel()
	key, err := nkeys.CreateUser()
	check(t, err)
	public, err := key.PublicKey()
	check(t, err)
	seed, err := key.Seed()
	check(t, err)
	file := filepath.Join(t.TempDir(), "user.nk")
	check(t, os.WriteFile(file, seed, 0o600))
	url := plain(t, &server.Options{JetStream: true, Nkeys: []*server.NkeyUser{{Nkey: public}}})
	q, err := Connect(t.Context(), url, Options{NKey: file})
	check(t, err)
	publish(t, q, true, "job/run/ars/1")
	check(t, q.Close())
	for name, content := range map[string]string{"another's": "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY", "no key": "hello"} {
		check(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := Connect(t.Context(), url, Options{NKey: file})
		if err == nil || strings.Contains(err.Error(), content) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Connect(t.Context(), url, Options{NKey: "/nowhere/user.nk"}); err == nil || !strings.Contains(err.Error(), "/nowhere/user.nk") {
		t.Errorf("no file: %v", err)
	}
}

// On the cluster of configs/nats/cluster.conf every stream is kept three times without being told, and losing a server
// loses nothing.
func TestACluster(t *testing.T) {
	var routes []*url.URL
	for range 3 {
		u, err := url.Parse("nats://route:secret-of-route@" + queuetest.Address(t, "127.0.0.1"))
		check(t, err)
		routes = append(routes, u)
	}
	servers := make([]*server.Server, 3)
	var list []string
	for i := range servers {
		t.Setenv("NATS_NAME", fmt.Sprintf("nats-%d", i))
		servers[i] = configured(t, "cluster.conf", func(o *server.Options) {
			port, err := strconv.Atoi(routes[i].Port())
			check(t, err)
			o.Cluster.Host, o.Cluster.Port, o.Routes = "127.0.0.1", port, routes
		})
	}
	for _, ns := range servers {
		if !ns.ReadyForConnections(patience) {
			t.Fatal("a server is not ready")
		}
		list = append(list, as(ns, "submit"))
	}
	eventually(t, "a leader of the cluster", func() bool {
		for _, ns := range servers {
			if ns.JetStreamIsLeader() {
				return true
			}
		}
		return false
	})
	var q *Queue
	eventually(t, "room on three servers", func() bool { // it takes a moment until the leader knows all
		var err error
		q, err = Connect(t.Context(), strings.Join(list, ","), Options{AckWait: 2 * time.Second})
		return err == nil
	})
	defer q.Close()
	for _, name := range []string{streamName, deadStreamName, exhaustedStream, "KV_" + attemptsBucket, "OBJ_" + payloadBucket} {
		s, err := q.js.Stream(t.Context(), name)
		check(t, err)
		if n := s.CachedInfo().Config.Replicas; n != 3 {
			t.Errorf("%s is kept %d times", name, n)
		}
	}
	for i := range 4 {
		publish(t, q, true, fmt.Sprintf("job/run/ars/%d", i))
	}
	var workers []string
	for _, ns := range servers {
		workers = append(workers, as(ns, "worker"))
	}
	w, err := Connect(t.Context(), strings.Join(workers, ","), Options{Worker: true})
	check(t, err)
	defer w.Close()
	s := source(t, w)
	check(t, take(t, s, "job/run/ars/0", 1).Ack(t.Context()))
	leader := q.shards.CachedInfo().Cluster.Leader
	for i, ns := range servers {
		if ns.Name() == leader {
			servers[i].Shutdown()
			servers[i].WaitForShutdown()
		}
	}
	done := map[string]bool{}
	for len(done) < 3 { // in any order: what was on its way when the leader ended comes back after AckWait
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		d, err := s.Next(ctx)
		cancel()
		check(t, err)
		done[d.Key()] = true
		check(t, d.Ack(t.Context()))
	}
	eventually(t, "an empty queue", func() bool {
		keys, err := q.Queued(t.Context(), "job")
		return err == nil && len(keys) == 0
	})
}
