package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/storage"
)

// columnTexts are the texts of a dataset's rows: columns joined in order, or the prompt
// where none are named.
type columnTexts struct {
	dataset string
	columns []string
	limit   int // rows; 0: all
}

func (t *columnTexts) all(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := t.read(ctx, func(text string) bool { return yield(text, nil) }); err != nil {
			yield("", err)
		}
	}
}

func (t *columnTexts) read(ctx context.Context, yield func(string) bool) (err error) {
	var columns storage.Columns
	if len(t.columns) > 0 {
		columns.Prompt = t.columns[0]
	}
	located, err := app.LocateDataset(ctx, slog.New(slog.DiscardHandler), t.dataset)
	if err != nil {
		return err
	}
	dataset, err := storage.OpenDataset(located.Path, columns)
	if err != nil {
		return err
	}
	defer closing(&err, dataset.Close)
	info := dataset.Info()
	for _, name := range t.columns {
		if !slices.Contains(info.All, name) && info.Format != storage.FormatJSONLines {
			return fmt.Errorf("dataset %s has no column %q; it has %s", t.dataset, name, strings.Join(info.All, ", "))
		}
	}
	for n := 0; t.limit == 0 || n < t.limit; n++ {
		row, err := dataset.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		text := string(row.Prompt)
		if len(t.columns) > 1 {
			var all strings.Builder
			for _, name := range t.columns {
				all.WriteString(row.Fields[name])
			}
			text = all.String()
		}
		if !yield(text) {
			return nil
		}
	}
	return nil
}
