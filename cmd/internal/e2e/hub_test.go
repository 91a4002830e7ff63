package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"

	"github.com/draftmill/draftmill/storage"
	"github.com/draftmill/draftmill/storage/hub/hubtest"
)

// hubs serves tiny checkpoints and the demo's problems as the Hub would, to the
// programs that the test starts.
func hubs(t *testing.T) *hubtest.Server {
	t.Helper()
	s := hubtest.New(t)
	folder := filepath.Join(root, checkpoints)
	s.AddFolder(t, "models/acme/tiny", filepath.Join(folder, "llama")).Files["README.md"] = []byte("not needed")
	s.AddFolder(t, "models/acme/tiny-GGUF", filepath.Join(folder, "gguf"))
	delete(s.AddFolder(t, "models/acme/tiny-parts", filepath.Join(folder, "gguf", "parts")).Files, "llama-00003-of-00003.gguf")
	s.AddFolder(t, "models/acme/demo-onnx", filepath.Join(root, "testdata/demo/target"))
	s.Add("models/acme/gated", s.Repos["models/acme/tiny"].Files).Gated = true
	data, err := os.ReadFile(filepath.Join(root, "testdata/demo/minieval.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	s.Add("datasets/acme/problems", map[string][]byte{"data/test-00000-of-00001.parquet": data, "README.md": []byte("not needed")}, "data/test-00000-of-00001.parquet")
	s.Add("datasets/acme/parts", halves(t, "testdata/demo/minieval.parquet"))
	s.Add("datasets/acme/splits", map[string][]byte{"train.parquet": data, "test.parquet": data})
	t.Setenv("DRAFTMILL_ORT_LIBRARY", strings.TrimSpace(run(t, "submit", "setup").stdout.String()))
	t.Setenv("HF_ENDPOINT", s.URL)
	for _, unset := range []string{"HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		t.Setenv(unset, "")
	}
	caches(t)
	return s
}

// caches gives the programs that are started next caches of their own.
func caches(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HF_HOME", t.TempDir())
}

// TestFromTheHub: target, draft and dataset by their names on the Hub. Only what
// is needed is fetched, through a transfer that breaks off; the job names the
// commits; a worker elsewhere fetches them by those names; offline the same
// command needs no server; and the completions are those of the same files here.
func TestFromTheHub(t *testing.T) {
	s := hubs(t)
	s.Break = 40_000
	out := t.TempDir()
	job := func(name, target, draft, dataset string, more ...string) *program {
		return command("submit", append([]string{"--dataset", dataset, "--target", target, "--draft", draft, "--limit", "4", "--shard-rows", "2",
			"--template", "{{.task_id}}",
			"--temperature", "0.8", "--seed", "5", "--max-new-tokens", "16", "--k", "3", "--job", name, "--out", out}, more...)...)
	}
	target, draft, dataset := "hf:acme/tiny", "hf:acme/tiny-GGUF/llama-q4_0.gguf", "hf:acme/problems"
	done := func(p *program) {
		t.Helper()
		if code := p.start(t).code(t); code != 0 {
			t.Fatalf("exits with %d:\n%s", code, &p.stderr)
		}
	}
	done(job("first", target, draft, dataset))
	resumed := false
	for _, line := range s.Requests() {
		if strings.Contains(line, "README") || strings.Contains(line, "q8_0") {
			t.Errorf("fetched what is not needed: %s", line)
		}
		resumed = resumed || strings.HasSuffix(line, "bytes=40000-")
	}
	if !resumed {
		t.Error("no transfer was gone on with")
	}
	done(job("files", checkpoints+"llama", checkpoints+"gguf/llama-q4_0.gguf", "testdata/demo/minieval.parquet"))
	want := tokens(t, filepath.Join(out, "files"))
	same(t, tokens(t, filepath.Join(out, "first")), want)

	folder, err := storage.OpenJob(filepath.Join(out, "first"))
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Target, Draft, Dataset struct{ Name, Source string }
	}
	if err := json.Unmarshal(folder.Spec(), &spec); err != nil {
		t.Fatal(err)
	}
	for got, key := range map[string]string{spec.Target.Source: "models/acme/tiny", spec.Draft.Source: "models/acme/tiny-GGUF", spec.Dataset.Source: "datasets/acme/problems"} {
		if !strings.HasSuffix(got, "@"+s.Repos[key].Commit) {
			t.Errorf("the job names %q, the commit is %s", got, s.Repos[key].Commit)
		}
	}
	if !strings.HasPrefix(spec.Target.Name, "tiny") || spec.Dataset.Name != "problems" {
		t.Errorf("names %+v", spec)
	}

	// Another machine: a worker with empty caches of its own, and a revision given.
	url, _ := serve(t, t.TempDir(), "127.0.0.1:0")
	before := os.Getenv("HF_HOME")
	cached := os.Getenv("XDG_CACHE_HOME")
	caches(t)
	worker := command("worker", "--nats", url, "--threads", "1").start(t)
	t.Setenv("HF_HOME", before)
	t.Setenv("XDG_CACHE_HOME", cached)
	done(job("elsewhere", target+"@"+s.Repos["models/acme/tiny"].Commit, draft, dataset, "--nats", url))
	worker.signal(t, syscall.SIGTERM)
	if code := worker.code(t); code != 0 {
		t.Errorf("the worker exits with %d:\n%s", code, &worker.stderr)
	}
	same(t, tokens(t, filepath.Join(out, "elsewhere")), want)

	t.Setenv("HF_HUB_OFFLINE", "1")
	s.Requests()
	done(job("offline", target, draft, dataset))
	if got := s.Requests(); len(got) > 0 {
		t.Errorf("offline, and asked for %q", got)
	}
	same(t, tokens(t, filepath.Join(out, "offline")), want)
}

// TestDatasetOfSeveralFiles: the files of a series on the Hub are one dataset,
// which is fetched again when its copy is gone.
func TestDatasetOfSeveralFiles(t *testing.T) {
	s := hubs(t)
	out := t.TempDir()
	job := func(name, dataset string) *storage.Job {
		t.Helper()
		run(t, "submit", "--dataset", dataset, "--target", "testdata/demo/target", "--mode", "ars", "--max-new-tokens", "8", "--temperature", "0", "--job", name, "--out", out)
		folder, err := storage.OpenJob(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		return folder
	}
	job("one", "testdata/demo/minieval.parquet")
	for _, name := range []string{"hf:acme/parts", "hf:acme/parts/data/test-*.parquet"} {
		s.Requests()
		folder := job("parts", name)
		same(t, tokens(t, filepath.Join(out, "parts")), tokens(t, filepath.Join(out, "one")))
		if !bytes.Contains(folder.Spec(), []byte(`"hf:acme/parts/data/test-*`)) || !bytes.Contains(folder.Spec(), []byte("@"+s.Repos["datasets/acme/parts"].Commit)) {
			t.Errorf("the job does not say which dataset it is: %s", folder.Spec())
		}
		if err := os.RemoveAll(filepath.Join(out, "parts")); err != nil {
			t.Fatal(err)
		}
	}
	job("parts", "hf:acme/parts")
	export := func(more ...string) string {
		return run(t, "submit", append([]string{"export", "parts", "--out", out, "--mode", "ars", "--format", "openai"}, more...)...).stdout.String()
	}
	want := export()
	if given := export("--dataset", "hf:acme/parts"); given != want || want == "" {
		t.Errorf("with the dataset named:\n%s\nwant\n%s", given, want)
	}
	if err := os.RemoveAll(os.Getenv("HF_HOME")); err != nil {
		t.Fatal(err)
	}
	if again := export(); again != want {
		t.Errorf("fetched again:\n%s", again)
	}
}

// TestScoreFromTheHub: a job of a dataset on the Hub is scored, reported, verified
// and checked, with the dataset named, or fetched again under the name that the job
// has for it. What cannot be had is one line.
func TestScoreFromTheHub(t *testing.T) {
	s := hubs(t)
	s.Add("datasets/acme/closed", s.Repos["datasets/acme/problems"].Files).Gated = true
	out := t.TempDir()
	target := "hf:acme/demo-onnx"
	run(t, "submit", "--dataset", "hf:acme/problems", "--target", target, "--mode", "ars", "--limit", "4", "--temperature", "0", "--job", "hub", "--out", out)
	run(t, "submit", "--dataset", "testdata/demo/minieval.parquet", "--target", "testdata/demo/target", "--mode", "ars", "--limit", "4", "--temperature", "0", "--job", "here", "--out", out)
	score := func(job string, more ...string) string {
		t.Helper()
		said := run(t, "submit", append([]string{"score", job, "--out", out}, more...)...).stdout.String()
		_, table, _ := strings.Cut(said, "\n\n") // behind the job's name and times
		table, _, _ = strings.Cut(table, "written to")
		return table
	}
	want := score("here")
	if got := score("hub", "--dataset", "hf:acme/problems"); got != want || !strings.Contains(got, "pass@1") {
		t.Errorf("with the dataset named:\n%s\nwant\n%s", got, want)
	}
	if err := os.RemoveAll(os.Getenv("HF_HOME")); err != nil {
		t.Fatal(err)
	}
	if got := score("hub"); got != want {
		t.Errorf("fetched again:\n%s\nwant\n%s", got, want)
	}
	if said := run(t, "submit", "verify", "hub", "--out", out, "--models").stdout.String(); !strings.Contains(said, "4 ") {
		t.Errorf("verify says\n%s", said)
	}
	for _, args := range [][]string{{"report", "hub", "here"}, {"fsck", "hub"}, {"export", "hub", "--mode", "ars"}} {
		run(t, "submit", append(args, "--out", out)...)
	}
	for name, want := range map[string]string{
		"hf:acme/none":   "dataset hf:acme/none: there is no such repository, or it is private",
		"hf:acme/closed": "its owner asks for an agreement first: accept it at " + s.URL + "/datasets/acme/closed",
		"hf:acme/splits/train.parquet@" + s.Repos["datasets/acme/problems"].Commit: "the repository has no such revision",
	} {
		for _, args := range [][]string{{"score", "hub", "--out", out, "--dataset", name}, {"export", "hub", "--out", out, "--mode", "ars", "--format", "openai", "--dataset", name}, {"--dataset", name, "--target", target, "--mode", "ars", "--out", out}} {
			p := command("submit", args...).start(t)
			if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), want) || strings.Count(p.stderr.String(), "\n") != 1 {
				t.Errorf("%q exits with %d and says\n%s", args, code, &p.stderr)
			}
		}
	}
}

// halves are the rows of a Parquet file in two Parquet files.
func halves(t *testing.T, from string) map[string][]byte {
	t.Helper()
	d, err := storage.OpenDataset(filepath.Join(root, from), storage.Columns{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	files := map[string][]byte{}
	var fields []arrow.Field
	for _, name := range d.Info().All {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.BinaryTypes.String})
	}
	for i, rows := range []int64{5, d.Info().Rows - 5} {
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
		for range rows {
			row, err := d.Next()
			if err != nil {
				t.Fatal(err)
			}
			for c, name := range d.Info().All {
				b.Field(c).(*array.StringBuilder).Append(row.Fields[name])
			}
		}
		record := b.NewRecord()
		var file bytes.Buffer
		w, err := pqarrow.NewFileWriter(record.Schema(), &file, nil, pqarrow.DefaultWriterProps())
		if err == nil {
			err = errors.Join(w.Write(record), w.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		record.Release()
		b.Release()
		files[fmt.Sprintf("data/test-%05d-of-00002.parquet", i)] = file.Bytes()
	}
	return files
}

// TestInspectAndImportFromTheHub: the commands that take one model take one of the
// Hub, an ONNX folder with its data included; what is wrong is one line.
func TestInspectAndImportFromTheHub(t *testing.T) {
	s := hubs(t)
	if said := run(t, "submit", "inspect", "hf:acme/demo-onnx", "--draft", "hf:acme/demo-onnx@main").stdout.String(); !strings.Contains(said, "gqa") {
		t.Errorf("inspect says\n%s", said)
	}
	dst := filepath.Join(t.TempDir(), "model")
	if said := run(t, "submit", "import", "hf:acme/tiny-GGUF/llama-q8_0.gguf", dst).stdout.String(); !strings.Contains(said, "of Q8_0") {
		t.Errorf("import says\n%s", said)
	}
	if said := run(t, "submit", "import", "hf:acme/tiny-GGUF/parts/llama-00001-of-00003.gguf", dst+"-parts").stdout.String(); !strings.Contains(said, "of Q4_0") {
		t.Errorf("import of three files says\n%s", said)
	}
	run(t, "submit", "--dataset", "hf:acme/problems/data", "--limit", "2", "--target", "hf:acme/demo-onnx", "--draft", "testdata/demo/draft", "--max-new-tokens", "8", "--out", t.TempDir())
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"inspect", "hf:acme/none"}, 1, "model hf:acme/none: there is no such repository, or it is private"},
		{[]string{"inspect", "hf:acme/gated"}, 1, "its owner asks for an agreement first: accept it at " + s.URL + "/acme/gated"},
		{[]string{"inspect", "hf:acme/tiny-GGUF"}, 1, "name one of them behind a slash: gemma2.gguf"},
		{[]string{"inspect", "hf:acme/tiny-GGUF/none.gguf"}, 1, "the repository has no such file"},
		{[]string{"inspect", "hf:acme/tiny-GGUF/parts/llama-00002-of-00003.gguf"}, 1, "part 2 of 3 of a model; name its first part, llama-00001-of-00003.gguf"},
		{[]string{"inspect", "hf:acme/tiny-parts/llama-00001-of-00003.gguf"}, 1, "llama-00003-of-00003.gguf@"},
		{[]string{"inspect", "hf:acme/tiny-parts"}, 1, "name one of them behind a slash: llama-00001-of-00003.gguf, metadata-00001-of-00004.gguf\n"},
		{[]string{"inspect", "hf:acme"}, 2, "want hf:OWNER/REPO"},
		{[]string{"import", "hf:acme/tiny@v2", dst + "2"}, 1, "the repository has no such revision"},
		{[]string{"--dataset", "hf:acme/splits"}, 1, "it has 2 Parquet datasets; name one of them behind a slash: test.parquet, train.parquet"},
		{[]string{"--dataset", "hf:acme/none", "--target", "hf:acme/tiny", "--mode", "ars"}, 1, "dataset hf:acme/none: there is no such repository"},
	} {
		p := command("submit", c.args...).start(t)
		if code := p.code(t); code != c.code || !strings.Contains(p.stderr.String(), c.want) || strings.Count(p.stderr.String(), "\n") != 1 {
			t.Errorf("%q exits with %d and says\n%s", c.args, code, &p.stderr)
		}
	}
	s.Lock()
	s.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	s.Unlock()
	caches(t)
	p := command("submit", "inspect", "hf:acme/tiny").start(t)
	if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), "too many requests") {
		t.Errorf("exits with %d:\n%s", code, &p.stderr)
	}
}
