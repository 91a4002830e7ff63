package eval

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/storage"
)

// files are the same completions of three rows in each format: the first row has
// two samples, the second one that fails, the third none.
func files(t *testing.T, data []storage.Row) map[string]string {
	t.Helper()
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	id := func(i int) string { return text(data[i].ID) }
	right, wrong := data[0].Fields["canonical_solution"], "    return None\n"
	prompt := func(i int, body string) string { return text(data[i].Fields["prompt"] + body) }
	fence := func(i int, body string) string {
		return text("Here it is:\n```python\n" + data[i].Fields["prompt"] + body + "```\nThat is all.")
	}
	return map[string]string{
		HumanEvalJSONL: `{"task_id": ` + id(0) + `, "completion": ` + text(right) + `}
{"task_id": ` + id(1) + `, "completion": ` + text(wrong) + `}

{"task_id": ` + id(0) + `, "completion": ` + text(wrong) + `, "passed": true}
`,
		EvalPlusJSONL: `{"task_id": ` + id(0) + `, "solution": ` + prompt(0, right) + `}
{"task_id": ` + id(0) + `, "solution": ` + prompt(0, wrong) + `}
{"task_id": ` + id(1) + `, "solution": ` + prompt(1, wrong) + `}`,
		BigCodeJSON: "[[" + prompt(0, right) + ", " + prompt(0, wrong) + "],\n[" + prompt(1, wrong) + "], []]",
		OpenAIJSONL: `{"id": "b1", "custom_id": ` + id(1) + `, "response": {"status_code": 200, "request_id": "r", "body": {"choices": [{"index": 0, "message": {"role": "assistant", "content": ` + fence(1, wrong) + `}, "finish_reason": "length"}], "usage": {"total_tokens": 9}}}, "error": null}
{"id": "b2", "custom_id": ` + id(0) + `, "response": {"status_code": 200, "body": {"choices": [{"index": 1, "message": {"content": ` + fence(0, wrong) + `}, "finish_reason": "stop"}, {"index": 0, "message": {"content": ` + fence(0, right) + `}, "finish_reason": "stop"}]}}, "error": null}`,
		LMEvalJSONL: `{"doc_id": 0, "doc": {"task_id": ` + id(0) + `}, "target": "t", "arguments": [["p", {}]], "resps": [[` + text(right) + `, ` + text(wrong) + `]], "filtered_resps": [["x"]], "filter": "first", "pass@1": 1.0}
{"doc_id": 0, "doc": {"task_id": ` + id(0) + `}, "resps": [["y"]], "filtered_resps": ["y"], "filter": "second"}
{"doc_id": 1, "doc": {}, "resps": [[` + text(wrong) + `]], "filtered_resps": [["x"]], "filter": "first"}`,
		LMEvalFiltered: `{"doc_id": 0, "doc": {}, "resps": [["?"]], "filtered_resps": [` + text(right) + `, ` + text(wrong) + `], "filter": "none"}
{"doc_id": 1, "doc": {}, "resps": [["?"]], "filtered_resps": [` + text(wrong) + `], "filter": "none"}`,
	}
}

// given makes a job of a file.
func given(t *testing.T, data []storage.Row, file, format string) *storage.Job {
	t.Helper()
	all, found, err := ReadGiven([]byte(file), format, "task_id")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := GivenSpec("theirs", GivenDataset{Name: "minieval"}, Source{File: "f", Format: found})
	if err != nil {
		t.Fatal(err)
	}
	job, err := storage.CreateJob(t.TempDir(), "theirs", spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := Import(t.Context(), job, &list{data}, all); err != nil {
		t.Fatal(err)
	}
	return job
}

// TestScoreGiven: completions of another system score alike in every format, in
// which they are recognized.
func TestScoreGiven(t *testing.T) {
	data := rows(t, minieval)[:3]
	for format, file := range files(t, data) {
		t.Run(format, func(t *testing.T) {
			asked := ""
			if format == LMEvalFiltered { // is not told from the other
				asked = format
			}
			all, found, err := ReadGiven([]byte(file), asked, "task_id")
			if err != nil || found != format || len(all) != 3 {
				t.Fatalf("read as %s: %+v, %v", found, all, err)
			}
			job := given(t, data, file, asked)
			if !job.Done() {
				t.Error("the job is not complete")
			}
			sum, err := Score(t.Context(), job, &list{data}, Options{Workers: 2})
			needSandbox(t, err)
			m := sum.Modes[GivenMode]
			if m == nil || m.Samples != 3 || m.Rows != 2 || !sum.Complete || sum.Rows != 3 {
				t.Fatalf("%+v, %+v", sum, m)
			}
			if m.Reasons["passed"] != 1 || m.Reasons["failed"]+m.Reasons["error"] != 2 || math.Abs(m.Metrics["pass@1"].Mean-0.25) > 1e-12 {
				t.Errorf("%+v", m)
			}
			var table strings.Builder
			if err := sum.Table(&table); err != nil || !strings.Contains(table.String(), "given") || !strings.Contains(table.String(), "pass@1") {
				t.Errorf("%v\n%s", err, table.String())
			}
			var reasons []string
			if err := job.ReadScores(GivenMode, func(s storage.Score) error { reasons = append(reasons, s.RowID+s.Reason); return nil }); err != nil || len(reasons) != 3 || reasons[0] != data[0].ID+"passed" {
				t.Errorf("scores %v, %v", reasons, err)
			}
		})
	}
}

// TestExportIsRead: what is exported reads back as the same completions, in every
// format.
func TestExportIsRead(t *testing.T) {
	data := rows(t, minieval)[:3]
	for i := range data { // the ids of the job below
		data[i].ID = "r" + data[i].ID
	}
	texts := [][]string{{"    return 1\n", "    return \"<&>\"\n"}, {"    return 2\n", ""}, {"    pass\n", "    pass\n"}}
	job := made(t, `{"modes": ["sps"], "samples": 2, "dataset": {}}`, map[string][][]string{"sps": texts})
	for _, format := range Formats[:len(Formats)-1] {
		var b strings.Builder
		if err := Export(&b, job, &list{data}, "sps", format, ""); err != nil {
			t.Fatal(err)
		}
		all, found, err := ReadGiven([]byte(b.String()), "", "task_id")
		if err != nil || found != format {
			t.Errorf("%s: read as %s: %v\n%s", format, found, err, b.String())
			continue
		}
		want := 6
		if format == OpenAIJSONL { // a sample that failed is left out
			want = 5
		}
		if len(all) != want || !strings.HasSuffix(strings.TrimSpace(all[1].Text), `return "<&>"`) || all[0].Error != "" {
			t.Errorf("%s: %+v", format, all)
		}
	}
	nothing := made(t, `{"modes": ["sps"], "samples": 1, "dataset": {}}`, map[string][][]string{"sps": {{""}}})
	var b strings.Builder
	if err := Export(&b, nothing, &list{data}, "sps", OpenAIJSONL, ""); err != nil {
		t.Fatal(err)
	}
	if all, _, err := ReadGiven([]byte(b.String()), "", ""); err != nil || len(all) != 1 || all[0].Error != "the request failed: no prompt" {
		t.Errorf("%+v, %v\n%s", all, err, b.String())
	}
}

// TestGivenRequestsThatFailed: a request without an answer is a completion that
// failed, and scores nothing.
func TestGivenRequestsThatFailed(t *testing.T) {
	all, _, err := ReadGiven([]byte(`{"custom_id": "a", "response": null, "error": {"code": "expired", "message": "too\nlate"}}
{"custom_id": "b", "response": {"status_code": 429, "body": {}}, "error": null}
{"custom_id": "c", "response": {"status_code": 400, "body": {"error": {"message": "bad"}}}, "error": null}
{"custom_id": "d", "response": {"status_code": 200, "body": {"choices": [{"message": {"content": null, "refusal": "no"}, "finish_reason": "stop"}]}}}
{"custom_id": "e", "response": {"status_code": 200, "body": {"choices": []}}}
{"custom_id": "f", "response": {"status_code": 200, "body": {"choices": [{"text": "t", "finish_reason": "length"}]}}}
`), "", "")
	if err != nil || len(all) != 6 {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, want := range []string{"too late", "429", "bad", "no", "no choices", ""} {
		if (all[i].Error == "") != (want == "") || !strings.Contains(all[i].Error, want) {
			t.Errorf("%+v, want %s", all[i], want)
		}
	}
	if last := all[5]; last.Text != "t" || !last.Cut {
		t.Errorf("%+v", last)
	}
	data := []storage.Row{{Index: 0, ID: "a", Fields: map[string]string{"answer": "x"}}, {Index: 1, ID: "f", Fields: map[string]string{"answer": "t"}}}
	job := given(t, data, `{"custom_id": "a", "error": {"message": "m"}}
{"custom_id": "f", "response": {"status_code": 200, "body": {"choices": [{"text": " t\n"}]}}}`, "")
	sum, err := Score(t.Context(), job, &list{data}, Options{})
	if err != nil || sum.Modes[GivenMode].Metrics["exact"].Mean != 0.5 {
		t.Errorf("%+v, %v", sum, err)
	}
}

func TestGivenFilesThatAreNone(t *testing.T) {
	for file, want := range map[string]string{
		"":                                     "is empty",
		"task_id,completion\n":                 "in none of the formats",
		`{"text": "a"}`:                        "in none of the formats",
		`[["a"], "b"]`:                         "a list of lists of texts",
		`{"task_id": "a", "completion": null}`: "line 1 is not one of format humaneval: it has no task_id or no completion",
		"{\"task_id\": \"a\", \"completion\": \"\"}\n{": "line 2 is not one of format humaneval",
		`{"custom_id": "a"}`:                            "neither a response nor an error",
		`{"doc_id": 0, "resps": [[[-1.5, false]]]}`:     "resps are not texts",
		`{"doc": {}, "resps": [["a"]]}`:                 "no doc_id",
		"[]":                                            "",
	} {
		all, _, err := ReadGiven([]byte(file), "", "")
		if want == "" && err == nil && len(all) == 0 {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
	data := []storage.Row{{Index: 0, ID: "a"}, {Index: 1, ID: "b"}, {Index: 2, ID: "b"}}
	for file, want := range map[string]string{
		`{"task_id": "c", "completion": "x"}`: `a completion of "c", which the dataset has not`,
		`{"task_id": "b", "completion": "x"}`: "more than one row",
		`[[], [], [], ["x"]]`:                 "row 3, the dataset has 3 rows",
	} {
		all, _, err := ReadGiven([]byte(file), "", "")
		if err != nil {
			t.Fatal(err)
		}
		job, err := storage.CreateJob(t.TempDir(), "theirs", []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if err := Import(t.Context(), job, &list{data}, all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
}
