package eval

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/draftmill/draftmill/storage"
)

// GivenMode is the mode of completions that another system made. A job has no
// other beside it, and no log.
const GivenMode = "given"

// Source says in a job's specification where its completions come from.
type Source struct {
	File    string `json:"file"`   // base name
	SHA256  string `json:"sha256"` // of the file
	Format  string `json:"format"`
	Extract string `json:"extract"` // how programs are taken from them
}

// GivenDataset is what such a specification has of the dataset.
type GivenDataset struct {
	Name         string `json:"name"`
	SHA256       string `json:"sha256"`
	PromptColumn string `json:"prompt_column"`
	IDColumn     string `json:"id_column,omitempty"`
}

// GivenSpec is the specification of a job of given completions.
func GivenSpec(name string, dataset GivenDataset, from Source) ([]byte, error) {
	from.Extract = extractOf(from.Format)
	data, err := json.Marshal(struct {
		Name    string       `json:"name"`
		Dataset GivenDataset `json:"dataset"`
		Modes   []string     `json:"modes"`
		Given   Source       `json:"given"`
	}{name, dataset, []string{GivenMode}, from})
	if err != nil {
		return nil, fmt.Errorf("specify job %s: %w", name, err)
	}
	return data, nil
}

// Import writes given completions into a job's folder and completes the job. The
// samples of a row are numbered in the order of all. Rows without a completion
// stay without; one of a row that the dataset does not have is an error.
func Import(ctx context.Context, job *storage.Job, rows Rows, all []Given) error {
	dataset, err := read(rows, 0)
	if err != nil {
		return err
	}
	byID := map[string]int64{}
	for _, row := range dataset {
		if _, twice := byID[row.ID]; twice {
			byID[row.ID] = -1
		} else {
			byID[row.ID] = row.Index
		}
	}
	samples := map[int64]int32{}
	completions := make([]storage.Completion, 0, len(all))
	for _, g := range all {
		row := g.Row
		if g.ID != "" {
			var there bool
			if row, there = byID[g.ID]; !there {
				return fmt.Errorf("line %d has a completion of %q, which the dataset has not among its ids: %q and so on", g.line, g.ID, dataset[0].ID)
			}
			if row < 0 {
				return fmt.Errorf("line %d has a completion of %q, which more than one row of the dataset has as its id", g.line, g.ID)
			}
		}
		if row < 0 || row >= int64(len(dataset)) {
			return fmt.Errorf("line %d has a completion of row %d, the dataset has %d rows", g.line, row, len(dataset))
		}
		c := storage.Completion{
			Job: job.Name(), Row: row, RowID: dataset[row].ID, Sample: samples[row], Worker: GivenMode,
			Completion: g.Text, FinishReason: storage.FinishEOS, Error: g.Error,
		}
		switch {
		case g.Error != "":
			c.FinishReason = storage.FinishError
		case g.Cut:
			c.FinishReason = storage.FinishLength
		}
		samples[row]++
		completions = append(completions, c)
	}
	slices.SortStableFunc(completions, func(a, b storage.Completion) int { return int(a.Row - b.Row) })
	w, err := job.NewShardWriter(GivenMode, 0)
	if err != nil {
		return err
	}
	for _, c := range completions {
		if err := w.AddCompletion(c); err != nil {
			_ = w.Abort()
			return err
		}
	}
	if _, err := w.Commit(ctx); err != nil {
		return err
	}
	if err := job.WritePlan(1, int64(len(dataset)), []string{GivenMode}); err != nil {
		return err
	}
	_, err = job.Finalize(ctx)
	return err
}
