package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline/report"
	"github.com/draftmill/draftmill/storage"
)

// sweeping is what submit sweep is told beyond a job's settings.
type sweeping struct {
	ks           string
	temperatures []float64
	drafts       []string
	html, plots  string
}

// swept are the flags of a job that a sweep sets itself, or has no use for.
var swept = []string{"k", "temperature", "draft", "mode", "lookahead"}

// sweepCommand runs a job at several lookaheads.
func sweepCommand() *cobra.Command {
	var s sweeping
	cmd := &cobra.Command{
		Use:   "sweep --k 0..8 --dataset FILE [flags]",
		Short: "run a job at several lookaheads and find the best: Figure 1 of Chen et al.",
		Long: `sweep runs one job for every lookahead K, 0 being autoregressive sampling, and for
every temperature and draft that are given. They are ordinary jobs, NAME-k0,
NAME-k1 and so on, on the same queue: interrupted, the same command does what is
missing. It prints, by K, the time for 128 tokens, tokens per loop over K + 1,
and the time of a loop with its slope, theory beside them, and the best K with
its interval, which is over sequences: what the machine did besides, while one of
the jobs ran, is not in it. All other settings are those of submit.`,
		Example: `  submit sweep --k 0..8 --config configs/demo.yaml --html sweep.html
  submit sweep --k 0,2,4,8 --temperature 0,0.8 --dataset humaneval.parquet --target models/target --draft models/draft`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	jobFlags := pflag.NewFlagSet("", pflag.ContinueOnError)
	configs.SubmitFlags(jobFlags)
	jobFlags.VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(swept, flag.Name) {
			f.AddFlag(flag)
		}
	})
	f.StringVar(&s.ks, "k", "0..8", "lookaheads `LIST`: a range such as 0..8, or numbers with commas")
	f.Float64SliceVar(&s.temperatures, "temperature", nil, "temperatures `LIST`, with commas; 0 is greedy (default: the configuration's)")
	f.StringSliceVar(&s.drafts, "draft", nil, "draft model `DIRS`, with commas (default: the configuration's)")
	f.StringVar(&s.html, "html", "", "write a report of the sweep as a page into `FILE`")
	f.StringVar(&s.plots, "plots", "", "write the plots into `DIR`, as SVG and PNG")
	return cmd
}

// grid is one line of points: all lookaheads at a temperature with a draft.
type grid struct {
	Name  string        `json:"name,omitempty"` // what tells it from the others
	Sweep *report.Sweep `json:"sweep"`

	jobs []*storage.Job
}

func (s *sweeping) run(cmd *cobra.Command) error {
	ks, err := lookaheads(s.ks)
	if err != nil {
		return err
	}
	temperatures := []string{""}
	if len(s.temperatures) > 0 {
		temperatures = nil
		for _, t := range s.temperatures {
			temperatures = append(temperatures, strconv.FormatFloat(t, 'g', -1, 64))
		}
	}
	drafts := s.drafts
	if len(drafts) == 0 {
		drafts = []string{""}
	}
	var grids []grid
	var asJSON, detached bool
	for n, draft := range drafts {
		for _, temperature := range temperatures {
			g := grid{}
			suffix := ""
			if len(temperatures) > 1 {
				g.Name, suffix = "temperature "+temperature, "-t"+strings.ReplaceAll(temperature, ".", "_")
			}
			if len(drafts) > 1 {
				g.Name, suffix = strings.TrimSpace("draft "+draft+" "+g.Name), fmt.Sprintf("-d%d%s", n+1, suffix)
			}
			for _, k := range ks {
				cfg, err := s.point(cmd.Flags(), k, temperature, draft, suffix)
				if err != nil {
					return err
				}
				asJSON, detached = cfg.JSON, cfg.Detach
				if err := run(cmd.Context(), cfg, io.Discard, cmd.ErrOrStderr()); err != nil {
					return err
				}
				job, err := storage.OpenJob(filepath.Join(cfg.Out, cfg.Job))
				if err != nil {
					return err
				}
				g.jobs = append(g.jobs, job)
			}
			grids = append(grids, g)
		}
	}
	if detached {
		fmt.Fprintln(cmd.ErrOrStderr(), "run the same command without --detach to wait for the jobs and to see the sweep")
		return nil
	}
	return s.show(grids, asJSON, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// point is the configuration of one job of the sweep.
func (s *sweeping) point(given *pflag.FlagSet, k int, temperature, draft, suffix string) (configs.Config, error) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	configs.SubmitFlags(fs)
	var failed error
	set := func(name, value string) {
		if err := fs.Set(name, value); err != nil && failed == nil {
			failed = configs.Usagef("--%s: %v", name, err)
		}
	}
	given.Visit(func(flag *pflag.Flag) {
		if fs.Lookup(flag.Name) == nil || slices.Contains(swept, flag.Name) {
			return
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			for _, v := range list.GetSlice() {
				set(flag.Name, v)
			}
			return
		}
		set(flag.Name, flag.Value.String())
	})
	set("mode", configs.ModeSpS)
	set("k", strconv.Itoa(k))
	if k == 0 {
		set("mode", configs.ModeArS)
		set("k", "1") // of no consequence where nothing is drafted
	}
	set("lookahead", configs.LookaheadFixed)
	if temperature != "" {
		set("temperature", temperature)
	}
	if draft != "" {
		set("draft", draft)
	}
	if failed != nil {
		return configs.Config{}, failed
	}
	cfg, err := configs.Load(fs)
	if err != nil {
		return cfg, err
	}
	if cfg.Job == "" {
		cfg.Job = "sweep"
	}
	cfg.Job += fmt.Sprintf("%s-k%d", suffix, k)
	return cfg, cfg.ValidateSubmit()
}

// show prints the sweeps and writes what else was asked for.
func (s *sweeping) show(grids []grid, asJSON bool, stdout, stderr io.Writer) error {
	for i := range grids {
		g := &grids[i]
		var err error
		if g.Sweep, err = report.NewSweep(g.jobs); err != nil {
			return err
		}
		at := func(path string) string { // several grids have a file or folder each
			if len(grids) == 1 {
				return path
			}
			ext := filepath.Ext(path)
			return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ext), i+1, ext)
		}
		if s.plots != "" {
			if err := savePlots(at(s.plots), g.Sweep.Charts()); err != nil {
				return err
			}
		}
		if s.html != "" {
			r := reporting{html: at(s.html), samples: 100}
			o, err := r.options(g.jobs[0], stderr)
			if err != nil {
				return err
			}
			c, err := report.Compare(g.jobs, o)
			if err != nil {
				return err
			}
			p := r.page(c, g.jobs)
			p.Sweep, p.Title = g.Sweep, strings.TrimSpace("draftmill: sweep of K "+g.Name)
			if err := writePage(r.html, p); err != nil {
				return err
			}
			fmt.Fprintf(stderr, "written to %s\n", r.html)
		}
	}
	if asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(grids)
	}
	for _, g := range grids {
		if g.Name != "" {
			fmt.Fprintf(stdout, "%s\n", g.Name)
		}
		if err := g.Sweep.Table(stdout); err != nil {
			return err
		}
		fmt.Fprintln(stdout)
	}
	return nil
}

// lookaheads reads "0..8" or "0,2,4".
func lookaheads(text string) ([]int, error) {
	var ks []int
	bad := func() error {
		return configs.Usagef("--k: want a range such as 0..8, or numbers with commas, each 0 to %d, got %q", configs.MaxK, text)
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "..")
		if !isRange {
			to = from
		}
		a, err1 := strconv.Atoi(strings.TrimSpace(from))
		b, err2 := strconv.Atoi(strings.TrimSpace(to))
		if err1 != nil || err2 != nil || a < 0 || a > b || b > configs.MaxK {
			return nil, bad()
		}
		for k := a; k <= b; k++ {
			if !slices.Contains(ks, k) {
				ks = append(ks, k)
			}
		}
	}
	if len(ks) < 2 {
		return nil, bad()
	}
	slices.Sort(ks)
	return ks, nil
}
