package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/storage"
	"github.com/draftmill/draftmill/storage/bucket"
)

// jobCommands look after jobs that are queued on a NATS server.
func jobCommands() []*cobra.Command {
	const nats = " --nats nats://queue:4222"
	status := jobCommand("status [JOB]", "how far a job is, or all that are queued", 0, "  submit status"+nats+"\n  submit status humaneval --watch"+nats, `status says what is committed, what is queued and what was set aside. It may run
on any machine that reaches the server; what is committed it sees where the
job's folder is.`, showStatus)
	status.Flags().Bool("watch", false, "say it again every two seconds, until the job is complete")
	return []*cobra.Command{
		status,
		jobCommand("list", "the jobs that are queued", -1, "  submit list"+nats+"\n  submit list --json"+nats, `list names every job that has shards on the server, waiting, in a worker's hands
or set aside.`, showStatus),
		jobCommand("attach JOB", "show the progress of a job that was detached, and wait for it", 1, "  submit attach humaneval"+nats, `attach waits for a job as submit does, and prints its summary. Ctrl-C leaves the
job running.`, attach),
		jobCommand("cancel JOB", "take a job off the queue; what is committed is kept", 1, "  submit cancel humaneval"+nats, `cancel takes the job's shards off the queue. Those in a worker's hands are
finished. Submitting the job again decodes the rest.`, cancelJob),
		jobCommand("retry JOB", "queue the shards again that were set aside", 1, "  submit retry humaneval"+nats, `retry puts the job's dead letters back on the queue, with no attempts counted.`, retryJob),
	}
}

// jobRequest is what a command for jobs was asked.
type jobRequest struct {
	cfg            configs.Config
	job            string // as given; may be a folder
	watch          bool
	done           []changed
	stdout, stderr io.Writer
}

// jobCommand makes a command with one job as its argument: needed, optional (0)
// or none (-1).
func jobCommand(use, short string, arguments int, example, long string, run func(context.Context, *queue.Queue, jobRequest) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if arguments == 1 && len(args) != 1 {
				return configs.Usagef("name one job or its folder: %s JOB", cmd.CommandPath())
			}
			if len(args) > max(arguments, 0) && (arguments != 0 || len(args) > 1) {
				return app.NoArguments(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := jobSettings(cmd, true)
			if err != nil {
				return err
			}
			r := jobRequest{cfg: cfg, stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr()}
			if len(args) == 1 {
				r.job = args[0]
			}
			r.watch, _ = cmd.Flags().GetBool("watch") // false where there is no such flag
			ctx, drain, stop := app.Signals(cmd.Context(), 0)
			defer stop()
			q, err := queue.Connect(ctx, cfg.NATS.URL, app.QueueOptions(cfg.NATS, app.Logger(cfg.Log, r.stderr)))
			if err != nil {
				return err
			}
			return errors.Join(run(drain, q, r), q.Close())
		},
	}
	configs.JobFlags(cmd.Flags())
	return cmd
}

// jobSettings reads and checks the settings of a command on jobs; server says
// whether it needs one.
func jobSettings(cmd *cobra.Command, server bool) (configs.Config, error) {
	cfg, err := configs.Load(cmd.Flags())
	if err == nil {
		err = cfg.ValidateJobs(server)
	}
	if err == nil {
		err = app.CheckPlaces(cfg)
	}
	return cfg, err
}

// name is the job's name, and folder its folder, nil where it is not here.
func (r *jobRequest) open() (name string, folder *storage.Job, err error) {
	if folder, err = openJob(r.job, r.cfg.Out); err == nil {
		return folder.Name(), folder, nil
	}
	if nameErr := storage.CheckName(r.job); nameErr != nil {
		return "", nil, err // it is a path, and no job lies there
	}
	return r.job, nil, nil
}

// outOf is where a job's folder lies.
func outOf(folder *storage.Job) (string, error) {
	dir, err := bucket.Clean(folder.Dir())
	if err != nil {
		return "", fmt.Errorf("make %s an absolute path: %w", folder.Dir(), err)
	}
	out, _ := bucket.Split(dir)
	return out, nil
}

// scope is the run of a job whose folder is here, as its keys begin.
func scope(folder *storage.Job) (string, error) {
	out, err := outOf(folder)
	if err != nil {
		return "", err
	}
	return folder.Name() + "/" + pipeline.Run(folder.Spec(), out), nil
}

// specOf is the specification of a job.
func specOf(folder *storage.Job) (*pipeline.Job, error) {
	var job pipeline.Job
	if err := json.Unmarshal(folder.Spec(), &job); err != nil {
		return nil, fmt.Errorf("read the specification of job %s: %w", folder.Name(), err)
	}
	return &job, nil
}

// jobStatus is one line of status.
type jobStatus struct {
	queue.JobState
	Committed map[string]int `json:"committed,omitempty"` // shards by mode; nil where the folder is not here
	Shards    int            `json:"shards,omitempty"`    // of each mode; 0 while unknown
	State     string         `json:"state"`
}

func showStatus(ctx context.Context, q *queue.Queue, r jobRequest) error {
	for {
		list, err := r.status(ctx, q)
		if err != nil {
			return err
		}
		if err := r.print(list); err != nil {
			return err
		}
		over := !r.watch
		if len(list) == 1 && (list[0].State == "complete" || list[0].State == "cancelled") {
			over = true
		}
		if over {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
}

func (r *jobRequest) status(ctx context.Context, q *queue.Queue) ([]jobStatus, error) {
	name, own := "", ""
	var folder *storage.Job
	if r.job != "" {
		var err error
		if name, folder, err = r.open(); err != nil {
			return nil, err
		}
		if folder != nil {
			if own, err = scope(folder); err != nil {
				return nil, err
			}
		}
	}
	jobs, err := q.Jobs(ctx, name)
	if err != nil {
		return nil, err
	}
	var list []jobStatus
	found := false
	for _, j := range jobs {
		if own != "" && j.Scope != own {
			continue // a namesake in another folder
		}
		s := jobStatus{JobState: j, State: "queued"}
		if own != "" {
			found = true
			if err := s.look(folder); err != nil {
				return nil, err
			}
		}
		list = append(list, s)
	}
	if own != "" && !found {
		s := jobStatus{JobState: queue.JobState{Scope: own}, State: "not queued"}
		if err := s.look(folder); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	if name != "" && len(list) == 0 {
		return nil, fmt.Errorf("job %s is not on the server, and not in %s; name its output folder with --out", name, r.cfg.Out)
	}
	return list, nil
}

// look adds what the job's folder says.
func (s *jobStatus) look(folder *storage.Job) error {
	spec, err := specOf(folder)
	if err != nil {
		return err
	}
	s.Committed = map[string]int{}
	for _, m := range spec.Modes {
		n, err := folder.CountCommitted(string(m))
		if err != nil {
			return err
		}
		s.Committed[string(m)] = n
	}
	plan, err := folder.Plan()
	if err != nil && !errors.Is(err, storage.ErrNoPlan) {
		return err
	}
	s.Shards = plan.Shards
	cancelled, err := folder.Cancelled()
	switch {
	case err != nil:
		return err
	case folder.Done():
		s.State = "complete"
	case cancelled:
		s.State = "cancelled"
	}
	return nil
}

func (r *jobRequest) print(list []jobStatus) error {
	if r.cfg.JSON {
		return printJSON(r.stdout, list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(r.stdout, "no job is queued")
		return err
	}
	for _, s := range list {
		job, run, _ := strings.Cut(s.Scope, "/")
		var committed []string
		for _, m := range []string{"ars", "sps"} {
			if n, ok := s.Committed[m]; ok && s.Shards > 0 {
				committed = append(committed, fmt.Sprintf("%s %d/%d", m, n, s.Shards))
			} else if ok {
				committed = append(committed, fmt.Sprintf("%s %d", m, n))
			}
		}
		if committed == nil {
			committed = []string{"? (its folder is not here)"}
		}
		if _, err := fmt.Fprintf(r.stdout, "%s: %s\n  committed %s\n  queued %d, in hand %d, set aside %d; priority %d\n  run %s\n", job, s.State, strings.Join(committed, ", "), s.Queued, s.InHand, s.Dead, s.Priority, run); err != nil {
			return err
		}
	}
	return nil
}

// scopes are the runs that a command for JOB is about: the one whose folder is
// here, else all of that name.
func (r *jobRequest) scopes(ctx context.Context, q *queue.Queue) ([]string, *storage.Job, error) {
	name, folder, err := r.open()
	if err != nil {
		return nil, nil, err
	}
	if folder != nil {
		own, err := scope(folder)
		return []string{own}, folder, err
	}
	jobs, err := q.Jobs(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if len(jobs) != 1 {
		return nil, nil, fmt.Errorf("%d runs of job %s are on the server and its folder is not in %s; name its output folder with --out", len(jobs), name, r.cfg.Out)
	}
	return []string{jobs[0].Scope}, nil, nil
}

func cancelJob(ctx context.Context, q *queue.Queue, r jobRequest) error {
	scopes, folder, err := r.scopes(ctx, q)
	if err != nil {
		return err
	}
	if folder != nil { // first: who waits for the job must not queue its shards again
		if err := folder.Cancel(); err != nil {
			return err
		}
	}
	for _, s := range scopes {
		jobs, err := q.Jobs(ctx, s)
		if err != nil {
			return err
		}
		if err := errors.Join(q.Purge(ctx, s), q.PurgeDeadLetters(ctx, s)); err != nil {
			return err
		}
		n := 0
		for _, j := range jobs {
			n += j.Queued + j.Dead
		}
		r.did(s, n, "%s is cancelled: %d shards taken off the queue; what is committed is kept\n")
	}
	return r.report()
}

func retryJob(ctx context.Context, q *queue.Queue, r jobRequest) error {
	scopes, _, err := r.scopes(ctx, q)
	if err != nil {
		return err
	}
	for _, s := range scopes {
		n, err := q.Retry(ctx, s)
		if err != nil {
			return err
		}
		r.did(s, n, "%s: %d shards queued again\n")
	}
	return r.report()
}

// changed is what a command did to one run of a job.
type changed struct {
	Scope  string `json:"scope"` // job and run
	Shards int    `json:"shards"`
}

// did says what was done: at once for people, in report's list for programs.
func (r *jobRequest) did(scope string, shards int, text string) {
	r.done = append(r.done, changed{scope, shards})
	if !r.cfg.JSON {
		fmt.Fprintf(r.stdout, text, scope, shards)
	}
}

func (r *jobRequest) report() error {
	if !r.cfg.JSON {
		return nil
	}
	return printJSON(r.stdout, r.done)
}

// errDetached ends attach before the job's end.
var errDetached = errors.New("detached; the job goes on")

func attach(ctx context.Context, q *queue.Queue, r jobRequest) error {
	folder, err := openJob(r.job, r.cfg.Out)
	if err != nil {
		return err
	}
	own, err := scope(folder)
	if err != nil {
		return err
	}
	out, err := outOf(folder)
	if err != nil {
		return err
	}
	job, err := specOf(folder)
	if err != nil {
		return err
	}
	log := app.Logger(r.cfg.Log, r.stderr)
	s := &submission{
		cfg: r.cfg, job: job, place: pipeline.Place{Out: out}, folder: folder, scope: own, log: log, stderr: r.stderr,
	}
	board := newBoard(r.stderr, s.job.Modes)
	defer board.close()
	tick := make(chan struct{}, 1)
	if err := s.watch(ctx, q, board, tick); err != nil {
		return err
	}
	if plan, err := folder.Plan(); err == nil {
		for _, m := range s.job.Modes {
			n, err := folder.CountCommitted(string(m))
			if err != nil {
				return err
			}
			done := min(int64(n)*int64(s.job.ShardRows), plan.Rows)
			board.seen(m, done*int64(s.job.Samples), true)
			board.seen(m, (plan.Rows-done)*int64(s.job.Samples), false)
		}
	}
	submitter := pipeline.Submitter{Job: *s.job, Place: s.place, Folder: folder, Overseer: &overseer{q, own}, Log: log}
	if err := submitter.Wait(ctx, tick); err != nil {
		if ctx.Err() != nil {
			return errDetached
		}
		return err
	}
	if err := q.Finish(ctx, own); err != nil { // the next submit tidies up
		log.Debug("the queue keeps the job's consumer", "err", err)
	}
	if err := present(folder, r.cfg.JSON, false, r.stdout); err != nil {
		return err
	}
	return failures(folder, r.stderr)
}
