package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline/report"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/storage"
)

// reporting is what submit report is told.
type reporting struct {
	out, html, plots, table, column, dataset, target string
	margin                                           float64
	samples                                          int
	json, full, unchecked                            bool
}

// reportCommand compares the modes of jobs.
func reportCommand() *cobra.Command {
	var r reporting
	cmd := &cobra.Command{
		Use:   "report JOB [JOB...]",
		Short: "compare the modes of jobs: speed, quality, acceptance",
		Long: `report reads jobs back and compares their modes: the first is what the others are
compared with. Where submit score has scored them, quality is compared by row:
difference with its 95% interval, McNemar's exact test, a permutation test, and
an equivalence test against the margin that was fixed with the job (--margin of
submit). Jobs must be over the same dataset. A job that is not complete is
reported as far as it is committed.

The certificate is what submit verify finds: every decision is made again from the
log. --html writes one page that needs no network; --plots the plots as SVG and PNG.`,
		Example: `  submit report demo
  submit report out/demo --html report.html --plots plots
  submit report k2 k4 k8 --table md
  submit report humaneval --column entry_point --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return configs.Usagef("name one job folder or more: %s out/JOB", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	r.flags(f)
	f.BoolVar(&r.json, "json", false, "print the comparison and the accounting as JSON")
	f.BoolVar(&r.full, "full", false, "also print the accounting: every denominator, acceptance by position, smaller lookaheads")
	f.StringVar(&r.html, "html", "", "write the report as a page into `FILE`")
	f.StringVar(&r.plots, "plots", "", "write the plots into `DIR`, as SVG and PNG")
	f.StringVar(&r.table, "table", "", "print one table as `FORM`: md, csv or latex")
	f.BoolVar(&r.unchecked, "no-replay", false, "do not replay the logs, as submit verify does, for the certificate")
	return cmd
}

// flags are those of every command that shows jobs on a page.
func (r *reporting) flags(f *pflag.FlagSet) {
	f.StringVar(&r.out, "out", "out", "output `DIR` in which jobs' folders are")
	f.StringVar(&r.column, "column", "", "acceptance and scores by the values of a column `NAME` of the dataset")
	f.StringVar(&r.dataset, "dataset", "", "dataset `FILE`, or its name on the Hub (default: where it was when the job was submitted)")
	f.StringVar(&r.target, "target", "", "target model `DIR`, for the texts of tokens (default: where it was when the job was submitted)")
	f.Float64Var(&r.margin, "margin", 0, "margin `D` of equivalence in place of the jobs'; the report says that it was not fixed before")
	f.IntVar(&r.samples, "samples", 200, "completions of up to `N` rows on the page")
}

// check refuses bad values of the flags.
func (r *reporting) check() error {
	if r.margin < 0 || r.margin >= 1 {
		return configs.Usagef("--margin: want 0 or more and less than 1, such as 0.05 for 5 points, got %v", r.margin)
	}
	if r.samples < 0 {
		return configs.Usagef("--samples: want 0 or more, got %d", r.samples)
	}
	return nil
}

func (r *reporting) run(ctx context.Context, names []string, stdout, stderr io.Writer) error {
	if err := r.check(); err != nil {
		return err
	}
	var jobs []*storage.Job
	for _, name := range names {
		job, err := openJob(name, r.out)
		if err != nil {
			return err
		}
		if !job.Done() {
			fmt.Fprintf(stderr, "job %s is not complete: reported as far as it is committed\n", job.Name())
		}
		jobs = append(jobs, job)
	}
	o, err := r.options(ctx, jobs[0], stderr)
	if err != nil {
		return err
	}
	c, err := compareChecked(jobs, o, !r.unchecked)
	if err != nil {
		return err
	}
	if r.plots != "" {
		if err := savePlots(r.plots, c.Charts()); err != nil {
			return err
		}
	}
	if r.html != "" {
		if err := writePage(r.html, r.page(c, jobs)); err != nil {
			return err
		}
		fmt.Fprintf(stderr, "written to %s\n", r.html)
	}
	if err := r.print(c, stdout); err != nil {
		return err
	}
	if c.Certificate.State() == report.Fails {
		return errors.New("the certificate fails: submit verify JOB says where")
	}
	return nil
}

// print shows the comparison in the form that was asked for.
func (r *reporting) print(c *report.Comparison, stdout io.Writer) error {
	switch {
	case r.table != "":
		return c.Export(stdout, r.table)
	case r.json && len(c.Summaries) == 1:
		return printJSON(stdout, struct {
			*report.Summary
			Series      []report.Series     `json:"series"`
			Quality     []report.Quality    `json:"quality"`
			Certificate *report.Certificate `json:"certificate"`
		}{c.Summaries[0], c.Series, c.Quality, c.Certificate})
	case r.json:
		return printJSON(stdout, c)
	}
	return r.text(c, stdout)
}

// compareChecked compares jobs and replays their logs meanwhile.
func compareChecked(jobs []*storage.Job, o report.Options, replay bool) (*report.Comparison, error) {
	var certificate *report.Certificate
	var failed error
	var checking sync.WaitGroup
	checking.Go(func() { certificate, failed = report.Certify(jobs, replay) })
	c, err := report.Compare(jobs, o)
	checking.Wait()
	if err != nil {
		return nil, err
	}
	c.Certificate = certificate
	return c, failed
}

// text prints each job's table, and the comparison under them.
func (r *reporting) text(c *report.Comparison, stdout io.Writer) error {
	for _, s := range c.Summaries {
		if len(c.Summaries) > 1 {
			fmt.Fprintf(stdout, "job %s\n", s.Job)
		}
		if err := s.Table(stdout); err != nil {
			return err
		}
		fmt.Fprintln(stdout)
		if r.full {
			if err := s.Full(stdout); err != nil {
				return err
			}
			fmt.Fprintln(stdout)
		}
	}
	return c.Table(stdout)
}

// options finds what the comparison looks at beside the job: the dataset and
// the tokenizer, where they are at hand. Asked for by a flag, they must be.
func (r *reporting) options(ctx context.Context, job *storage.Job, stderr io.Writer) (report.Options, error) {
	o := report.Options{Margin: r.margin, Column: r.column}
	if r.html != "" {
		o.Samples = r.samples
	}
	target := r.target
	if target == "" {
		target = job.Place().Target
	}
	if target != "" {
		tokenizer, err := tokenizerOf(target)
		switch {
		case err == nil:
			o.Token = func(id int32) string { return tokenizer.Decode([]int32{id}, true) }
			o.Texts = func(ids []int32) []string {
				stream := tokenizer.NewStream()
				texts := make([]string, len(ids))
				for i, id := range ids {
					texts[i] = stream.Push(id)
				}
				if len(texts) > 0 {
					texts[len(texts)-1] += stream.Flush()
				}
				return texts
			}
		case r.target != "":
			return o, err
		}
	}
	if r.html == "" && r.column == "" {
		return o, nil
	}
	dataset, err := openScored(ctx, job, r.dataset)
	if err != nil {
		if r.column != "" || r.dataset != "" {
			return o, err
		}
		fmt.Fprintf(stderr, "prompts are left out: %v\n", err)
		if plan, err := job.Plan(); err == nil {
			o.Rows = plan.Rows
		}
		return o, nil
	}
	defer dataset.Close()
	o.Prompts, o.Values = map[int64]string{}, map[int64]string{}
	for {
		row, err := dataset.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return o, err
		}
		if value, ok := row.Fields[r.column]; ok {
			o.Values[row.Index] = value
		} else if r.column != "" {
			return o, configs.Usagef("--column: the dataset has no column %q", r.column)
		}
		o.Prompts[row.Index] = strings.ToValidUTF8(string(row.Prompt), "\uFFFD")
		o.Rows = row.Index + 1
	}
	if plan, err := job.Plan(); err == nil {
		o.Rows = min(o.Rows, plan.Rows)
	}
	return o, nil
}

// page is the report of a comparison, with what a reader needs to repeat it.
func (r *reporting) page(c *report.Comparison, jobs []*storage.Job) *report.Page {
	p := &report.Page{Title: "draftmill: " + jobs[0].Name(), Comparison: c}
	if len(jobs) > 1 {
		p.Title += fmt.Sprintf(" and %d more", len(jobs)-1)
	}
	for _, job := range jobs {
		p.Repeat = append(p.Repeat, "submit score "+job.Dir(), "submit verify "+job.Dir())
	}
	p.Repeat = append(p.Repeat, "submit report "+strings.Join(dirs(jobs), " ")+" --html "+filepath.Base(r.html))
	return p
}

func dirs(jobs []*storage.Job) []string {
	all := make([]string, len(jobs))
	for i, job := range jobs {
		all[i] = job.Dir()
	}
	return all
}

func writePage(path string, p *report.Page) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer closing(&err, f.Close)
	return p.WriteHTML(f)
}

// savePlots writes each chart twice, named after its title.
func savePlots(dir string, charts []report.Chart) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save the plots: %w", err)
	}
	for _, c := range charts {
		name := filepath.Join(dir, strings.ReplaceAll(c.Title, " ", "-"))
		if err := saveChart(name+".svg", c.SVG); err != nil {
			return err
		}
		if err := saveChart(name+".png", c.PNG); err != nil {
			return err
		}
	}
	return nil
}

// tokenizerOf is the tokenizer of a model, which the user's cache has where it is
// no ONNX folder.
func tokenizerOf(model string) (*tokenize.Tokenizer, error) {
	t, err := tokenize.Load(filepath.Join(model, "tokenizer.json"))
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return t, err
	}
	models := app.NewModels(configs.Config{}, slog.New(slog.DiscardHandler))
	defer models.Close()
	b, err := models.Describe(model)
	if err != nil {
		return nil, err
	}
	return tokenize.Load(b.Tokenizer)
}
