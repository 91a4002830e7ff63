package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline/eval"
	"github.com/draftmill/draftmill/storage"
)

// scoring is what submit score is told.
type scoring struct {
	out, dataset string
	json         bool
	options      eval.Options
}

// scoreCommand scores the completions of a job.
func scoreCommand() *cobra.Command {
	var s scoring
	cmd := &cobra.Command{
		Use:   "score JOB",
		Short: "score a job's completions: programs by their tests, texts by a reference",
		Long: `score runs the completions of a dataset in HumanEval's form (columns prompt, test,
entry_point, canonical_solution) against their tests and prints pass@k; with any
other dataset it compares completions with a column of references (ROUGE, exact
match). It writes scores/ into the job's folder; submit report compares the modes
by them. A job that is not complete is scored as far as it is committed.

Programs run under bubblewrap: no network, a read-only system, limits of memory,
processes, disk and time. The dataset's canonical solutions run first; where one
fails, this machine is not fit to score.`,
		Example: `  submit score demo
  submit score out/humaneval --dataset humaneval.parquet --json
  submit score out/xsum --reference summary --stemmer`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return configs.Usagef("name one job or its folder: %s JOB", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&s.out, "out", "out", "output `DIR` in which the job's folder is")
	f.StringVar(&s.dataset, "dataset", "", "dataset `FILE` (default: where it was when the job was submitted)")
	f.StringVar(&s.options.Kind, "by", "", "`WAY`: programs or references (default: programs where the dataset has tests)")
	f.StringVar(&s.options.Reference, "reference", "", "column `NAME` to compare texts with (default: summary, reference, answer or target)")
	f.BoolVar(&s.options.Stem, "stemmer", false, "ROUGE over stems, by Porter's stemmer")
	f.StringVar(&s.options.Extract, "extract", "", "`WAY` to take a program from a completion: none or fenced (default: fenced where the job has a template or is a chat)")
	f.IntVar(&s.options.Workers, "workers", runtime.NumCPU(), "run `N` programs at a time")
	f.BoolVar(&s.options.Unsafe, "unsafe-no-sandbox", false, "run generated code without a sandbox, as this user")
	f.BoolVar(&s.json, "json", false, "print the summary as JSON")
	return cmd
}

func (s *scoring) run(cmd *cobra.Command, name string) (err error) {
	if w := s.options.Extract; w != "" && w != eval.ExtractNone && w != eval.ExtractFenced {
		return configs.Usagef("--extract: want none or fenced, got %q", w)
	}
	if w := s.options.Kind; w != "" && w != eval.Programs && w != eval.References {
		return configs.Usagef("--by: want programs or references, got %q", w)
	}
	ctx, _, stop := app.Signals(cmd.Context(), 0)
	defer stop()
	job, err := openJob(name, s.out)
	if err != nil {
		return err
	}
	dataset, err := openScored(job, s.dataset)
	if err != nil {
		return err
	}
	defer closing(&err, dataset.Close)
	s.options.Progress = progressLine(cmd.ErrOrStderr())
	summary, err := eval.Score(ctx, job, dataset, s.options)
	if err != nil {
		return interrupted(ctx, err)
	}
	if s.json {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(summary)
	}
	if err := summary.Table(cmd.OutOrStdout()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "written to %s/scores\n", job.Dir())
	return err
}

// openScored opens the dataset of a job: path, or where it was when the job was
// submitted. It must be the file that was decoded.
func openScored(job *storage.Job, path string) (*storage.Dataset, error) {
	var spec struct {
		Dataset struct {
			Name         string `json:"name"`
			SHA256       string `json:"sha256"`
			PromptColumn string `json:"prompt_column"`
			IDColumn     string `json:"id_column"`
		} `json:"dataset"`
	}
	if err := json.Unmarshal(job.Spec(), &spec); err != nil {
		return nil, fmt.Errorf("read the specification of job %s: %w", job.Name(), err)
	}
	if path == "" {
		if path = job.Place().Dataset; path == "" {
			return nil, configs.Usagef("where the dataset %s of job %s lies is not known: name it with --dataset FILE", spec.Dataset.Name, job.Name())
		}
	}
	digest, err := fileDigest(path)
	if err != nil {
		return nil, fmt.Errorf("%w; name the dataset with --dataset FILE", err)
	}
	if digest != spec.Dataset.SHA256 {
		return nil, fmt.Errorf("%s is not the dataset that job %s decoded: its sha256 is %s, the job's %s", path, job.Name(), digest, spec.Dataset.SHA256)
	}
	return storage.OpenDataset(path, storage.Columns{Prompt: spec.Dataset.PromptColumn, ID: spec.Dataset.IDColumn})
}

// progressLine writes one line again and again, where there is a terminal.
func progressLine(w io.Writer) func(step string, done, of int) {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func(step string, done, of int) {
		fmt.Fprintf(w, "\r\x1b[Kscore: %s, %d of %d", step, done, of)
		if done == of {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
}
