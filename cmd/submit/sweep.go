package main

import (
	"context"
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
	"github.com/draftmill/draftmill/storage/bucket"
)

// sweeping is what submit sweep is told beyond a job's settings.
type sweeping struct {
	ks           string
	temperatures []float64
	drafts       []string
	drafters     []string
	rules        []string
	draftBeams   []string
	html, plots  string
}

// swept are the flags of a job that a sweep sets itself, or has no use for.
var swept = []string{"k", "temperature", "draft", "drafter", "rule", "mode", "lookahead", "draft-beams"}

// sweepCommand runs a job at several lookaheads.
func sweepCommand() *cobra.Command {
	var s sweeping
	cmd := &cobra.Command{
		Use:   "sweep --k 0..8 --dataset FILE [flags]",
		Short: "run a job at several lookaheads and find the best",
		Long: `sweep makes Figure 1 of Chen et al. 2023: it runs one job for every lookahead K, 0 being autoregressive sampling, and for
every temperature, draft, drafter, rule and width of the draft's beams that are
given; "auto" among the lookaheads is one that is chosen from loop to loop. They are ordinary
jobs, NAME-k0, NAME-k1 and so on, on one queue, where they take turns shard by
shard, so that a machine whose speed changes does so for all of them. Interrupted,
the same command does what is missing. It prints, by K, the time for 128 tokens,
tokens per loop over K + 1, and the time of a loop with its slope, theory beside
them, and the best K with its interval over sequences. Of several sweeps a table at the end has alpha, the
measured speed-up and the predicted one for each, as Tables 3 to 5 of Leviathan et
al. 2022 do. All other settings are those of submit.`,
		Example: `  submit sweep --k 0..8 --config configs/demo.yaml --html sweep.html
  submit sweep --k 0,2,4,8,auto --temperature 0,0.8 \
      --dataset humaneval.parquet --target models/target --draft models/draft
  submit sweep --k 0,4 --temperature 0,1 --drafter model,lookup,uniform \
      --config configs/demo.yaml
  submit sweep --k 0,4 --rule rejection,lenient:0.5,lenient:0.3,lenient:0.1 \
      --config configs/demo.yaml
  submit sweep --k 0..3 --beams 4 --draft-beams 4,8 --config configs/demo.yaml`,
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
	f.StringVar(&s.ks, "k", "0..8", "lookaheads `LIST`: a range such as 0..8, or numbers with commas; auto may be among them")
	f.Float64SliceVar(&s.temperatures, "temperature", nil, "temperatures `LIST`, with commas; 0 is greedy (default: the configuration's)")
	f.StringSliceVar(&s.drafts, "draft", nil, "draft model `DIRS`, with commas (default: the configuration's)")
	f.StringSliceVar(&s.drafters, "drafter", nil, "drafters `LIST`, with commas: model, lookup and the like (default: the configuration's)")
	f.StringSliceVar(&s.rules, "rule", nil, "rules `LIST` of acceptance, with commas: rejection, lenient:0.5 and the like (default: the configuration's)")
	f.StringSliceVar(&s.draftBeams, "draft-beams", nil, "with --beams, widths `LIST` of the draft's search, with commas (default: the configuration's)")
	f.StringVar(&s.html, "html", "", "write a report of the sweep as a page into `FILE`")
	f.StringVar(&s.plots, "plots", "", "write the plots into `DIR`, as SVG and PNG")
	return cmd
}

// grid is one line of points: all lookaheads with the same values of the other
// settings.
type grid struct {
	Name  string        `json:"name,omitempty"` // what tells it from the others
	Sweep *report.Sweep `json:"sweep"`

	settings []setting
	suffix   string // of the jobs' names
	base     string // of the name of the autoregressive one
	jobs     []*storage.Job
}

// setting is a value of one of the lists that a sweep is given.
type setting struct{ flag, value string }

// grids are all combinations of the lists' values.
func (s *sweeping) grids() []grid {
	var temperatures []string
	for _, t := range s.temperatures {
		temperatures = append(temperatures, strconv.FormatFloat(t, 'g', -1, 64))
	}
	grids := []grid{{}}
	for _, list := range []struct {
		flag, letter string
		values       []string
	}{{"draft", "d", s.drafts}, {"drafter", "p", s.drafters}, {"rule", "r", s.rules}, {"draft-beams", "u", s.draftBeams}, {"temperature", "t", temperatures}} {
		if len(list.values) == 0 {
			continue
		}
		var next []grid
		for _, g := range grids {
			for n, value := range list.values {
				more := g
				more.settings = append(slices.Clone(g.settings), setting{list.flag, value})
				if len(list.values) > 1 {
					more.Name = strings.TrimSpace(g.Name + " " + list.flag + " " + value)
					if list.flag == "temperature" {
						part := "-t" + strings.ReplaceAll(value, ".", "_")
						more.suffix, more.base = g.suffix+part, g.base+part
					} else {
						more.suffix += fmt.Sprintf("-%s%d", list.letter, n+1)
					}
				}
				next = append(next, more)
			}
		}
		grids = next
	}
	return grids
}

func (s *sweeping) run(cmd *cobra.Command) error {
	ks, err := lookaheads(s.ks)
	if err != nil {
		return err
	}
	grids := s.grids()
	var jobs []configs.Config // of the grids, one after the other
	for i := range grids {
		for _, k := range ks {
			cfg, err := s.point(cmd.Flags(), k, &grids[i])
			if err != nil {
				return err
			}
			jobs = append(jobs, cfg)
		}
	}
	if err := inTurns(cmd.Context(), jobs, cmd.ErrOrStderr()); err != nil {
		return err
	}
	if jobs[0].Detach {
		fmt.Fprintln(cmd.ErrOrStderr(), "run the same command without --detach to wait for the jobs and to see the sweep")
		return nil
	}
	for i, cfg := range jobs {
		job, err := storage.OpenJob(bucket.Join(cfg.Out, cfg.Job))
		if err != nil {
			return err
		}
		g := &grids[i/len(ks)]
		g.jobs = append(g.jobs, job)
	}
	return s.show(cmd.Context(), grids, jobs[0].JSON, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// point is the configuration of one job of the sweep. The autoregressive one of a
// temperature is the same whatever drafts and by whichever rule.
func (s *sweeping) point(given *pflag.FlagSet, k lookahead, g *grid) (configs.Config, error) {
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
	suffix := g.suffix
	set("mode", configs.ModeSpS)
	switch k {
	case none:
		suffix = g.base
		set("mode", configs.ModeArS)
		set("k", "1") // of no consequence where nothing is drafted
		set("lookahead", configs.LookaheadFixed)
	case auto:
		set("lookahead", configs.LookaheadAuto)
	default:
		set("k", k.String())
		set("lookahead", configs.LookaheadFixed)
	}
	for _, v := range g.settings {
		if k != none || v.flag == "temperature" {
			set(v.flag, v.value)
		}
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
	cfg.Job += fmt.Sprintf("%s-k%s", suffix, k)
	if err := cfg.ValidateSubmit(); err != nil {
		return cfg, err
	}
	return cfg, app.CheckPlaces(cfg)
}

// show prints the sweeps and writes what else was asked for.
func (s *sweeping) show(ctx context.Context, grids []grid, asJSON bool, stdout, stderr io.Writer) error {
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
			o, err := r.options(ctx, g.jobs[0], stderr)
			if err != nil {
				return err
			}
			c, err := compareChecked(g.jobs, o, true)
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
		return printJSON(stdout, grids)
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
	if len(grids) == 1 {
		return nil
	}
	var lines []report.SweepLine
	for _, g := range grids {
		lines = append(lines, report.SweepLine{Name: g.Name, Sweep: g.Sweep})
	}
	return report.SweepTable(stdout, lines)
}

// lookahead is a number of drafted tokens, or one of those below.
type lookahead int

const (
	none lookahead = 0                // autoregressive sampling
	auto lookahead = configs.MaxK + 1 // chosen from loop to loop; behind all others
)

func (k lookahead) String() string {
	if k == auto {
		return configs.LookaheadAuto
	}
	return strconv.Itoa(int(k))
}

// lookaheads reads "0..8" or "0,2,4,auto".
func lookaheads(text string) ([]lookahead, error) {
	var ks []lookahead
	bad := func() error {
		return configs.Usagef("--k: want a range such as 0..8, or numbers with commas, each 0 to %d, and auto, two in all, got %q", configs.MaxK, text)
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == configs.LookaheadAuto {
			ks = append(ks, auto)
			continue
		}
		from, to, isRange := strings.Cut(part, "..")
		if !isRange {
			to = from
		}
		a, err1 := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || a < 0 || a > b || b > configs.MaxK {
			return nil, bad()
		}
		for k := a; k <= b; k++ {
			ks = append(ks, lookahead(k))
		}
	}
	slices.Sort(ks)
	if ks = slices.Compact(ks); len(ks) < 2 {
		return nil, bad()
	}
	return ks, nil
}
