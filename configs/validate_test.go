package configs

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestExamples(t *testing.T) {
	examples := map[string]func(*testing.T, string){
		"demo.yaml":           submitExample,
		"humaneval.yaml":      submitExample,
		"humaneval-chat.yaml": submitExample,
		"summaries.yaml":      submitExample,
		"toyllm.yaml":         submitExample,
		"translate.yaml":      submitExample,
		"xsum.yaml":           submitExample,
		"xsum-greedy.yaml":    submitExample,
		"worker.yaml":         workerExample,
		"cuda.yaml":           workerExample,
	}
	for _, file := range glob(t, "*.yaml") {
		check, ok := examples[file]
		if !ok {
			t.Errorf("%s is no example that this test knows", file)
			continue
		}
		t.Run(file, func(t *testing.T) { check(t, file) })
		delete(examples, file)
	}
	for file := range examples {
		t.Errorf("the example %s is missing", file)
	}
}

func submitExample(t *testing.T, file string) {
	c := mustLoad(t, SubmitFlags, "--config", file)
	if err := checkSubmitValues(c); err != nil {
		t.Error(err)
	}
	if want := strings.TrimSuffix(file, ".yaml"); c.Job != want {
		t.Errorf("job is %q, want %q", c.Job, want)
	}
}

func workerExample(t *testing.T, file string) {
	if err := checkWorkerValues(mustLoad(t, WorkerFlags, "--config", file)); err != nil {
		t.Error(err)
	}
}

// TestXSumExamplesDiffer holds the two XSum files together: all but the way of
// sampling and the name must be alike.
func TestXSumExamplesDiffer(t *testing.T) {
	nucleus := mustLoad(t, SubmitFlags, "--config", "xsum.yaml")
	greedy := mustLoad(t, SubmitFlags, "--config", "xsum-greedy.yaml")
	if nucleus.Template != greedy.Template || !strings.HasSuffix(nucleus.Template, "{{.document}}\nSummary:") {
		t.Errorf("templates:\n%q\n%q", nucleus.Template, greedy.Template)
	}
	if nucleus.Sampling.TopP != 0.8 || greedy.Sampling.Temperature != 0 ||
		nucleus.Sampling.MaxNewTokens != 128 || greedy.Sampling.MaxNewTokens != 128 {
		t.Errorf("sampling: %+v, %+v", nucleus.Sampling, greedy.Sampling)
	}
}

// site is a folder in which everything that the defaults and a call name is
// there.
func site(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for _, folder := range []string{"testdata/demo/target", "testdata/demo/draft", "other"} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"nkey.yaml": "nats: {nkey: no.nk}\n", "both.yaml": "nats: {credentials: rows.jsonl, nkey: rows.jsonl}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"rows.jsonl", "prompt.txt"} {
		if err := os.WriteFile(file, []byte("Q: {{.q}}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestValidateSubmit(t *testing.T) {
	tests := []struct {
		name, args, want string // want is "" where all is well
	}{
		{"defaults", "--dataset rows.jsonl", ""},
		{"no dataset", "", "dataset: want a dataset; name a file with --dataset"},
		{"missing dataset", "--dataset no.parquet", "dataset: cannot read no.parquet: no such file or directory; name a file that is there (--dataset)"},
		{"dataset is a folder", "--dataset other", "dataset: cannot read other: it is a folder; name a file that is there (--dataset)"},
		{"dataset is a pipe", "--dataset pipe", "dataset: cannot read pipe: it is a pipe or a device, not a file; name a file that is there (--dataset)"},
		{"dataset is a device", "--dataset /dev/zero", "dataset: cannot read /dev/zero: it is a pipe or a device, not a file; name a file that is there (--dataset)"},
		{"template is a pipe", "--dataset rows.jsonl --template @pipe", "template: cannot read pipe: it is a pipe or a device, not a file; name a file after '@' (--template)"},
		{"missing target", "--dataset rows.jsonl --target no --draft other", "target: cannot read no: no such file or directory; name a model with --target (--target)"},
		{"target is a file", "--dataset rows.jsonl --target rows.jsonl --draft other", "target: cannot read rows.jsonl: it is neither a folder nor a .gguf file; name a model with --target (--target)"},
		{"missing draft", "--dataset rows.jsonl --target other --draft no", "draft: cannot read no: no such file or directory; name a model with --draft (--draft)"},
		{"target alone", "--dataset rows.jsonl --target other", "draft: want a draft model for mode both; name its folder with --draft, or use --mode ars"},
		{"target alone for ars", "--dataset rows.jsonl --target other --mode ars", ""},
		{"out is a file", "--dataset rows.jsonl --out rows.jsonl", "out: rows.jsonl is no folder; name another one with --out (--out)"},
		{"missing library", "--dataset rows.jsonl --ort-library no.so", "ort.library: cannot read no.so: no such file or directory; name a file that is there (--ort-library)"},
		{"template file", "--dataset rows.jsonl --template @prompt.txt", ""},
		{"missing template file", "--dataset rows.jsonl --template @no.txt", "template: cannot read no.txt: no such file or directory; name a file after '@' (--template)"},
		{"broken template", "--dataset rows.jsonl --template {{.q", "template: template:1: unclosed action (--template)"},
		{"NaN", "--dataset rows.jsonl --temperature NaN", "sampling.temperature: want 0 (greedy) or more, got NaN (--temperature)"},
		{"detach", "--dataset rows.jsonl --detach --nats nats://h:4222", ""},
		{"bare host", "--dataset rows.jsonl --nats h:4222", ""},
		{"empty server", "--dataset rows.jsonl --nats h:4222,", `nats.url: want a URL such as nats://host:4222, got "" (--nats)`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			site(t)
			err := mustLoad(t, SubmitFlags, strings.Fields(test.args)...).ValidateSubmit()
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantUsage(t, err, test.want)
		})
	}
}

func TestValidateWorker(t *testing.T) {
	tests := []struct {
		name, args, want string
	}{
		{"defaults", "--nats nats://h", ""},
		{"no server", "", "nats.url: want a NATS server; name it with --nats"},
		{"target alone", "--nats nats://h --target other", ""},
		{"draft alone", "--nats nats://h --draft other", "target: want a target model beside the draft; name its folder with --target"},
		{"missing draft", "--nats nats://h --target other --draft no", "draft: cannot read no: no such file or directory; name a model with --draft (--draft)"},
		{"device", "--nats nats://h --device cuda:x", `ort.device: want cpu, cuda, cuda:N or webgpu, got "cuda:x" (--device)`},
		{"metrics", "--nats nats://h --metrics :9464", ""},
		{"missing seed", "--nats nats://h --config nkey.yaml", "nats.nkey: cannot read no.nk: no such file or directory; name a file that is there (nkey.yaml:1)"},
		{"two identities", "--nats nats://h --config both.yaml", "nats.nkey: want nats.credentials or nats.nkey, not both (both.yaml:1)"},
		{"log level", "--nats nats://h --log-level loud", `log.level: want one of debug, info, warn, error, got "loud" (--log-level)`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			site(t)
			err := mustLoad(t, WorkerFlags, strings.Fields(test.args)...).ValidateWorker()
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantUsage(t, err, test.want)
		})
	}
}

func TestTemplateText(t *testing.T) {
	site(t)
	for value, want := range map[string]string{"": "", "A {{.b}}": "A {{.b}}", "@prompt.txt": "Q: {{.q}}", `{{"@"}}x`: `{{"@"}}x`} {
		got, err := Config{Template: value}.TemplateText()
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", value, got, err, want)
		}
	}
}

func TestModes(t *testing.T) {
	for mode, want := range map[string]string{ModeArS: "ars", ModeSpS: "sps", ModeBoth: "ars,sps"} {
		c := Config{Mode: mode}
		if got := strings.Join(c.Modes(), ","); got != want || c.NeedsDraft() != (mode != ModeArS) {
			t.Errorf("%s: got %s, needs draft %v", mode, got, c.NeedsDraft())
		}
	}
}

func TestRelativePathsMeanTheCurrentFolder(t *testing.T) {
	dir := site(t)
	if err := os.WriteFile(filepath.Join(dir, "other", "c.yaml"), []byte("dataset: rows.jsonl\ntemplate: '@prompt.txt'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := mustLoad(t, SubmitFlags, "--config", "other/c.yaml").ValidateSubmit(); err != nil {
		t.Error(err)
	}
}
