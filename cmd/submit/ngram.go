package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// training is what ngram is told.
type training struct {
	target, dataset, job, out, output string
	columns                           []string
	limit, order                      int
	json                              bool
}

// ngramCommand trains an n-gram table for --drafter ngram:TABLE.
func ngramCommand() *cobra.Command {
	var t training
	cmd := &cobra.Command{
		Use:   "ngram --dataset FILE | --job JOB [flags]",
		Short: "train an n-gram table that drafts for a target",
		Long: `ngram counts the n-grams of texts, in the tokens of a target, and writes them to
one file, a table for --drafter ngram:TABLE or model+ngram:TABLE. The texts are
columns of a dataset, the completions of an earlier job, or both. A table that
knows little of the target's text costs acceptance, never truth: output with it
has the target's distribution like any other.`,
		Example: `  submit ngram --dataset train.parquet --column prompt \
      --column canonical_solution --target models/target --output code.ngram
  submit ngram --job out/humaneval --target models/target --order 4 \
      --output own.ngram
  submit --dataset humaneval.parquet --target models/target \
      --drafter ngram:code.ngram`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.validate(); err != nil {
				return err
			}
			return t.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&t.dataset, "dataset", "", "dataset `FILE`: Parquet, Arrow IPC or JSON Lines; or its name on the Hub")
	f.StringArrayVar(&t.columns, "column", nil, "column `NAME` of the texts (default: the prompt, recognized by name); repeatable: a row's columns are joined in this order")
	f.IntVar(&t.limit, "limit", 0, "take the first `N` rows of the dataset only; 0 takes all")
	f.StringVar(&t.job, "job", "", "earlier `JOB` of the same target, or its folder: train on its completions")
	f.StringVar(&t.out, "out", "out", "output `DIR` that holds the job")
	f.StringVar(&t.target, "target", "testdata/demo/target", "target model `DIR`")
	f.IntVar(&t.order, "order", 3, fmt.Sprintf("longest n-grams: `N` tokens, 1 to %d", spec.MaxOrder))
	f.BoolVar(&t.json, "json", false, "print what was trained as JSON")
	f.StringVar(&t.output, "output", "", "`FILE` for the table")
	return cmd
}

func (t *training) validate() error {
	switch {
	case t.dataset == "" && t.job == "":
		return configs.Usagef("dataset: want texts; name a dataset with --dataset, or an earlier job with --job")
	case t.dataset == "" && len(t.columns) > 0:
		return configs.Usagef("column: want a dataset beside it; name a file with --dataset")
	case t.output == "":
		return configs.Usagef("output: want a file for the table; name one with --output")
	case t.order < 1 || t.order > spec.MaxOrder:
		return configs.Usagef("order: want 1 to %d, got %d", spec.MaxOrder, t.order)
	case t.limit < 0:
		return configs.Usagef("limit: want 0 or more, got %d", t.limit)
	}
	return nil
}

func (t *training) run(parent context.Context, stdout, stderr io.Writer) error {
	ctx, _, stop := app.Signals(parent, 0)
	defer stop()
	models := app.NewModels(configs.Config{}, slog.New(slog.DiscardHandler))
	models.Interrupt(ctx)
	defer models.Close()
	target, err := models.Describe(t.target)
	if err != nil {
		return err
	}
	digest, err := app.TokenizerDigest(target)
	if err != nil {
		return err
	}
	trainer, err := spec.NewNGramTrainer(t.order, target.Vocab)
	if err != nil {
		return err
	}
	texts, skipped := 0, 0
	if t.dataset != "" {
		tokenizer, err := tokenize.Load(target.Tokenizer)
		if err != nil {
			return err
		}
		if texts, skipped, err = t.addDataset(ctx, trainer, tokenizer); err != nil {
			return err
		}
	}
	if t.job != "" {
		n, err := t.addJob(ctx, trainer, target.Digest)
		if err != nil {
			return err
		}
		texts += n
	}
	if skipped > 0 {
		fmt.Fprintf(stderr, "%d rows are no text and are left out\n", skipped)
	}
	table := trainer.Table(digest)
	if table.Trained() == 0 {
		return errors.New("train an n-gram table: the texts have no tokens")
	}
	data, err := table.AppendBinary(nil)
	if err != nil {
		return err
	}
	if err := writeWhole(t.output, data); err != nil {
		return fmt.Errorf("write the n-gram table: %w", err)
	}
	if t.json {
		return printJSON(stdout, map[string]any{
			"table": t.output, "order": table.Order(), "ngrams": table.Size(), "tokens": table.Trained(), "texts": texts,
			"vocabulary": table.Vocab(), "bytes": len(data), "digest": table.Digest(),
		})
	}
	_, err = io.WriteString(stdout, narrow(fmt.Sprintf("%s: order %d, %d n-grams of %d tokens in %d texts, vocabulary %d, %d bytes, digest %.12s\n",
		t.output, table.Order(), table.Size(), table.Trained(), texts, table.Vocab(), len(data), table.Digest())))
	return err
}

// addDataset adds the texts of the dataset's columns.
func (t *training) addDataset(ctx context.Context, trainer *spec.NGramTrainer, tokenizer *tokenize.Tokenizer) (texts, skipped int, err error) {
	source := &columnTexts{dataset: t.dataset, columns: t.columns, limit: t.limit}
	for text, err := range source.all(ctx) {
		if err != nil {
			return 0, 0, err
		}
		tokens, err := tokenizer.Encode(text)
		if err != nil || text == "" {
			skipped++
			continue
		}
		if err := trainer.Add(tokens); err != nil {
			return 0, 0, err
		}
		texts++
	}
	return texts, skipped, nil
}

// addJob adds the completions of a job, whose tokens are the target's own.
func (t *training) addJob(ctx context.Context, trainer *spec.NGramTrainer, digest string) (texts int, err error) {
	folder, err := openJob(t.job, t.out)
	if err != nil {
		return 0, err
	}
	job, err := specOf(folder)
	if err != nil {
		return 0, err
	}
	if job.Target.Digest != digest {
		return 0, fmt.Errorf("job %s was decoded with the target %s of digest %.12s, %s has %.12s; name that target, or train on the text: --dataset a file of its completions, --column completion",
			folder.Name(), job.Target.Name, job.Target.Digest, t.target, digest)
	}
	for _, mode := range job.Modes {
		if err := folder.ReadCompletions(string(mode), func(c storage.Completion) error {
			if len(c.Tokens) == 0 {
				return ctx.Err()
			}
			texts++
			return errors.Join(ctx.Err(), trainer.Add(c.Tokens))
		}); err != nil {
			return 0, err
		}
	}
	return texts, nil
}

// writeWhole writes a file such that it is there whole or not at all.
func writeWhole(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
