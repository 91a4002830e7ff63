package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
)

// previous is the commit of the oldest worker that shares a queue with this one:
// since then a run has a consumer of its own.
const previous = "3eb20b4df998"

// demo is a job of the demo pair, decoded by the product's workers.
func demo() dataset {
	return dataset{
		path: "testdata/demo/minieval.parquet", rows: 12, samples: 1, real: true,
		flags: []string{"--limit", "12", "--shard-rows", "2", "--max-new-tokens", "60"},
	}
}

// The demo pair under kills.
func TestChaosKillTheDemo(t *testing.T) {
	fullOnly(t, "TestWorkersOnAServer is its short form")
	f := faults.begin(t, "a worker is killed, another takes its place", "the demo pair in the product's worker, 2 at a time")
	tr := newTrial(t, f, startCluster(t, 1), demo())
	tr.submit()
	tr.worker()
	tr.worker()
	for range 3 {
		tr.commits(2)
		tr.kill(tr.workers[0])
		tr.workers = tr.workers[1:]
		tr.worker()
	}
	tr.end()
}

// Workers of an earlier build are replaced in mid-job, one by SIGTERM, one by SIGKILL.
func TestChaosAnUpgrade(t *testing.T) {
	fullOnly(t, "it builds an earlier worker")
	f := faults.begin(t, "workers are upgraded in mid-job", "the demo pair; from the worker of commit "+previous+" to this one, one by SIGTERM, one by SIGKILL")
	old, err := buildPrevious(t)
	if err != nil { // no history, in a shallow clone
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		f.Where = "not run: this clone does not have commit " + previous
		t.Skip(err)
	}
	tr := newTrial(t, f, startCluster(t, 1), demo())
	tr.without = regexp.MustCompile(`"Scored":\d+,`)
	tr.submit()
	var before []*program
	for range 2 {
		p := command("worker", "DRAFTMILL_NATS_ACK_WAIT="+ackWait.String(), "--nats", tr.servers.url(), "--threads", "1")
		p.Path, p.Args[0] = old, old
		before = append(before, p.start(t))
	}
	tr.commits(3)
	tr.worker()
	before[0].signal(t, syscall.SIGTERM)
	if code := before[0].code(t); code != 0 {
		t.Errorf("the earlier worker exits with %d:\n%s", code, &before[0].stderr)
	}
	f.Disturbed++
	tr.commits(1)
	tr.worker()
	tr.kill(before[1])
	tr.end()
}

// buildPrevious builds the worker of an earlier commit from the repository's history.
func buildPrevious(t *testing.T) (path string, err error) {
	t.Helper()
	dir := t.TempDir()
	git := exec.Command("git", "archive", "--output", filepath.Join(dir, "src.tar"), previous, "--", "go.mod", "go.sum", "cmd", "configs", "ort", "pipeline", "spec", "storage")
	git.Dir = root
	if out, err := git.CombinedOutput(); err != nil {
		return "", &os.PathError{Op: "git archive", Path: previous, Err: errorText(out)}
	}
	src := filepath.Join(dir, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(bin, "worker-previous")
	for _, c := range [][]string{{"tar", "xf", filepath.Join(dir, "src.tar")}, {"go", "build", "-trimpath", "-o", path, "./cmd/worker"}} {
		cmd := exec.Command(c[0], c[1:]...)
		cmd.Dir = src
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	return path, nil
}

type errorText []byte

func (e errorText) Error() string { return string(e) }
