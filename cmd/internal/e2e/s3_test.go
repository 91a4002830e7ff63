package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/storage/bucket/buckettest"
)

// onS3 gives a command the credentials of the test's server in front of its arguments.
func onS3(p *program) *program {
	p.Env = append(p.Env, buckettest.Env()...)
	return p
}

// TestAJobOnS3: dataset and results lie in a real S3 server, behind a proxy that
// answers 500, 409, 412, late, cut off and changed; of three workers one is killed
// with shards in hand. What comes out is what an undisturbed run makes on a disk.
func TestAJobOnS3(t *testing.T) {
	calm := t.TempDir()
	run(t, "submit", small(calm)...)
	want := tokens(t, filepath.Join(calm, "small"))

	s := buckettest.Start(t)
	data, err := os.ReadFile(filepath.Join(root, "testdata/demo/minieval.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "minieval.parquet"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	n := 0
	proxy := buckettest.NewProxy(t, s, func(r *http.Request) buckettest.Fault {
		n++
		reads := r.Method == http.MethodGet && !buckettest.Of(r, "minieval")
		switch {
		case n%40 == 0:
			return buckettest.Fault{Status: 500}
		case n%45 == 0 && buckettest.Creates(r):
			return buckettest.Fault{Status: 409}
		case n%7 == 0 && buckettest.Creates(r):
			return buckettest.Fault{Status: 500, After: true}
		case n%11 == 0 && buckettest.Creates(r):
			return buckettest.Fault{Status: 412, After: true}
		case n%17 == 0:
			return buckettest.Fault{Delay: 300 * time.Millisecond}
		case n%9 == 0 && reads:
			return buckettest.Fault{Cut: true}
		}
		return buckettest.Fault{}
	})
	out := buckettest.URL(proxy.Endpoint, "runs")
	nats, _ := serve(t, t.TempDir(), "127.0.0.1:-1")
	const wait = "DRAFTMILL_NATS_ACK_WAIT=2s"
	args := small(out, "--nats", nats)
	for i, a := range args {
		if strings.HasSuffix(a, "minieval.parquet") {
			args[i] = buckettest.URL(proxy.Endpoint, "minieval.parquet")
		}
	}
	submit := onS3(command("submit", append([]string{wait}, args...)...)).start(t)
	worker := func() *program {
		return onS3(command("worker", wait, "--nats", nats, "--threads", "1", "--lanes", "2")).start(t)
	}
	victim := worker()
	here := filepath.Join(s.Dir, "runs/small")
	until(t, "a commit", func() bool { return committed(t, here) >= 1 })
	victim.signal(t, syscall.SIGKILL)
	<-victim.done
	workers := []*program{worker(), worker()}
	if code := submit.code(t); code != 0 {
		t.Fatalf("submit exits with %d:\n%s\n%s", code, &submit.stderr, &workers[0].stderr)
	}
	for _, w := range workers {
		w.signal(t, syscall.SIGTERM)
		if code := w.code(t); code != 0 {
			t.Errorf("a worker exits with %d:\n%s", code, &w.stderr)
		}
	}
	if proxy.Faults() < 10 {
		t.Errorf("only %d requests were disturbed", proxy.Faults())
	}
	proxy.Set(nil)
	direct := s.URL("runs/small")
	same(t, tokens(t, direct), want)
	for _, left := range []string{"_staging", "_CANCELLED"} {
		if files, _ := filepath.Glob(filepath.Join(here, left, "*")); len(files) > 0 {
			t.Errorf("left behind: %v", files)
		}
	}

	// Every command that reads a job reads it there.
	for _, args := range [][]string{{"verify", direct}, {"report", direct}, {"status", direct, "--nats", nats}, {"status", "small", "--out", s.URL("runs"), "--nats", nats}} {
		p := onS3(command("submit", args...)).start(t)
		if code := p.code(t); code != 0 || p.stdout.Len() == 0 {
			t.Errorf("%v exits with %d:\n%s", args, code, &p.stderr)
		}
	}
	// A damaged result is found, put aside, queued and decoded again.
	fsck := func(want int, more ...string) *program {
		p := onS3(command("submit", append([]string{"fsck", direct, "--nats", nats}, more...)...)).start(t)
		if code := p.code(t); code != want {
			t.Fatalf("fsck %v exits with %d:\n%s%s", more, code, &p.stdout, &p.stderr)
		}
		return p
	}
	fsck(0)
	part := filepath.Join(here, "completions/mode=sps/part-00000.parquet")
	if err := os.Truncate(part, 100); err != nil {
		t.Fatal(err)
	}
	if p := fsck(1, "--json"); !strings.Contains(p.stdout.String(), `"kind": "damaged"`) {
		t.Errorf("fsck says\n%s", &p.stdout)
	}
	if p := fsck(0, "--repair"); !strings.Contains(p.stdout.String(), "queued again: 1 shards") {
		t.Errorf("fsck --repair says\n%s", &p.stdout)
	}
	mender := worker()
	until(t, "the job's end", succeeded(here))
	mender.signal(t, syscall.SIGTERM)
	if code := mender.code(t); code != 0 {
		t.Errorf("the worker exits with %d:\n%s", code, &mender.stderr)
	}
	fsck(0)
	same(t, tokens(t, direct), want)

	// Again: nothing to do, and nothing changes.
	again := onS3(command("submit", append([]string{wait}, args...)...)).start(t)
	if code := again.code(t); code != 0 {
		t.Errorf("again: exit code %d:\n%s", code, &again.stderr)
	}
	if all := append(again.stderr.Bytes(), submit.stderr.Bytes()...); bytes.Contains(all, []byte("test-secret")) {
		t.Errorf("the secret key is in what submit says")
	}
}

// TestDatasetOfSeveralObjects: a pattern names the files of a dataset on S3; its
// rows are those of the one file that they were made of.
func TestDatasetOfSeveralObjects(t *testing.T) {
	s := buckettest.Start(t)
	for name, data := range halves(t, "testdata/demo/minieval.parquet") {
		file := filepath.Join(s.Dir, "sets", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := t.TempDir()
	job := func(name, dataset string) *program {
		return onS3(command("submit", "--dataset", dataset, "--limit", "8", "--target", "testdata/demo/target", "--mode", "ars",
			"--max-new-tokens", "8", "--temperature", "0", "--job", name, "--out", out)).start(t)
	}
	for name, dataset := range map[string]string{"one": "testdata/demo/minieval.parquet", "parts": s.URL("sets/data/test-*-of-*.parquet")} {
		if p := job(name, dataset); p.code(t) != 0 {
			t.Fatalf("%s:\n%s", name, &p.stderr)
		}
	}
	same(t, tokens(t, filepath.Join(out, "parts")), tokens(t, filepath.Join(out, "one")))
	p := job("none", s.URL("sets/none-*.parquet"))
	if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), "no file there has a name like none-*.parquet") || strings.Count(p.stderr.String(), "\n") != 1 {
		t.Errorf("exits with %d:\n%s", code, &p.stderr)
	}
}
