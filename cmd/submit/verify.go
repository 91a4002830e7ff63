package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline/replay"
	"github.com/draftmill/draftmill/pipeline/verify"
	"github.com/draftmill/draftmill/storage"
	"github.com/draftmill/draftmill/storage/bucket"
)

// verifying is what submit verify is told.
type verifying struct {
	models  bool
	dataset string
	tie     float64
	json    bool
	pubkey  string
	key     ed25519.PublicKey
}

// verifyCommand holds a job to its log, and to its models.
func verifyCommand() *cobra.Command {
	var v verifying
	cmd := &cobra.Command{
		Use:   "verify JOB",
		Short: "replay every decision of a job from its log, or from its models",
		Long: `verify derives every accept coin from the job's seed again, decides every accept
or reject again from the logged p and q, adds up every count again, and checks
every file against its digest. Where the target's folder is at hand, every text is
derived from its tokens again. It prints what holds, or names the first row that
does not and ends with exit code 1. A job that is not complete is replayed as far
as it is committed. Nothing is written.

With --models the target reads every prompt of the dataset and every token of the
log again, many tokens a pass, and draws every token again. That finds what a log
cannot show: a token, a text or a row that was changed with all digests made anew.
In mode ars, under the rules coupled and match and at temperature 0 the target
alone decides over every token. Under the other rules it takes the draft too; with
the target alone, accepted and recovered tokens are checked against the target's
probabilities and the logged ones of the draft.

With --pubkey the manifest has to be signed with that key (submit --sign): it
names every file by its digest.`,
		Example: `  submit verify minieval-3f2a9c41
  submit verify --out /data/runs xsum
  submit verify out/minieval-3f2a9c41 --models --pubkey lab.pub
  submit verify out/humaneval --models --target llama-1b \
      --dataset humaneval.parquet`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return configs.Usagef("name one job or its folder: %s JOB", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := configs.Load(cmd.Flags())
			if err != nil {
				return err
			}
			return v.run(cmd.Context(), cfg, args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	configs.ModelFlags(f)
	f.BoolVar(&v.models, "models", false, "hold the log against the models too")
	f.StringVar(&v.dataset, "dataset", "", "with --models, the dataset `FILE`, or its name on the Hub (default: where it was when the job was submitted)")
	f.Float64Var(&v.tie, "tie", replay.DefaultTie, "with --models, what log-probabilities (logits at temperature 0) may be off by rounding: `D`")
	f.StringVar(&v.pubkey, "pubkey", "", "check the manifest's signature with the ed25519 public key in `FILE` (openssl pkey -in PRIVATE -pubout -out FILE)")
	f.BoolVar(&v.json, "json", false, "print the counts as JSON")
	return cmd
}

// verified is what holds.
type verified struct {
	*verify.Counts
	Models *replay.Counts `json:"models,omitempty"` // with --models

	noTexts, noDrafts string // why they were not looked at
}

func (v *verifying) run(parent context.Context, cfg configs.Config, name string, stdout, stderr io.Writer) error {
	if !(v.tie >= 0 && v.tie < 1) {
		return configs.Usagef("--tie: want 0 or more and less than 1, got %v", v.tie)
	}
	var err error
	if v.pubkey != "" {
		if v.key, err = publicKey(v.pubkey); err != nil {
			return err
		}
	}
	ctx, _, stop := app.Signals(parent, 0)
	defer stop()
	folder, err := openJob(name, cfg.Out)
	if err != nil {
		return err
	}
	models := app.NewReaders(cfg, app.Logger(cfg.Log, stderr))
	models.Interrupt(ctx)
	defer models.Close()
	var held verified
	m, err := openJobModels(cfg, folder, models)
	switch {
	case err != nil:
	case v.models:
		err = v.replay(ctx, m, &held, stderr)
	default:
		err = v.log(m, &held)
	}
	if failure, ok := errors.AsType[*verify.Failure](err); ok {
		return fmt.Errorf("job %s does not hold: %w", folder.Name(), failure)
	}
	if err != nil {
		return interrupted(ctx, err)
	}
	if v.json {
		return printJSON(stdout, &held)
	}
	return held.text(stdout, folder)
}

// log checks a job by its files, and by its tokenizer where that is at hand.
func (v *verifying) log(m *jobModels, held *verified) (err error) {
	o := verify.Options{PublicKey: v.key}
	if o.Tokenizer, o.EOS, held.noTexts, err = m.words(); err == nil {
		held.Counts, err = verify.Job(m.folder, o)
	}
	return err
}

// replay checks a job by its files and its models.
func (v *verifying) replay(ctx context.Context, m *jobModels, held *verified, stderr io.Writer) (err error) {
	dataset, err := openScored(ctx, m.folder, v.dataset)
	if err != nil {
		return err
	}
	defer closing(&err, dataset.Close)
	o := replay.Options{Tie: v.tie, PublicKey: v.key}
	if line := progressLine(stderr, "verify"); line != nil {
		of := 0
		if plan, err := m.folder.Plan(); err == nil {
			of = int(plan.Rows) * m.job.Samples * len(m.job.Modes)
		}
		o.Progress = func(n int64) { line("completions", int(n), of) }
	}
	pair, release, why, err := m.open(ctx, true)
	if err != nil {
		return err
	}
	defer release()
	o.Pair, held.noDrafts = pair, why
	held.Counts, held.Models, err = replay.Job(ctx, m.folder, dataset, o)
	return err
}

// openJob opens a job by the path or URL of its folder, or by its name within out.
func openJob(name, out string) (*storage.Job, error) {
	job, err := storage.OpenJob(name)
	if bucket.NotExist(err) && !bucket.IsURL(name) {
		job, err = storage.OpenJob(bucket.Join(out, name))
	}
	if bucket.NotExist(err) {
		return nil, configs.Usagef("no job %s in %s, and no job folder of this path; name the folder, or the output folder with --out", name, out)
	}
	return job, err
}

// text prints what holds, for people.
func (n *verified) text(w io.Writer, job *storage.Job) error {
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
	fmt.Fprintf(w, "\n%d shards, %d files, %d bytes, every digest checked.\n", n.Shards, n.Files, n.Bytes)
	if n.Signed {
		fmt.Fprintln(w, "The manifest's signature is of the public key's owner.")
	} else if _, err := job.Signature(); err == nil {
		fmt.Fprintln(w, "The manifest is signed; name the public key with --pubkey to check that.")
	}
	if n.Texts {
		fmt.Fprintln(w, "Every text is that of its tokens.")
	} else {
		fmt.Fprintf(w, "Texts were not held against their tokens: %s.\n", n.noTexts)
	}
	if n.Models != nil {
		if err := n.modelsText(w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "Rule %s is %s.\n", n.Rule, n.Bound)
	return err
}

// modelsText prints what the models say.
func (n *verified) modelsText(w io.Writer) error {
	fmt.Fprint(w, "\nHeld against the models:\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tcompletions\tfailed again\ttokens\tdrawn again\ton the draft's word\tties\t")
	for _, m := range n.Models.Modes {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", m.Mode, m.Completions, m.Errors, m.Tokens, m.Drawn, m.Believed, m.Ties)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the counts: %w", err)
	}
	fmt.Fprintln(w)
	for _, x := range n.Models.Ties {
		logged := ""
		if x.Margin != nil {
			logged = fmt.Sprintf(", logged margin %.2g", *x.Margin)
		}
		fmt.Fprintf(w, "tie: %s row %d (%s) sample %d token %d: %s, %.2g off%s\n", x.Mode, x.Row, x.RowID, x.Sample, x.Token, x.What, x.Distance, logged)
	}
	if n.noDrafts != "" {
		fmt.Fprintf(w, "Drafted tokens and their p were not drawn again: %s.\n", n.noDrafts)
	}
	return nil
}
