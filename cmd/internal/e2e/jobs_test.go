package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/queue"
)

// state is what submit status --json says of a job.
type state struct {
	Scope     string         `json:"scope"`
	State     string         `json:"state"`
	Queued    int            `json:"queued"`
	Dead      int            `json:"set_aside"`
	Priority  int            `json:"priority"`
	Shards    int            `json:"shards"`
	Committed map[string]int `json:"committed"`
}

// becomes waits for what submit status says of the one job there is: the server counts what is queued a little later
// than it is put there or taken off.
func becomes(t *testing.T, what string, ok func(state) bool, args ...string) {
	t.Helper()
	until(t, what, func() bool { return ok(status(t, args...)) })
}

// status is what submit status says of the one job there is.
func status(t *testing.T, args ...string) (s state) {
	t.Helper()
	p := run(t, "submit", append([]string{"status", "--json"}, args...)...)
	all := []json.RawMessage{}
	if err := json.Unmarshal(p.stdout.Bytes(), &all); err != nil || len(all) != 1 {
		t.Fatalf("status says %s (%v)", &p.stdout, err)
	}
	if err := json.Unmarshal(all[0], &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestJobCommands: a detached job is listed, looked at, cancelled, submitted again, has a shard set aside and retried, is
// attached to, and watched to its end; and its rows are those of an undisturbed job.
func TestJobCommands(t *testing.T) {
	calm := t.TempDir()
	run(t, "submit", small(calm)...)
	url, _ := serve(t, t.TempDir(), "127.0.0.1:-1")
	out := t.TempDir()
	dir := filepath.Join(out, "small")
	nats := []string{"--nats", url}
	here := append(nats, "--out", out)
	detach := small(out, "--nats", url, "--detach")

	if p := run(t, "submit", append([]string{"list"}, nats...)...); !strings.Contains(p.stdout.String(), "no job is queued") {
		t.Errorf("list of nothing: %s", &p.stdout)
	}
	run(t, "submit", append(detach, "--priority", "4")...)
	becomes(t, "a fresh job", func(s state) bool {
		return s.State == "queued" && s.Queued == 12 && s.Priority == 4 && s.Shards == 6 && s.Committed["ars"] == 0
	}, append(here, "small")...)
	if p := run(t, "submit", append([]string{"list"}, nats...)...); !strings.Contains(p.stdout.String(), "small") || !strings.Contains(p.stdout.String(), "?") {
		t.Errorf("list, away from the job's folder: %s", &p.stdout)
	}
	// From a machine that does not see the folder.
	becomes(t, "a job seen from elsewhere", func(s state) bool { return s.Queued == 12 && s.Committed == nil }, append(nats, "--out", t.TempDir(), "small")...)

	run(t, "submit", append([]string{"cancel", "small"}, here...)...)
	becomes(t, "a cancelled job", func(s state) bool { return s.State == "cancelled" && s.Queued == 0 }, append(here, "small")...)
	p := command("submit", append([]string{"attach", "small"}, here...)...).start(t)
	if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), "cancelled") {
		t.Errorf("attach to a cancelled job exits with %d:\n%s", code, &p.stderr)
	}
	run(t, "submit", detach...)
	becomes(t, "a job that was submitted again", func(s state) bool { return s.State == "queued" && s.Queued == 12 }, append(here, "small")...)

	// Somebody sets a shard aside.
	q, err := queue.Connect(t.Context(), url, queue.Options{Worker: true})
	if err != nil {
		t.Fatal(err)
	}
	source, err := q.Source(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := source.Next(t.Context())
	if err == nil {
		err = d.Reject(t.Context(), errors.New("planted"))
	}
	if err = errors.Join(err, source.Close(), q.Close()); err != nil {
		t.Fatal(err)
	}
	becomes(t, "a job of which a shard was set aside", func(s state) bool { return s.Queued == 11 && s.Dead == 1 }, append(here, "small")...)
	attached := command("submit", append([]string{"attach", "small"}, here...)...).start(t)
	watching := command("submit", append([]string{"status", "small", "--watch"}, here...)...).start(t)
	command("worker", "--nats", url, "--threads", "1").start(t)
	until(t, "all but the shard that was set aside", func() bool { return committed(t, dir) == 11 })
	if code := attached.code(t); code != 1 || !strings.Contains(attached.stderr.String(), "planted") {
		t.Errorf("attach exits with %d:\n%s", code, &attached.stderr)
	}
	attached = command("submit", append([]string{"attach", "small"}, here...)...).start(t)
	if p := run(t, "submit", append([]string{"retry", "small"}, here...)...); !strings.Contains(p.stdout.String(), "1 shards queued again") {
		t.Errorf("retry: %s", &p.stdout)
	}
	attached.code(t) // it may have seen the dead letter still
	attached = command("submit", append([]string{"attach", "small"}, here...)...).start(t)
	if code := attached.code(t); code != 0 || !strings.Contains(attached.stdout.String(), "written to") {
		t.Errorf("attach exits with %d:\n%s%s", code, &attached.stdout, &attached.stderr)
	}
	if code := watching.code(t); code != 0 || !strings.Contains(watching.stdout.String(), "complete") {
		t.Errorf("status --watch exits with %d:\n%s", code, &watching.stdout)
	}
	becomes(t, "a complete job", func(s state) bool {
		return s.State == "complete" && s.Queued == 0 && s.Dead == 0 && s.Committed["sps"] == 6
	}, append(here, "small")...)
	same(t, tokens(t, dir), tokens(t, filepath.Join(calm, "small")))
	for _, verb := range []string{"status", "attach", "cancel", "retry"} {
		p := command("submit", append([]string{verb, "nobody"}, here...)...).start(t)
		if code := p.code(t); code == 0 {
			t.Errorf("%s of a job that is not there exits with 0:\n%s", verb, &p.stdout)
		}
	}
}

// TestWorkerSignals: the first SIGTERM lets a worker finish what it has, the second one ends it at once, and so does the end
// of the grace period; either way the job is done by others.
func TestWorkerSignals(t *testing.T) {
	url, _ := serve(t, t.TempDir(), "127.0.0.1:-1")
	out := t.TempDir()
	dir := filepath.Join(out, "small")
	// One shard that is long enough to be in the middle of.
	run(t, "submit", "--dataset", "testdata/demo/minieval.parquet", "--limit", "24", "--shard-rows", "24", "--max-new-tokens", "128", "--n", "4", "--mode", "ars",
		"--out", out, "--job", "small", "--nats", url, "--detach")
	q, err := queue.Connect(t.Context(), url, queue.Options{Worker: true})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	reports, err := q.Watch(t.Context(), status(t, "--nats", url, "--out", out, "small").Scope)
	if err != nil {
		t.Fatal(err)
	}
	begun := func(env ...string) *program {
		p := command("worker", append(env, "--nats", url, "--threads", "1")...).start(t)
		name := fmt.Sprintf("-%d-0", p.Process.Pid)
		for late := time.After(patience); ; {
			select {
			case data := <-reports: // perhaps of the worker before
				var done pipeline.Progress
				if err := json.Unmarshal(data, &done); err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(done.Worker, name) { // a row is done, the shard is not
					return p
				}
			case <-late:
				t.Fatalf("no report:\n%s", &p.stderr)
			}
		}
	}
	soon := func(p *program, what string) {
		t.Helper()
		if code := p.code(t); code != 0 || committed(t, dir) != 0 { // it did not wait for the shard's end
			t.Errorf("%s: exit code %d, %d shards committed:\n%s", what, code, committed(t, dir), &p.stderr)
		}
	}
	p := begun()
	p.signal(t, syscall.SIGTERM)
	until(t, "the first signal's effect", func() bool { return strings.Contains(p.stderr.String(), "finishing") })
	p.signal(t, syscall.SIGTERM)
	soon(p, "two signals")
	p = begun("DRAFTMILL_DRAIN_TIMEOUT=100ms")
	p.signal(t, syscall.SIGTERM)
	soon(p, "the end of the grace period")
	// Both gave it back: nobody waits for AckWait, and no attempt is counted.
	p = begun("DRAFTMILL_DRAIN_TIMEOUT=1h")
	p.signal(t, syscall.SIGTERM)
	if code := p.code(t); code != 0 || committed(t, dir) != 1 {
		t.Errorf("one signal: exit code %d, %d shards committed:\n%s", code, committed(t, dir), &p.stderr)
	}
	if strings.Contains(p.stderr.String(), "attempt") {
		t.Errorf("an attempt was counted:\n%s", &p.stderr)
	}
}

// TestAWorkerThatSleeps: a worker that is stopped in the middle of a shard for longer than AckWait loses it to another one,
// and when it wakes up, it commits nothing a second time.
func TestAWorkerThatSleeps(t *testing.T) {
	rows := func(out string, more ...string) []string { return small(out, append(more, "--shard-rows", "12")...) }
	calm := t.TempDir()
	run(t, "submit", rows(calm)...)
	url, _ := serve(t, t.TempDir(), "127.0.0.1:-1")
	out := t.TempDir()
	dir := filepath.Join(out, "small")
	run(t, "submit", append([]string{"DRAFTMILL_NATS_ACK_WAIT=1s"}, rows(out, "--nats", url, "--detach")...)...)
	q, err := queue.Connect(t.Context(), url, queue.Options{Worker: true})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	reports, err := q.Watch(t.Context(), status(t, "--nats", url, "--out", out, "small").Scope)
	if err != nil {
		t.Fatal(err)
	}
	sleeper := command("worker", "--nats", url, "--threads", "1").start(t)
	<-reports
	sleeper.signal(t, syscall.SIGSTOP)
	command("worker", "--nats", url, "--threads", "1").start(t)
	until(t, "_SUCCESS", succeeded(dir))
	sleeper.signal(t, syscall.SIGCONT)
	sleeper.signal(t, syscall.SIGTERM)
	if code := sleeper.code(t); code != 0 {
		t.Errorf("the sleeper exits with %d:\n%s", code, &sleeper.stderr)
	}
	same(t, tokens(t, dir), tokens(t, filepath.Join(calm, "small")))
	becomes(t, "a complete job", func(s state) bool { return s.State == "complete" && s.Queued == 0 }, "--nats", url, "--out", out, "small")
}
