package pipeline

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/template"

	"github.com/draftmill/draftmill/storage"
)

// Rows yields a dataset's rows in order, and io.EOF after the last.
type Rows interface {
	Next() (storage.Row, error)
}

// Prompts yields the job's rows: the first Limit of the dataset's, with the
// template rendered. An error is the last thing that it yields.
func (j *Job) Prompts(rows Rows) iter.Seq2[storage.ShardRow, error] {
	return func(yield func(storage.ShardRow, error) bool) {
		render, err := parseTemplate(j.Dataset.Template)
		if err != nil {
			yield(storage.ShardRow{}, err)
			return
		}
		for n := 0; j.Dataset.Limit == 0 || n < j.Dataset.Limit; n++ {
			row, err := rows.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			r := storage.ShardRow{Row: row.Index, ID: row.ID, Prompt: row.Prompt, Null: row.Null}
			if err == nil && render != nil {
				if r.Prompt, err = render(row.Fields); err != nil {
					err = fmt.Errorf("render the template for row %d: %w", row.Index, err)
				}
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// parseTemplate returns a function that renders a row's columns, or nil when
// there is no template. A column that the row does not have is an error.
func parseTemplate(text string) (func(map[string]string) ([]byte, error), error) {
	if text == "" {
		return nil, nil
	}
	t, err := template.New("template").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse the template: %w", err)
	}
	return func(fields map[string]string) ([]byte, error) {
		var b strings.Builder
		if err := t.Execute(&b, fields); err != nil {
			return nil, err
		}
		return []byte(b.String()), nil
	}, nil
}
