package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/pipeline/queue/queuetest"
	"github.com/draftmill/draftmill/storage"
)

// serve starts a NATS server; stop ends it and may be called early.
func serve(t *testing.T, dir, address string) (url string, stop func()) {
	t.Helper()
	server, err := queue.Embed(dir, queue.EmbedOptions{Listen: address})
	if err != nil {
		t.Fatal(err)
	}
	stop = func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return server.URL(), stop
}

func succeeded(dir string) func() bool {
	return func() bool { _, err := os.Stat(filepath.Join(dir, "_SUCCESS")); return err == nil }
}

// TestAnOutageUnderAJob: a worker that starts before its server, a server that is
// away while questions go without an answer, and a password that must be nowhere.
func TestAnOutageUnderAJob(t *testing.T) {
	calm := t.TempDir()
	run(t, "submit", small(calm)...)
	address := queuetest.Address(t, "127.0.0.1")
	const secret = "planted-secret"
	url, store, out := "nats://me:"+secret+"@"+address, t.TempDir(), t.TempDir()
	const debug, wait = "DRAFTMILL_LOG_LEVEL=debug", "DRAFTMILL_NATS_ACK_WAIT=2s"
	worker := command("worker", debug, wait, "--nats", url, "--threads", "1").start(t)
	_, stop := serve(t, store, address)
	dir := filepath.Join(out, "small")
	submit := command("submit", append([]string{debug, wait}, small(out, "--nats", url)...)...).start(t)
	until(t, "a commit", func() bool { return committed(t, dir) >= 1 })
	stop()
	<-time.After(7 * time.Second) // an outage has no event to wait for
	serve(t, store, address)
	if code := submit.code(t); code != 0 {
		t.Fatalf("submit exits with %d:\n%s", code, &submit.stderr)
	}
	worker.signal(t, syscall.SIGTERM)
	if code := worker.code(t); code != 0 {
		t.Errorf("the worker exits with %d:\n%s", code, &worker.stderr)
	}
	same(t, tokens(t, dir), tokens(t, filepath.Join(calm, "small")))
	for name, p := range map[string]*program{"worker": worker, "submit": submit} {
		for _, line := range []string{"the connection is lost", "connected again"} {
			if n := strings.Count(p.stderr.String(), line); n != 1 {
				t.Errorf("%s says %d times that %s:\n%s", name, n, line, &p.stderr)
			}
		}
		if strings.Contains(p.stderr.String()+p.stdout.String(), secret) {
			t.Errorf("%s gives the password away:\n%s", name, &p.stderr)
		}
	}
	if err := filepath.WalkDir(out, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s holds the password", path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestAMisconfiguredWorker: a worker with other models than the job's burns no
// shard of it, and ends with the reason.
func TestAMisconfiguredWorker(t *testing.T) {
	url, _ := serve(t, t.TempDir(), "127.0.0.1:-1")
	out := t.TempDir()
	dir := filepath.Join(out, "small")
	run(t, "submit", small(out, "--nats", url, "--detach")...)
	wrong := command("worker", "--nats", url, "--target", "testdata/demo/draft", "--threads", "1").start(t)
	if code := wrong.code(t); code != 1 || !strings.Contains(wrong.stderr.String(), "the job was submitted with") {
		t.Errorf("the wrong worker exits with %d:\n%s", code, &wrong.stderr)
	}
	command("worker", "DRAFTMILL_MAX_ATTEMPTS=1", "--nats", url, "--threads", "1").start(t)
	until(t, "_SUCCESS", succeeded(dir))
	if n := len(tokens(t, dir)); n != 24 {
		t.Errorf("%d completions, want 24", n)
	}
}

// TestLeftoversAndNamesakes: shards of a job whose folder was removed do not get
// into the job that takes its place, and a job of the same name in another folder
// is a job of its own.
func TestLeftoversAndNamesakes(t *testing.T) {
	url, _ := serve(t, t.TempDir(), "127.0.0.1:-1")
	first, second := t.TempDir(), t.TempDir()
	run(t, "submit", small(first, "--nats", url, "--detach")...)
	if err := os.RemoveAll(filepath.Join(first, "small")); err != nil {
		t.Fatal(err)
	}
	p := run(t, "submit", small(first, "--nats", url, "--detach", "--temperature", "0.2")...)
	if !strings.Contains(p.stderr.String(), "another job that was in this folder") {
		t.Errorf("leftovers are not named:\n%s", &p.stderr)
	}
	run(t, "submit", small(second, "--nats", url, "--detach")...)
	command("worker", "--nats", url, "--threads", "1").start(t)
	for _, out := range []string{first, second} {
		dir := filepath.Join(out, "small")
		until(t, "_SUCCESS", succeeded(dir))
		if n := len(tokens(t, dir)); n != 24 {
			t.Errorf("%d completions, want 24", n)
		}
		run(t, "submit", "verify", "small", "--out", out)
	}
}

// TestAServerThatLosesItsStore: an attached submit puts back on the queue what the
// queue has lost.
func TestAServerThatLosesItsStore(t *testing.T) {
	url, stop := serve(t, t.TempDir(), queuetest.Address(t, "127.0.0.1"))
	out := t.TempDir()
	dir := filepath.Join(out, "small")
	submit := command("submit", small(out, "--nats", url)...).start(t)
	until(t, "the plan", func() bool {
		job, err := storage.OpenJob(dir)
		if err != nil {
			return false
		}
		_, err = job.Plan()
		return err == nil
	})
	stop()
	serve(t, t.TempDir(), strings.TrimPrefix(url, "nats://"))
	until(t, "a word about it", func() bool { return strings.Contains(submit.stderr.String(), "the queue has lost shards") })
	command("worker", "--nats", url, "--threads", "1").start(t)
	if code := submit.code(t); code != 0 {
		t.Errorf("submit exits with %d:\n%s", code, &submit.stderr)
	}
	if n := len(tokens(t, dir)); n != 24 {
		t.Errorf("%d completions, want 24", n)
	}
}
