package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline/verify"
	"github.com/draftmill/draftmill/storage"
)

// verifyCommand replays a job from its log.
func verifyCommand() *cobra.Command {
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify JOB",
		Short: "replay every decision of a job from its log, without the models",
		Long: `verify derives every accept coin from the job's seed again, decides every accept
or reject again from the logged p and q, adds up every count again, and checks
every file against its digest. It prints what holds, or names the first row that
does not and ends with exit code 1. A job that is not complete is replayed as
far as it is committed. Nothing is written.`,
		Example: `  submit verify minieval-3f2a9c41
  submit verify --out /data/runs xsum
  submit verify out/minieval-3f2a9c41`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return configs.Usagef("name one job or its folder: %s JOB", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := openJob(args[0], out)
			if err != nil {
				return err
			}
			counts, err := verify.Job(job)
			if failure, ok := errors.AsType[*verify.Failure](err); ok {
				return fmt.Errorf("job %s does not hold: %w", job.Name(), failure)
			}
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(counts)
			}
			return showCounts(cmd.OutOrStdout(), job, counts)
		},
	}
	cmd.Flags().StringVar(&out, "out", "out", "output `DIR` in which the job's folder is")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the counts as JSON")
	return cmd
}

// openJob opens a job by the path of its folder, or by its name within out.
func openJob(name, out string) (*storage.Job, error) {
	dir := name
	if !isJob(dir) {
		if dir = filepath.Join(out, name); !isJob(dir) {
			return nil, configs.Usagef("no job %s in %s, and no job folder of this path; name the folder, or the output folder with --out", name, out)
		}
	}
	return storage.OpenJob(dir)
}

func isJob(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "job.json"))
	return !errors.Is(err, fs.ErrNotExist)
}

// showCounts prints what was replayed, for people.
func showCounts(w io.Writer, job *storage.Job, n *verify.Counts) error {
	state := "complete"
	if !n.Complete {
		state = "not complete: only what is committed was replayed"
	}
	fmt.Fprintf(w, "job %s in %s holds (%s).\n\n", n.Job, job.Dir(), state)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tcompletions\ttokens\tloops\tdrafted\tcoins replayed\taccepted\t")
	for _, m := range n.Modes {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", m.Mode, m.Completions, m.Tokens, m.Loops, m.Drafted, m.Examined, m.Accepted)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the counts: %w", err)
	}
	_, err := fmt.Fprintf(w, "\n%d shards, %d files, %d bytes, every digest checked.\nRule %s is %s.\n", n.Shards, n.Files, n.Bytes, n.Rule, n.Bound)
	return err
}
