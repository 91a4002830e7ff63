package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/cmd/internal/chaos"
)

const ackWait = time.Second // of every queue here

// newTrial readies a job for servers, of data.
func newTrial(t *testing.T, f *fault, servers *cluster, data dataset) *trial {
	t.Helper()
	f.Runs++
	out := t.TempDir()
	tr := &trial{t: t, servers: servers, data: data, out: out, here: filepath.Join(out, chaosJob), fault: f}
	t.Cleanup(func() {
		for i, p := range tr.all {
			if said := p.stderr.String(); t.Failed() {
				t.Logf("worker %d, which reached the end: %v, said\n%s", i, p.ended(), said[max(0, len(said)-8000):])
			}
		}
	})
	return tr
}

// submitFlags are the job's.
func (tr *trial) submitFlags(more ...string) []string {
	args := []string{
		"DRAFTMILL_NATS_ACK_WAIT=" + ackWait.String(), fmt.Sprintf("DRAFTMILL_NATS_REPLICAS=%d", len(tr.servers.nodes)),
		"--nats", tr.servers.url(), "--dataset", tr.data.path, "--out", tr.out, "--job", chaosJob, "--seed", "7", "--temperature", "0.8",
		"--target", "testdata/demo/target", "--draft", "testdata/demo/draft", "--n", fmt.Sprint(tr.data.samples),
	}
	return append(append(args, tr.data.flags...), more...)
}

// submit puts the job on the queue and does not wait for it.
func (tr *trial) submit(more ...string) {
	tr.t.Helper()
	run(tr.t, "submit", tr.submitFlags(append([]string{"--detach"}, more...)...)...)
}

// worker starts a worker with a scripted model; what it does to itself is in env.
func (tr *trial) worker(env ...string) *program { return tr.workerAt(tr.servers.url(), env...) }

// workerAt is worker, with servers at another address.
func (tr *trial) workerAt(url string, env ...string) *program {
	tr.t.Helper()
	return tr.workerAs(func(*program) {}, url, env...)
}

// workerAs is workerAt, with a worker that is made ready by as.
func (tr *trial) workerAs(as func(*program), url string, env ...string) *program {
	tr.t.Helper()
	args := []string{
		"DRAFTMILL_NATS_ACK_WAIT=" + ackWait.String(), fmt.Sprintf("DRAFTMILL_NATS_REPLICAS=%d", len(tr.servers.nodes)),
		"DRAFTMILL_LOG_LEVEL=debug", "--nats", url,
	}
	program := "chaos-worker"
	if tr.data.real {
		program, args = "worker", append(args, "--threads", "1")
	}
	p := command(program, args...)
	p.Env = append(p.Env, env...)
	as(p)
	p.start(tr.t)
	tr.workers, tr.all = append(tr.workers, p), append(tr.all, p)
	return p
}

// at is the setting of a worker that sends itself a signal.
func at(signal, point string, nth int) string {
	return fmt.Sprintf("%s=%s:%s:%d", chaos.At, signal, point, nth)
}

// dies waits for a worker that kills itself.
func (tr *trial) dies(p *program) {
	tr.t.Helper()
	if code := p.code(tr.t); code != -1 {
		tr.t.Errorf("a worker that was to be killed exits with %d:\n%s", code, &p.stderr)
	}
	tr.fault.Disturbed++
}

// kill kills a worker.
func (tr *trial) kill(p *program) {
	tr.t.Helper()
	p.signal(tr.t, syscall.SIGKILL)
	p.code(tr.t)
	tr.fault.Disturbed++
}

// complete waits until the job is.
func (tr *trial) complete(patience time.Duration) {
	tr.t.Helper()
	within(tr.t, patience, "_SUCCESS of "+tr.fault.Name, succeeded(tr.here))
}

// end waits for the job, holds it against the oracle, and lets the workers that
// are left finish.
func (tr *trial) end() {
	tr.t.Helper()
	tr.complete(patience)
	tr.holds(undisturbed(tr.t, tr.data))
	tr.dismiss()
}

// dismiss ends the workers that still run, each of which must say that it succeeded.
func (tr *trial) dismiss() {
	tr.t.Helper()
	var left []*program
	for _, p := range tr.workers {
		if !p.ended() {
			p.signal(tr.t, syscall.SIGTERM)
			left = append(left, p)
		}
	}
	for _, p := range left {
		if code := p.code(tr.t); code != 0 {
			tr.t.Errorf("a worker exits with %d:\n%s", code, &p.stderr)
		}
	}
	tr.workers = nil
}

// ended says whether a program has ended.
func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// references has the content of undisturbed runs, by dataset and kind of worker.
var references struct {
	mu    sync.Mutex
	known map[string]content
}

// undisturbed is what a job of data writes when nothing happens to it.
func undisturbed(t *testing.T, data dataset) content {
	t.Helper()
	return undisturbedAs(t, data, "", func(*program) {})
}

// undisturbedAs is undisturbed with workers that are made ready by as, which has a name.
func undisturbedAs(t *testing.T, data dataset, name string, as func(*program)) content {
	t.Helper()
	references.mu.Lock()
	defer references.mu.Unlock()
	key := data.path + name
	if c := references.known[key]; c != nil {
		return c
	}
	tr := newTrial(t, &fault{Name: "an undisturbed run"}, startCluster(t, 1), data)
	tr.submit()
	for range 1 + data.rows/100 {
		tr.workerAs(as, tr.servers.url(), chaos.Cured+"=1")
	}
	tr.complete(10 * time.Minute)
	tr.dismiss()
	all, twice, err := readContent(tr.dir())
	if err != nil || len(twice) > 0 {
		t.Fatalf("the undisturbed run: %v %q", err, twice)
	}
	if references.known == nil {
		references.known = map[string]content{}
	}
	references.known[key] = all
	return all
}

// makeDataset writes rows prompts of words. Some rows cannot be decoded: rows 3,
// 14, 25 ... are null, and rows 5, 18, 31 ... fail in the model.
func makeDataset(rows, shardRows, samples, tokens int) dataset {
	return poisoned(rows, shardRows, samples, tokens, -1, "")
}

// poisoned is makeDataset with a mark in the prompt of one row.
func poisoned(rows, shardRows, samples, tokens, at int, mark string) dataset {
	words := []string{"def", "for", "return", "if", "print", "range", "(x)", "x + 1", "while", "sum"}
	r := rand.New(rand.NewPCG(uint64(rows), uint64(shardRows)))
	var list []map[string]any
	for i := range rows {
		text := fmt.Sprint(i, ":")
		for range 3 + r.IntN(20) {
			text += " " + words[r.IntN(len(words))]
		}
		row := map[string]any{"id": fmt.Sprint("row-", i), "prompt": text}
		switch {
		case i == at:
			row["prompt"] = mark + text // a pass of the prompt leaves out its last token
		case i%11 == 3:
			row["prompt"] = nil
		case i%13 == 5:
			row["prompt"] = text + chaos.BadRow
		}
		list = append(list, row)
	}
	return dataset{
		path: jsonRows(list), rows: rows, samples: samples,
		flags: []string{"--shard-rows", fmt.Sprint(shardRows), "--max-new-tokens", fmt.Sprint(tokens)},
	}
}

// large is enough for several disturbances: 60 shards in each mode.
var large = sync.OnceValue(func() dataset { return makeDataset(60, 1, 1, 24) })

// standard is a small job's: 12 shards in each mode.
var standard = sync.OnceValue(func() dataset { return makeDataset(24, 2, 2, 24) })
