package eval

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline/eval/sandbox"
	"github.com/draftmill/draftmill/storage"
)

const minieval = "../../testdata/demo/minieval.parquet"

// rows reads a dataset to its end.
func rows(t *testing.T, path string) []storage.Row {
	t.Helper()
	d, err := storage.OpenDataset(path, storage.Columns{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	all, err := read(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// list is a dataset in memory.
type list struct{ rows []storage.Row }

func (l *list) Next() (storage.Row, error) {
	if len(l.rows) == 0 {
		return storage.Row{}, io.EOF
	}
	row := l.rows[0]
	l.rows = l.rows[1:]
	return row, nil
}

// made is a job with these texts, by mode, row and sample. A shard has one row.
// An empty text is a completion that failed.
func made(t *testing.T, spec string, texts map[string][][]string) *storage.Job {
	t.Helper()
	job, err := storage.CreateJob(t.TempDir(), "job", []byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	for mode, rows := range texts {
		for row, samples := range rows {
			w, err := job.NewShardWriter(mode, row)
			if err != nil {
				t.Fatal(err)
			}
			for sample, text := range samples {
				c := storage.Completion{Job: "job", Row: int64(row), RowID: "r", Sample: int32(sample), Completion: text, FinishReason: storage.FinishEOS}
				if text == "" {
					c.FinishReason, c.Error = storage.FinishError, "no prompt"
				}
				if err := w.AddCompletion(c); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return job
}

func needSandbox(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, sandbox.ErrNoSandbox) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestScorePrograms(t *testing.T) {
	defer func(d time.Duration) { leastWall = d }(leastWall)
	leastWall = time.Second
	data := rows(t, minieval)[:6]
	right := func(i int) string { return data[i].Fields["canonical_solution"] }
	const wrong, hangs, raises = "    return None\n", "    while True: pass\n", "    return 1 / 0\n"
	job := made(t, `{"modes": ["ars", "sps"], "samples": 2, "seed": 5, "dataset": {"limit": 6}}`, map[string][][]string{
		"ars": {{right(0), right(0)}, {right(1), wrong}, {wrong, wrong}, {right(3), right(3)}, {right(4), raises}, {"", right(5)}},
		"sps": {{wrong, right(0)}, {right(1), hangs}, {raises, wrong}},
	})
	for range 2 { // again and again
		sum, err := Score(t.Context(), job, &list{data}, Options{Workers: 2})
		needSandbox(t, err)
		if sum.Canonical.Passed != 6 || sum.Complete || sum.Kind != Programs {
			t.Errorf("%+v", sum)
		}
		ars, sps := sum.Modes["ars"], sum.Modes["sps"]
		if ars.Samples != 12 || sps.Samples != 6 || sps.Rows != 3 {
			t.Errorf("ars %+v, sps %+v", ars, sps)
		}
		if got, want := ars.Metrics["pass@1"].Mean, (1+0.5+0+1+0.5+0.5)/6; math.Abs(got-want) > 1e-12 {
			t.Errorf("pass@1 %v, want %v", got, want)
		}
		for reason, want := range map[string]int{"passed": 7, "failed": 3, "error": 1, "none": 1} {
			if ars.Reasons[reason] != want {
				t.Errorf("%s %d, want %d", reason, ars.Reasons[reason], want)
			}
		}
		if sps.Reasons["timeout"] != 1 {
			t.Errorf("sps %v", sps.Reasons)
		}
	}
	var read []storage.Score
	if err := job.ReadScores("ars", func(s storage.Score) error { read = append(read, s); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(read) != 12 || read[2].Row != 1 || read[3].Sample != 1 || read[3].Reason != "failed" || read[8].Score != 1 || !strings.HasPrefix(read[9].Detail, "ZeroDivisionError") {
		t.Errorf("%+v", read)
	}
	data2, err := job.ScoreSummary()
	var back Summary
	if err != nil || json.Unmarshal(data2, &back) != nil || back.Modes["ars"].Metrics["pass@1"].Rows != 6 {
		t.Errorf("summary %s, %v", data2, err)
	}
}

// TestUnfitMachine: a canonical solution that fails ends scoring.
func TestUnfitMachine(t *testing.T) {
	data := rows(t, minieval)[:2]
	data[1].Fields["canonical_solution"] = "    return None\n"
	job := made(t, `{"modes": ["ars"], "samples": 1, "dataset": {}}`, map[string][][]string{"ars": {{"x"}}})
	_, err := Score(t.Context(), job, &list{data}, Options{Workers: 2})
	if errors.Is(err, sandbox.ErrNoSandbox) {
		needSandbox(t, err)
	}
	if err == nil || !strings.Contains(err.Error(), "1 of the dataset's 2 canonical solutions pass") {
		t.Errorf("error %v", err)
	}
}

// TestCanonicalSolutions runs every canonical solution of the demo's dataset,
// or of the file in HumanEval's form that DRAFTMILL_HUMANEVAL names.
func TestCanonicalSolutions(t *testing.T) {
	path := minieval
	if file := os.Getenv("DRAFTMILL_HUMANEVAL"); file != "" {
		path = file
	}
	data := rows(t, path)
	job := made(t, `{"modes": ["ars"], "samples": 1, "dataset": {}}`, map[string][][]string{"ars": {{"    pass\n"}}})
	sum, err := Score(t.Context(), job, &list{data}, Options{Workers: 2})
	needSandbox(t, err)
	t.Logf("%d of %d pass, %.1f s, %s", sum.Canonical.Passed, sum.Canonical.Of, sum.Canonical.Seconds, sum.Sandbox)
	if sum.Canonical.Of != len(data) {
		t.Errorf("%d of %d rows have a canonical solution", sum.Canonical.Of, len(data))
	}
}

func TestScoreTexts(t *testing.T) {
	data := []storage.Row{
		{Index: 0, Fields: map[string]string{"document": "d", "summary": "the cat sat"}},
		{Index: 1, Fields: map[string]string{"document": "e", "summary": "dogs bark"}},
	}
	job := made(t, `{"modes": ["ars"], "samples": 1, "dataset": {}}`, map[string][][]string{"ars": {{" the cat sat\n"}, {"a dog barks"}}})
	for _, stem := range []bool{false, true} {
		sum, err := Score(t.Context(), job, &list{data}, Options{Stem: stem})
		if err != nil {
			t.Fatal(err)
		}
		m := sum.Modes["ars"].Metrics
		second := 0.0 // "dogs" and "bark" are met by their stems alone, and "dogs" is four letters
		if stem {
			second = 0.8
		}
		if m["exact"].Mean != 0.5 || m["rouge1"].Mean != (1+second)/2 || sum.Reference != "summary" {
			t.Errorf("stem %v: %+v", stem, m)
		}
	}
	if _, err := Score(t.Context(), job, &list{data}, Options{Reference: "gist"}); err == nil || !strings.Contains(err.Error(), `"gist"`) {
		t.Errorf("error %v", err)
	}
	if _, err := Score(t.Context(), job, &list{data[:1]}, Options{}); err == nil || !strings.Contains(err.Error(), "row 1") {
		t.Errorf("a job of another dataset: error %v", err)
	}
}

func TestAssemble(t *testing.T) {
	p := Problem{Prompt: "import math\n\n\ndef half(x):\n    return x / 2\n\n\ndef f(x):\n    \"\"\"Doubles.\"\"\"\n", EntryPoint: "f"}
	const head = "import math\n\n\ndef half(x):\n    return x / 2\n\n\n"
	const whole = "def f(x):\n    return 2 * x\n"
	for name, c := range map[string]struct{ completion, extract, want string }{
		"as it is":           {"    return 2 * x", ExtractNone, p.Prompt + "    return 2 * x\n"},
		"fence is code":      {"    return 1\n```\n", ExtractNone, p.Prompt + "    return 1\n```\n\n"},
		"fenced function":    {"Sure:\n```python\n" + whole + "```\nIt doubles.", ExtractFenced, head + "\n" + whole + "\n"},
		"function in second": {"```\nf(2)\n```\nand\n```py\n" + whole + "```", ExtractFenced, head + "\n" + whole + "\n"},
		"cut off":            {"```python\ndef f(x):\n    return", ExtractFenced, head + "\ndef f(x):\n    return\n"},
		"body alone":         {"```python\n    return 2 * x\n```", ExtractFenced, p.Prompt + "    return 2 * x\n\n"},
		"no fence":           {"    return 2 * x\n", ExtractFenced, p.Prompt + "    return 2 * x\n\n"},
		"another function":   {"```\ndef ff(x):\n    return 1\n```", ExtractFenced, p.Prompt + "def ff(x):\n    return 1\n\n"},
	} {
		if got := p.assemble(c.completion, c.extract); got != c.want {
			t.Errorf("%s:\n%q\nwant\n%q", name, got, c.want)
		}
	}
}

func TestInterrupted(t *testing.T) {
	data := rows(t, minieval)[:4]
	job := made(t, `{"modes": ["ars"], "samples": 1, "dataset": {}}`, map[string][][]string{"ars": {{"    pass\n"}}})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Score(ctx, job, &list{data}, Options{Workers: 1, Progress: func(string, int, int) { cancel() }})
	if errors.Is(err, sandbox.ErrNoSandbox) {
		needSandbox(t, err)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if found, _ := filepath.Glob(filepath.Join(job.Dir(), "scores", "*")); len(found) > 0 {
		t.Errorf("written all the same: %v", found)
	}
}

// TestExport: completions as other systems read them, by row and sample.
func TestExport(t *testing.T) {
	data := rows(t, minieval)[:3]
	job := made(t, `{"modes": ["ars"], "samples": 2, "dataset": {"limit": 3}}`, map[string][][]string{
		"ars": {{"    return 1\n", "    return 2\n"}, {"    return \"<&>\"\n", ""}},
	})
	var b strings.Builder
	if err := Export(&b, job, &list{data}, "ars", HumanEvalJSONL, ""); err != nil {
		t.Fatal(err)
	}
	want := `{"completion":"    return 1\n","task_id":"r"}
{"completion":"    return 2\n","task_id":"r"}
{"completion":"    return \"<&>\"\n","task_id":"r"}
{"completion":"","task_id":"r"}
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
	b.Reset()
	if err := Export(&b, job, &list{data}, "ars", BigCodeJSON, ""); err != nil {
		t.Fatal(err)
	}
	var lists [][]string
	if err := json.Unmarshal([]byte(b.String()), &lists); err != nil || len(lists) != 3 || len(lists[0]) != 2 || len(lists[2]) != 0 {
		t.Fatalf("%v, %v", lists, err)
	}
	if want := data[1].Fields["prompt"] + "    return \"<&>\"\n\n"; lists[1][0] != want {
		t.Errorf("program %q", lists[1][0])
	}
	if err := Export(io.Discard, job, &list{data}, "ars", "xml", ""); err == nil {
		t.Error("xml was written")
	}
}
