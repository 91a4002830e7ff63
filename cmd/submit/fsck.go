package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/storage"
)

// fsckCommand holds a job's folder, manifests and queue against each other.
func fsckCommand() *cobra.Command {
	var f fsck
	cmd := &cobra.Command{
		Use:   "fsck JOB",
		Short: "say what of a job is missing, doubled or damaged, and mend it",
		Long: `fsck reads every file of a job to its end and holds it against its digest, and the
job's plan, manifests, files and marks against each other. With --nats it asks the
server too which of the missing shards are queued or were set aside. It changes
nothing and ends with exit code 1 when something is wrong; shards that are queued
are not.

With --repair, damaged and doubled files are put aside into _damaged, interrupted
commits are completed or withdrawn, and with --nats what is missing is queued
again. Without --nats, run the job's submit command again: it decodes what is
missing. Exit code 0 then says that nothing is wrong any more.`,
		Example: `  submit fsck out/humaneval
  submit fsck s3://bucket/runs/humaneval --nats nats://queue:4222 --repair`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return configs.Usagef("name one job, its folder or its URL: %s JOB", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := jobSettings(cmd, false)
			if err != nil {
				return err
			}
			f.stdout = cmd.OutOrStdout()
			ctx, drain, stop := app.Signals(cmd.Context(), 0)
			defer stop()
			return interrupted(drain, f.open(ctx, drain, cfg, args[0], cmd.ErrOrStderr()))
		},
	}
	configs.JobFlags(cmd.Flags())
	cmd.Flags().BoolVar(&f.mend, "repair", false, "mend what can be mended, and queue again what is missing")
	cmd.Flags().StringVar(&f.dataset, "dataset", "", "with --repair, the dataset `FILE`, or its name on the Hub (default: where it was when the job was submitted)")
	return cmd
}

// fsck is one look at a job.
type fsck struct {
	folder  *storage.Job
	scope   string
	q       *queue.Queue // nil: not asked
	mend    bool
	dataset string
	asJSON  bool
	stdout  io.Writer
}

// open finds the job and its queue. ctx is for the connection, drain ends the work.
func (f *fsck) open(ctx, drain context.Context, cfg configs.Config, name string, stderr io.Writer) (err error) {
	f.asJSON = cfg.JSON
	if f.folder, err = openJob(name, cfg.Out); err != nil {
		return err
	}
	if f.scope, err = scope(f.folder); err != nil {
		return err
	}
	if cfg.NATS.URL != "" {
		if f.q, err = queue.Connect(ctx, cfg.NATS.URL, app.QueueOptions(cfg.NATS, app.Logger(cfg.Log, stderr))); err != nil {
			return err
		}
		defer closing(&err, f.q.Close)
	}
	return f.run(drain)
}

// fsckResult is what fsck says.
type fsckResult struct {
	*storage.Examination
	Queue   *fsckQueue `json:"queue,omitempty"`
	Waiting int        `json:"waiting"`         // missing shards that are queued: no fault
	Mended  []string   `json:"mended,omitzero"` // by --repair
	Queued  int        `json:"queued_again"`    // shards, by --repair
}

// fsckQueue is what the server says of the job.
type fsckQueue struct {
	Queued   int `json:"queued"`
	SetAside int `json:"set_aside"`
	Late     int `json:"late"` // queued, and committed already: a worker will let them go
}

func (f *fsck) run(ctx context.Context) error {
	r, err := f.look(ctx)
	if err != nil {
		return err
	}
	if f.mend && (len(r.Findings) > 0 || r.Queue != nil && r.Queue.SetAside > 0) {
		found := r.Findings
		again, err := f.repair(ctx, r)
		if err != nil {
			return err
		}
		if r, err = f.look(ctx); err != nil {
			return err
		}
		r.Queued = again
		for _, was := range found {
			if !slices.ContainsFunc(r.Findings, func(now storage.Finding) bool { return now.Path == was.Path && now.Kind == was.Kind }) {
				r.Mended = append(r.Mended, was.Path+": "+was.What)
			}
		}
	}
	if err := f.print(r); err != nil {
		return err
	}
	if n := len(r.Findings); n > 0 {
		remedy := "--repair mends what can be mended"
		if f.mend {
			remedy = "what is missing is decoded when the job is submitted again"
		}
		return fmt.Errorf("job %s: %d things are not as they should be; %s", f.folder.Name(), n, remedy)
	}
	return nil
}

// look examines the folder, and lays the queue beside it.
func (f *fsck) look(ctx context.Context) (*fsckResult, error) {
	queued, reasons := map[string]bool{}, map[string]string{}
	if f.q != nil { // before the folder: what is committed meanwhile is then not missing
		o := &overseer{f.q, f.scope}
		keys, err := o.Queued(ctx)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			queued[k] = true
		}
		if reasons, err = o.Rejected(ctx); err != nil {
			return nil, err
		}
	}
	e, err := f.folder.Examine(ctx)
	if err != nil {
		return nil, err
	}
	r := &fsckResult{Examination: e}
	if f.q == nil {
		return r, nil
	}
	r.Queue = &fsckQueue{Queued: len(queued), SetAside: len(reasons), Late: len(queued)}
	name, run, _ := strings.Cut(f.scope, "/")
	kept := []storage.Finding{}
	for _, x := range e.Findings {
		if x.Kind == storage.FindMissing && x.Shard >= 0 {
			key := pipeline.Key(name, run, pipeline.Mode(x.Mode), x.Shard)
			reason, rejected := reasons[key]
			switch {
			case queued[key]:
				r.Waiting++
				r.Queue.Late--
				continue
			case rejected:
				x.What += "; it was set aside: " + reason
			default:
				x.What += ", and not queued"
			}
		}
		kept = append(kept, x)
	}
	e.Findings = kept
	return r, nil
}

// repair mends the folder and queues what is missing.
func (f *fsck) repair(ctx context.Context, r *fsckResult) (queued int, err error) {
	unlock, err := f.folder.Lock(ctx)
	if err != nil {
		return 0, err
	}
	defer closing(&err, unlock)
	idle := r.Queue != nil && r.Queue.Queued == 0
	if err := f.folder.Repair(ctx, r.Examination, idle); err != nil {
		return 0, err
	}
	if f.q == nil {
		return 0, nil
	}
	if queued, err = f.q.Retry(ctx, f.scope); err != nil {
		return queued, err
	}
	if _, err := f.folder.Plan(); errors.Is(err, storage.ErrNoPlan) {
		return queued, nil // how much is missing only a submit can tell
	}
	job, err := specOf(f.folder)
	if err != nil {
		return queued, err
	}
	was := f.folder.Place()
	out, err := outOf(f.folder)
	if err != nil {
		return queued, err
	}
	s := pipeline.Submitter{
		Job: *job, Folder: f.folder, Publisher: f.q, Overseer: &overseer{f.q, f.scope},
		Place: pipeline.Place{Out: out, Target: was.Target, Draft: was.Draft, Table: was.Table},
		Reopen: func() (pipeline.Rows, func() error, error) {
			d, err := openScored(ctx, f.folder, f.dataset)
			if err != nil {
				return nil, nil, err
			}
			return d, d.Close, nil
		},
	}
	n, err := s.Mend(ctx)
	return queued + n, err
}

func (f *fsck) print(r *fsckResult) error {
	if f.asJSON {
		return printJSON(f.stdout, r)
	}
	state := "not complete"
	if r.Complete {
		state = "complete"
	}
	fmt.Fprintf(f.stdout, "job %s in %s is %s: %d of %d shards are whole, %d files of %d bytes read\n", r.Job, r.Dir, state, r.Whole, r.Planned, r.Files, r.Bytes)
	if q := r.Queue; q != nil {
		fmt.Fprintf(f.stdout, "queue: %d shards are queued, %d of them committed already; %d were set aside\n", q.Queued, q.Late, q.SetAside)
	}
	for _, m := range r.Mended {
		fmt.Fprintf(f.stdout, "mended: %s\n", m)
	}
	if r.Queued > 0 {
		fmt.Fprintf(f.stdout, "queued again: %d shards\n", r.Queued)
	}
	if len(r.Findings) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(f.stdout, 0, 0, 2, ' ', 0)
	for _, x := range r.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\n", x.Kind, x.Path, x.What)
	}
	return w.Flush()
}
