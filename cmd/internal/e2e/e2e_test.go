package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/storage"
)

// small is a job of 12 rows in 6 shards a mode.
func small(out string, more ...string) []string {
	return append([]string{
		"--dataset", "testdata/demo/minieval.parquet", "--limit", "12", "--shard-rows", "2",
		"--temperature", "0.8", "--max-new-tokens", "60", "--seed", "5", "--job", "small", "--out", out,
	}, more...)
}

func TestSummaryAsJSON(t *testing.T) {
	out := t.TempDir()
	p := run(t, "submit", small(out, "--json")...)
	var summary struct {
		Job   string
		Modes map[string]struct {
			Samples          int
			CompletionTokens int `json:"completion_tokens"`
			Drafted          int
		}
		Speedup, Alpha *float64
		TheorySpeedup  *float64 `json:"theory_speedup"`
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &summary); err != nil {
		t.Fatalf("stdout is no JSON: %v\n%s", err, &p.stdout)
	}
	ars, sps := summary.Modes["ars"], summary.Modes["sps"]
	if summary.Job != "small" || ars.Samples != 12 || sps.Samples != 12 || ars.CompletionTokens == 0 || ars.Drafted != 0 || sps.Drafted == 0 {
		t.Errorf("summary %+v", summary)
	}
	if summary.Speedup == nil || summary.Alpha == nil || summary.TheorySpeedup == nil {
		t.Errorf("summary lacks a comparison: %s", &p.stdout)
	}
	if len(tokens(t, filepath.Join(out, "small"))) != 24 {
		t.Error("not every row is there in both modes")
	}
	if left, _ := filepath.Glob(filepath.Join(out, "small", "_queue")); left != nil {
		t.Error("the finished job keeps its queue")
	}
	// The same command again finds all done, and says the same.
	again := run(t, "submit", small(out, "--json")...)
	if again.stdout.String() != p.stdout.String() {
		t.Errorf("a second run says\n%s", &again.stdout)
	}
	table := run(t, "submit", "report", filepath.Join(out, "small"))
	for _, want := range []string{"ArS", "SpS", "mean token time", "alpha", "Theory"} {
		if !strings.Contains(table.stdout.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table.stdout)
		}
	}
}

// TestGreedyModesAgree: greedy SpS gives the tokens of greedy ArS, but for
// near ties, which the summary lists with their margins.
func TestGreedyModesAgree(t *testing.T) {
	p := run(t, "submit", small(t.TempDir(), "--json", "--temperature", "0")...)
	var summary struct {
		Greedy *struct {
			Same        int
			Divergences []struct{ Margin float64 }
		}
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &summary); err != nil {
		t.Fatal(err)
	}
	if summary.Greedy == nil || summary.Greedy.Same+len(summary.Greedy.Divergences) != 12 {
		t.Fatalf("greedy comparison %+v", summary.Greedy)
	}
	for _, d := range summary.Greedy.Divergences {
		if d.Margin > 1e-3 {
			t.Errorf("a divergence where the two best logits are %g apart is no near tie", d.Margin)
		}
	}
}

// TestKillInTheMiddle kills submit, with its queue and its worker, at several
// moments; running it again gives what an undisturbed run gives.
func TestKillInTheMiddle(t *testing.T) {
	calm := t.TempDir()
	run(t, "submit", small(calm)...)
	want := tokens(t, filepath.Join(calm, "small"))

	out := t.TempDir()
	dir := filepath.Join(out, "small")
	for _, shards := range []int{1, 4, 9} {
		p := command("submit", small(out)...).start(t)
		until(t, "a commit", func() bool { return committed(t, dir) >= shards })
		p.signal(t, syscall.SIGKILL)
		p.code(t)
		if _, err := os.Stat(filepath.Join(dir, "_SUCCESS")); err == nil {
			t.Fatal("a killed job is called a success")
		}
	}
	run(t, "submit", small(out)...)
	same(t, tokens(t, dir), want)
}

// TestInterrupt: SIGINT ends submit between shards, with a word on how to go
// on.
func TestInterrupt(t *testing.T) {
	out := t.TempDir()
	dir := filepath.Join(out, "small")
	p := command("submit", small(out)...).start(t)
	until(t, "a commit", func() bool { return committed(t, dir) >= 1 })
	p.signal(t, syscall.SIGINT)
	if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), "run the same command again") {
		t.Errorf("exit code %d:\n%s", code, &p.stderr)
	}
	run(t, "submit", small(out)...)
	if n := len(tokens(t, dir)); n != 24 {
		t.Errorf("%d completions, want 24", n)
	}
}

// TestWorkersOnAServer: several workers share a queue over the network; one is
// killed with a shard in hand, another drains on SIGTERM.
func TestWorkersOnAServer(t *testing.T) {
	calm := t.TempDir()
	run(t, "submit", small(calm)...)
	want := tokens(t, filepath.Join(calm, "small"))

	server, err := queue.Embed(t.TempDir(), queue.EmbedOptions{Listen: "127.0.0.1:-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}()
	const wait = "DRAFTMILL_NATS_ACK_WAIT=2s"
	out := t.TempDir()
	dir := filepath.Join(out, "small")

	run(t, "submit", append([]string{wait}, small(out, "--nats", server.URL(), "--detach")...)...)
	if committed(t, dir) != 0 {
		t.Error("a detached submit decodes")
	}
	first := command("worker", wait, "--nats", server.URL(), "--threads", "1").start(t)
	until(t, "a commit", func() bool { return committed(t, dir) >= 1 })
	second := command("worker", wait, "--nats", server.URL(), "--threads", "1").start(t)
	until(t, "more commits", func() bool { return committed(t, dir) >= 3 })
	first.signal(t, syscall.SIGKILL)
	// The worker that commits the last shard completes the job, without submit.
	until(t, "_SUCCESS", func() bool { _, err := os.Stat(filepath.Join(dir, "_SUCCESS")); return err == nil })
	same(t, tokens(t, dir), want)
	second.signal(t, syscall.SIGTERM)
	if code := second.code(t); code != 0 {
		t.Errorf("a drained worker exits with %d:\n%s", code, &second.stderr)
	}
	run(t, "submit", append([]string{wait}, small(out, "--nats", server.URL())...)...) // reports
}

// TestNoRowSucceeds: a job in which every row fails is complete, and a failure that
// says what the rows have in common.
func TestNoRowSucceeds(t *testing.T) {
	data := filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(data, []byte(strings.Repeat("{\"id\": 1, \"prompt\": null}\n", 3)+"{\"id\": 2, \"prompt\": \"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	p := command("submit", "--dataset", data, "--out", out, "--job", "bad", "--mode", "ars").start(t)
	const want = "submit: no sample of job bad succeeded: 3 times the prompt is null; 1 times the prompt is empty"
	if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), want) {
		t.Errorf("exit code %d:\n%s\nwant %q", code, &p.stderr, want)
	}
	if !succeeded(filepath.Join(out, "bad"))() {
		t.Error("the job is not complete")
	}
}

// TestAfterTheEnd: job.json names the library that decoded; and what a submit that
// was killed at its very end left of its queue, the next one removes.
func TestAfterTheEnd(t *testing.T) {
	out := t.TempDir()
	args := []string{"--dataset", "testdata/demo/minieval.parquet", "--limit", "1", "--max-new-tokens", "3", "--mode", "ars", "--job", "end", "--out", out}
	run(t, "submit", args...)
	text, err := os.ReadFile(filepath.Join(out, "end", "job.json"))
	if err != nil {
		t.Fatal(err)
	}
	var job struct{ Versions map[string]string }
	if err := json.Unmarshal(text, &job); err != nil || job.Versions["onnxruntime"] == "" {
		t.Errorf("job.json does not say which ONNX Runtime decoded (%v): %v", err, job.Versions)
	}
	queued := filepath.Join(out, "end", "_queue")
	server, err := queue.Embed(queued, queue.EmbedOptions{})
	if err == nil {
		err = server.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	run(t, "submit", args...)
	if _, err := os.Stat(queued); !os.IsNotExist(err) {
		t.Errorf("the finished job keeps its queue (%v)", err)
	}
}

// TestRowsThatCannotBeDecoded: bad rows are rows with an error, in a job that
// succeeds.
func TestRowsThatCannotBeDecoded(t *testing.T) {
	data := filepath.Join(t.TempDir(), "bad.jsonl")
	rows := "{\"id\": 1, \"prompt\": \"def f(x):\\n\"}\n" +
		"{\"id\": 2, \"prompt\": null}\n{\"id\": 3, \"prompt\": \"\"}\n{\"id\": 4, \"prompt\": \"\xff\xfe\"}\n" +
		"{\"id\": 5, \"prompt\": \"" + strings.Repeat("for i in range(10):", 2000) + "\"}\n"
	if err := os.WriteFile(data, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	run(t, "submit", "--dataset", data, "--out", out, "--job", "bad", "--max-new-tokens", "8", "--n", "2")
	job, err := storage.OpenJob(filepath.Join(out, "bad"))
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"ars", "sps"} {
		var errors []string
		if err := job.ReadCompletions(mode, func(c storage.Completion) error {
			errors = append(errors, c.RowID+": "+c.Error)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(errors, "\n")
		for _, want := range []string{"1: \n1: \n", "2: the prompt is null", "3: the prompt is empty", "4: the prompt is not valid UTF-8", "5: the prompt has"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %q:\n%s", mode, want, got)
			}
		}
	}
}
