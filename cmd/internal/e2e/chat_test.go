package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/storage"
)

// chatty is a copy of the demo's target with a chat template, which refuses a
// system message.
func chatty(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chatty")
	if err := os.CopyFS(dir, os.DirFS("../../../testdata/demo/target")); err != nil {
		t.Fatal(err)
	}
	const template = `{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}` +
		`{{ m.content }}{% if m.role == 'assistant' %}<|endoftext|>{% endif %}{% endfor %}`
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestChat: conversations are decoded through the target's template; one that it
// refuses is a row with an error. The log holds, and the models draw it again.
func TestChat(t *testing.T) {
	target, out := chatty(t), t.TempDir()
	dataset := filepath.Join(out, "chats.jsonl")
	const head = "def double(xs: List[int]) -> List[int]:\\n    "
	rows := []string{
		`{"id": "a", "messages": [{"role": "user", "content": "from typing import List\n\n\n` + head + `\"\"\"Return each element doubled.\"\"\"\n"}]}`,
		`{"id": "b", "messages": [{"role": "system", "content": "be good"}, {"role": "user", "content": "x"}]}`,
		`{"id": "c", "messages": [{"role": "user", "content": [{"type": "text", "text": "` + head + `"}]}]}`,
		`{"id": "d", "messages": [{"content": "x"}]}`,
		`{"id": "e", "messages": null}`,
	}
	if err := os.WriteFile(dataset, []byte(strings.Join(rows, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--chat", "--dataset", dataset, "--target", target, "--draft", "testdata/demo/draft",
		"--out", out, "--job", "chat", "--max-new-tokens", "20", "--shard-rows", "2", "--seed", "3"}
	run(t, "submit", args...)
	run(t, "submit", args...) // the same job
	job, err := storage.OpenJob(filepath.Join(out, "chat"))
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"ars", "sps"} {
		found := map[string]storage.Completion{}
		if err := job.ReadCompletions(mode, func(c storage.Completion) error { found[c.RowID] = c; return nil }); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]string{"a": "", "b": "the chat template refuses the messages: no system here", "c": "", "d": "message 1: it has no role", "e": "null"} {
			c, there := found[id]
			if !there || !strings.Contains(c.Error, want) || (want == "") != (c.Error == "") {
				t.Errorf("%s, row %s: %+v", mode, id, c)
			}
		}
	}
	run(t, "submit", "verify", "chat", "--out", out, "--models")
	if p := command("submit", append(args, "--system", "be good", "--job", "other", "--prompt-column", "id")...).start(t); p.code(t) != 1 || !strings.Contains(p.stderr.String(), "no system here") {
		t.Errorf("a template that refuses every prompt: %s", &p.stderr)
	}
	p := command("submit", "--chat", "--dataset", dataset, "--target", "testdata/demo/target", "--draft", "testdata/demo/draft", "--out", out).start(t)
	if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), "the model has no chat template") {
		t.Errorf("a model without a template, exit code %d: %s", code, &p.stderr)
	}
}
