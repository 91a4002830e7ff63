package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestErrors: everything a user can get wrong is one line that says so, with
// the right exit code, and leaves nothing that looks like a result.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := filepath.Dir(write("out/foreign/notes.txt", "mine"))
	run(t, "submit", "--dataset", "testdata/demo/minieval.parquet", "--limit", "1", "--max-new-tokens", "2", "--out", filepath.Join(dir, "out"), "--job", "taken")
	busy, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	demo := "testdata/demo/minieval.parquet"
	corrupt := filepath.Join(dir, "corrupt")
	copyModel(t, "testdata/demo/target", corrupt)
	if err := os.Truncate(filepath.Join(corrupt, "model.onnx"), 1000); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"no dataset", nil, 2, []string{"dataset"}},
		{"unknown flag", []string{"--datset", demo}, 2, []string{"--datset"}},
		{"bad value", []string{"--dataset", demo, "--top-p", "1.5"}, 2, []string{"top_p", "1.5"}},
		{"bad mode", []string{"--dataset", demo, "--mode", "fast"}, 2, []string{"mode", "fast"}},
		{"bad rule", []string{"--dataset", demo, "--rule", "lenient:2"}, 2, []string{"rule", "lenient:2"}},
		{"no such token", []string{"--dataset", demo, "--forbid", "4096"}, 2, []string{"token 4096", "testdata/demo/target"}},
		{"positional", []string{demo}, 2, []string{"unexpected argument"}},
		{"missing config", []string{"--config", "nowhere.yaml"}, 2, []string{"nowhere.yaml"}},
		{"unknown key", []string{"--config", write("bad.yaml", "dataset: x\nshard_row: 3\n")}, 2, []string{"shard_row"}},
		{"unknown variable", []string{"DRAFTMILL_TOP_P=0.9", "--dataset", demo}, 2, []string{"DRAFTMILL_TOP_P"}},
		{"missing dataset", []string{"--dataset", "nowhere.parquet"}, 2, []string{"nowhere.parquet"}},
		{"no dataset at all", []string{"--dataset", write("text.parquet", "once upon a time\n")}, 1, []string{"text.parquet"}},
		{"missing column", []string{"--dataset", demo, "--prompt-column", "question"}, 1, []string{"question", "prompt"}},
		{"missing model", []string{"--dataset", demo, "--target", filepath.Join(dir, "none"), "--draft", "testdata/demo/draft"}, 2, []string{"none"}},
		{"no model", []string{"--dataset", demo, "--target", dir, "--draft", dir}, 1, []string{dir}},
		{"corrupt model", []string{"--dataset", demo, "--target", corrupt, "--draft", "testdata/demo/draft"}, 1, []string{corrupt}},
		{"another vocabulary", []string{"--dataset", demo, "--target", "testdata/demo/target", "--draft", "ort/testdata/gqa"}, 1, []string{"ort/testdata/gqa"}},
		{"another job's folder", []string{"--dataset", demo, "--limit", "1", "--max-new-tokens", "3", "--job", "taken"}, 1, []string{"taken", "max_new_tokens"}},
		{"somebody's folder", []string{"--dataset", demo, "--job", "foreign"}, 1, []string{foreign}},
		{"no server", []string{"--dataset", demo, "--job", "x", "--nats", "nats://127.0.0.1:1"}, 1, []string{"127.0.0.1:1"}},
		{"a silent server", []string{"--dataset", demo, "--job", "x", "--nats", "nats://" + busy.Addr().String()}, 1, []string{busy.Addr().String()}},
		{"no library", []string{"--dataset", demo, "--job", "x", "--ort-library", write("lib.so", "no library")}, 1, []string{"lib.so"}},
		{"broken template", []string{"--dataset", demo, "--job", "x", "--template", "{{.prompt"}, 2, []string{"template"}},
		{"template over a missing column", []string{"--dataset", demo, "--job", "x", "--template", "{{.question}}"}, 1, []string{"question"}},
		{"report of nothing", []string{"report", dir}, 2, []string{dir}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := c.args
			if len(args) > 0 && args[0] != "report" {
				args = append(args, "--out", filepath.Join(dir, "out"))
			}
			p := command("submit", args...).start(t)
			if code := p.code(t); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			var said []string
			for line := range strings.Lines(p.stderr.String()) {
				// What goes before the error is progress: where the job lies, how far it came.
				if strings.HasPrefix(line, "submit:") || strings.HasPrefix(line, "report:") {
					said = append(said, line)
				} else if !strings.HasPrefix(line, "job ") && !strings.HasPrefix(line, "ars ") && !strings.HasPrefix(line, "sps ") {
					t.Errorf("a line that is neither progress nor error: %q", line)
				}
			}
			if len(said) != 1 {
				t.Fatalf("not one line of error:\n%s", &p.stderr)
			}
			for _, want := range c.says {
				if !strings.Contains(said[0], want) {
					t.Errorf("the error does not name %q: %s", want, said[0])
				}
			}
			if p.stdout.Len() > 0 {
				t.Errorf("stdout says %q", &p.stdout)
			}
		})
	}
	found, err := filepath.Glob(filepath.Join(dir, "out", "*", "_SUCCESS"))
	if err != nil || len(found) != 1 {
		t.Errorf("successes %v (%v), want that of the one good job", found, err)
	}
}

// TestTwoSubmits: a job that is running is not run a second time.
func TestTwoSubmits(t *testing.T) {
	out := t.TempDir()
	first := command("submit", small(out)...).start(t)
	until(t, "a commit", func() bool { return committed(t, filepath.Join(out, "small")) >= 1 })
	second := command("submit", small(out)...).start(t)
	if code := second.code(t); code != 1 || !strings.Contains(second.stderr.String(), "by another process") {
		t.Errorf("a second submit exits with %d:\n%s", code, &second.stderr)
	}
	first.signal(t, syscall.SIGINT)
	first.code(t)
}

func TestWorkerErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 2, "nats"},
		{[]string{"DRAFTMILL_NATS_CONNECT_WAIT=1s", "--nats", "nats://127.0.0.1:1"}, 1, "127.0.0.1:1"},
		{[]string{"--dataset", "x"}, 2, "--dataset"},
	} {
		p := command("worker", c.args...).start(t)
		if code := p.code(t); code != c.code || !strings.Contains(p.stderr.String(), c.says) {
			t.Errorf("worker %q exits with %d:\n%s", c.args, code, &p.stderr)
		}
	}
}

// copyModel copies a model folder of the repository.
func copyModel(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(filepath.Join(root, from))); err != nil {
		t.Fatal(err)
	}
}
