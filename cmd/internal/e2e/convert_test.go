package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const checkpoints = "ort/convert/testdata/"

// TestModelsAsTheyAre: a Hugging Face folder as target and a GGUF file as draft,
// converted on the way, once; the same models imported beforehand give the same
// completions.
func TestModelsAsTheyAre(t *testing.T) {
	data := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(data, []byte(`{"id":0,"prompt":"the quick brown fox"}`+"\n"+`{"id":1,"prompt":"in the beginning"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// ONNX Runtime is in the user's cache, models are to go to another one.
	t.Setenv("DRAFTMILL_ORT_LIBRARY", strings.TrimSpace(run(t, "submit", "setup").stdout.String()))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	out := t.TempDir()
	job := func(name, target, draft string) *program {
		return run(t, "submit", "--dataset", data, "--target", target, "--draft", draft, "--temperature", "0.8", "--seed", "5",
			"--max-new-tokens", "24", "--k", "3", "--job", name, "--out", out)
	}
	target, draft := checkpoints+"llama", checkpoints+"gguf/llama-q4_0.gguf"
	first := job("first", target, draft)
	if n := strings.Count(first.stderr.String(), "model converted"); n != 2 {
		t.Errorf("%d models converted, want 2:\n%s", n, first.stderr.String())
	}
	if second := job("second", target, draft); strings.Contains(second.stderr.String(), "model converted") {
		t.Errorf("converted again:\n%s", second.stderr.String())
	}
	dir := t.TempDir()
	said := run(t, "submit", "import", target, filepath.Join(dir, "target")).stdout.String()
	if want := ": llama, int4, blocks of 32 with zero points, 8 bits kept, float32 activations, "; !strings.Contains(said, want) {
		t.Errorf("import says %q, want %q in it", said, want)
	}
	// Blocks of 64 are no setting for weights that are kept.
	said = run(t, "submit", "import", "--block", "64", draft, filepath.Join(dir, "draft")).stdout.String()
	if want := "weights kept as they are: 16 of Q4_0"; !strings.Contains(said, want) {
		t.Errorf("import says %q, want %q in it", said, want)
	}
	job("third", filepath.Join(dir, "target"), filepath.Join(dir, "draft"))
	want := tokens(t, filepath.Join(out, "first"))
	if len(want) != 4 {
		t.Errorf("%d completions", len(want))
	}
	same(t, tokens(t, filepath.Join(out, "second")), want)
	same(t, tokens(t, filepath.Join(out, "third")), want)
	if said := run(t, "submit", "inspect", target, "--draft", draft).stdout.String(); !strings.Contains(said, "gqa") {
		t.Errorf("inspect says\n%s", said)
	}
}
