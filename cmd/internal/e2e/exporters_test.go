package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const models = "testdata/models/"

// TestExportersAgree: the same weights through both contracts, as target and as
// draft, give the same completions.
//
// Greedy ones are equal token by token. So are sampled ones, of the same coins,
// unless a coin falls between probabilities that differ by the rounding of
// float32 (1e-6): one completion of 24 may.
func TestExportersAgree(t *testing.T) {
	data := filepath.Join(t.TempDir(), "prompts.jsonl")
	var rows strings.Builder
	for i, prompt := range []string{
		"the quick brown fox", "def the_answer(n):", "in the beginning", "0123456789", "Grüße aus 東京 🙂", "a",
		"SELECT * FROM t WHERE", "to be, or not to be", "\n\n\n", "lorem ipsum dolor sit amet", "x = [1, 2, 3", "What is the answer?",
	} {
		line, err := json.Marshal(map[string]any{"id": i, "prompt": prompt})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&rows, "%s\n", line)
	}
	if err := os.WriteFile(data, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, temperature := range []string{"0", "1"} {
		out := t.TempDir()
		var want map[string][]int32
		for i, pair := range [][2]string{
			{"qwen2-builder", "qwen2-builder"}, {"qwen2-builder", "qwen2-optimum"},
			{"qwen2-optimum", "qwen2-builder"}, {"qwen2-optimum", "qwen2-optimum"},
		} {
			name := fmt.Sprintf("pair%d", i)
			run(t, "submit", "--dataset", data, "--target", models+pair[0], "--draft", models+pair[1], "--temperature", temperature,
				"--max-new-tokens", "40", "--k", "4", "--seed", "3", "--shard-rows", "4", "--job", name, "--out", out)
			got := tokens(t, filepath.Join(out, name))
			if len(got) != 24 {
				t.Fatalf("%d completions, want 24", len(got))
			}
			if want == nil {
				want = got
				continue
			}
			differ, total := 0, 0
			for key, w := range want {
				total += len(w)
				if !slices.Equal(got[key], w) {
					differ++
					t.Logf("temperature %s, %v, %s: tokens %v, by the first pair %v", temperature, pair, key, got[key], w)
				}
			}
			if differ > 0 && temperature == "0" || differ > 1 {
				t.Errorf("temperature %s: %d completions of target %s and draft %s differ", temperature, differ, pair[0], pair[1])
			}
			if total < 12*2*10 {
				t.Errorf("temperature %s: %d tokens in all are too few to tell", temperature, total)
			}
		}
	}
}

// TestInspect: what it says of models that submit has run, and its exit codes.
func TestInspect(t *testing.T) {
	p := run(t, "submit", "inspect", models+"qwen2-optimum", "--draft", models+"qwen2-builder", "--json")
	var found struct {
		Target, Draft struct {
			Contract     string
			Parameters   int64
			ContextBytes int `json:"cache_bytes_per_sequence"`
		}
		Pair struct{ Fits bool }
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &found); err != nil {
		t.Fatalf("stdout is no JSON: %v\n%s", err, &p.stdout)
	}
	if found.Target.Contract != "growing" || found.Draft.Contract != "gqa" || found.Draft.Parameters == 0 ||
		found.Target.ContextBytes != found.Draft.ContextBytes || !found.Pair.Fits {
		t.Errorf("got %+v", found)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"inspect"}, 2, "submit: name one model: submit inspect MODEL"},
		{[]string{"inspect", models + "refused/pruned"}, 1, "export it without prune_lm_head"},
		{[]string{"inspect", "testdata/demo/target", "--draft", models + "qwen2-builder"}, 1, "choose a draft of the target's family"},
	} {
		p := command("submit", c.args...).start(t)
		if code := p.code(t); code != c.code || !strings.Contains(p.stderr.String(), c.want) || strings.Count(p.stderr.String(), "\n") != 1 {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.code, &p.stderr)
		}
	}
}

// TestToyLLM runs the file of toyllm's experiment with small GPT-2s, exported ones
// and checkpoints as the Hub has them: greedily both modes give the same text.
func TestToyLLM(t *testing.T) {
	// ONNX Runtime is in the user's cache, models are to go to another one.
	t.Setenv("DRAFTMILL_ORT_LIBRARY", strings.TrimSpace(run(t, "submit", "setup").stdout.String()))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for name, pair := range map[string][2]string{
		"exported":    {models + "gpt2-optimum", models + "gpt2-optimum-int8"},
		"checkpoints": {checkpoints + "gpt2", checkpoints + "gguf/gpt2.gguf"},
	} {
		out := t.TempDir()
		p := run(t, "submit", "--config", "configs/toyllm.yaml", "--target", pair[0], "--draft", pair[1], "--out", out)
		if !strings.Contains(p.stdout.String(), "1 of 1 completions are the same tokens in both modes") {
			t.Errorf("%s: %s", name, &p.stdout)
		}
		got := tokens(t, filepath.Join(out, "toyllm"))
		if len(got) != 2 || len(got["ars 0/0"]) < 50 || !slices.Equal(got["ars 0/0"], got["sps 0/0"]) {
			t.Errorf("%s: completions %v", name, got)
		}
	}
}
