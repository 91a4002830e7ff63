package eval

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/draftmill/draftmill/storage"
)

// Export writes a mode's completions, by row and sample, in the format of
// another system. Rows are the job's dataset; those that could not be decoded
// are written as empty completions, so that none is missing.
func Export(w io.Writer, job *storage.Job, rows Rows, mode, format, extract string) error {
	var s spec
	if err := json.Unmarshal(job.Spec(), &s); err != nil {
		return fmt.Errorf("read the specification of job %s: %w", job.Name(), err)
	}
	dataset, err := read(rows, s.Dataset.Limit)
	if err != nil {
		return err
	}
	all, err := completions(job, mode, len(dataset), false)
	if err != nil {
		return err
	}
	if extract == "" {
		extract = s.extract()
	}
	program := func(c *storage.Completion) string {
		f := dataset[c.Row].Fields
		p := Problem{Prompt: f["prompt"], EntryPoint: f["entry_point"]}
		return p.assemble(c.Completion, extract)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	switch format {
	case HumanEvalJSONL, EvalPlusJSONL:
		for i := range all {
			c := &all[i]
			line := map[string]string{"task_id": c.RowID, "completion": c.Completion}
			if format == EvalPlusJSONL {
				line = map[string]string{"task_id": c.RowID, "solution": program(c)}
			}
			if err := enc.Encode(line); err != nil {
				return fmt.Errorf("export job %s: %w", job.Name(), err)
			}
		}
		return nil
	case BigCodeJSON:
		lists := make([][]string, len(dataset))
		for i := range lists {
			lists[i] = []string{}
		}
		for i := range all {
			lists[all[i].Row] = append(lists[all[i].Row], program(&all[i]))
		}
		if err := enc.Encode(lists); err != nil {
			return fmt.Errorf("export job %s: %w", job.Name(), err)
		}
		return nil
	}
	if format != OpenAIJSONL && format != LMEvalJSONL {
		return fmt.Errorf("export job %s: no format %q: want one of %s", job.Name(), format, strings.Join(Formats[:len(Formats)-1], ", "))
	}
	for len(all) > 0 { // a line a row
		n := 1
		for n < len(all) && all[n].Row == all[0].Row {
			n++
		}
		line := openAILine(all[:n])
		if format == LMEvalJSONL {
			line = lmEvalLine(&dataset[all[0].Row], all[:n])
		}
		if err := enc.Encode(line); err != nil {
			return fmt.Errorf("export job %s: %w", job.Name(), err)
		}
		all = all[n:]
	}
	return nil
}

// openAILine is a row's samples as a line of a batch's output. A row of which no
// sample was decoded is a request that failed.
func openAILine(samples []storage.Completion) map[string]any {
	var choices []openAIChoice
	for i := range samples {
		c := &samples[i]
		if c.FinishReason == storage.FinishError {
			continue
		}
		reason := "stop"
		if c.FinishReason == storage.FinishLength {
			reason = "length"
		}
		choices = append(choices, openAIChoice{Index: len(choices), Message: &openAIMessage{Role: "assistant", Content: &c.Completion}, FinishReason: reason})
	}
	line := map[string]any{"id": fmt.Sprintf("row-%d", samples[0].Row), "custom_id": samples[0].RowID, "response": nil, "error": nil}
	if choices == nil {
		line["error"] = openAIError{Code: "not_decoded", Message: samples[0].Error}
	} else {
		line["response"] = map[string]any{"status_code": 200, "body": map[string]any{"object": "chat.completion", "choices": choices}}
	}
	return line
}

// lmEvalLine is a row's samples as a line of lm-evaluation-harness.
func lmEvalLine(row *storage.Row, samples []storage.Completion) map[string]any {
	texts := make([]string, len(samples))
	for i := range samples {
		texts[i] = samples[i].Completion
	}
	target := row.Fields["canonical_solution"]
	if column, err := referenceColumn(row.Fields, ""); err == nil {
		target = row.Fields[column]
	}
	return map[string]any{
		"doc_id": row.Index, "doc": row.Fields, "target": target, "filter": "none",
		"resps": [][]string{texts}, "filtered_resps": [][]string{texts},
	}
}
