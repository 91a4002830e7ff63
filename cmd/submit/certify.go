package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/certify"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/storage"
)

// trial is what certify is told beyond a job's settings.
type trial struct {
	prompts, samples, tokens int
	level, power             float64
	output                   string
}

// certifyCommand tests the models of a configuration for losslessness.
func certifyCommand() *cobra.Command {
	var t trial
	cmd := &cobra.Command{
		Use:   "certify --dataset FILE [flags]",
		Short: "test on your own models that speculative sampling draws from the target's law",
		Long: `certify decodes the first tokens behind a dataset's prompts many times, with the
models and the sampling settings given, and compares where they fall with the
target's exact distribution; autoregressive sampling is the control. It prints a
certificate and writes it to --output as JSON. Exit code 1 means that a bias was
found, or that the control failed.

Settings are those of a job; of the dataset it takes prompts at even distances.`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := configs.Load(cmd.Flags())
			if err != nil {
				return err
			}
			cfg.Mode = configs.ModeSpS
			if err := cfg.ValidateSubmit(); err != nil {
				return err
			}
			if err := t.validate(); err != nil {
				return err
			}
			return t.run(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	configs.SubmitFlags(cmd.Flags())
	for _, unused := range []string{"mode", "n", "max-new-tokens", "stop", "shard-rows", "out", "job", "nats", "workers", "detach", "json", "limit"} {
		if err := cmd.Flags().MarkHidden(unused); err != nil {
			panic(err) // a flag was renamed
		}
	}
	cmd.Flags().IntVar(&t.prompts, "prompts", 8, "`N` prompts of the dataset")
	cmd.Flags().IntVar(&t.samples, "samples", 300, "`N` samples of each prompt, in each mode")
	cmd.Flags().IntVar(&t.tokens, "tokens", 12, "`N` first tokens to test")
	cmd.Flags().Float64Var(&t.level, "level", 0.001, "chance `P` that a correct engine fails")
	cmd.Flags().Float64Var(&t.power, "power", 0.9, "chance `P` of finding a bias of the size that the certificate states")
	cmd.Flags().StringVar(&t.output, "output", "certificate.json", "`FILE` for the certificate")
	return cmd
}

func (t *trial) validate() error {
	for _, n := range []struct {
		flag  string
		value int
	}{{"prompts", t.prompts}, {"samples", t.samples}, {"tokens", t.tokens}} {
		if n.value < 1 {
			return configs.Usagef("--%s: want at least 1, got %d", n.flag, n.value)
		}
	}
	if !(t.level > 0 && t.level < 0.5) || !(t.power > 0 && t.power < 1) {
		return configs.Usagef("--level %v and --power %v: want a level between 0 and 0.5 and a power between 0 and 1", t.level, t.power)
	}
	return nil
}

func (t *trial) run(parent context.Context, cfg configs.Config, stdout, stderr io.Writer) (err error) {
	ctx, _, stop := app.Signals(parent, 0)
	defer stop()
	if !cfg.IsSet("lanes") {
		cfg.Lanes = "8" // the samples of a prompt are many, and share its prefill
	}
	models := app.NewModels(cfg, app.Logger(cfg.Log, stderr))
	defer models.Close()
	dataset, err := storage.OpenDataset(cfg.Dataset, storage.Columns{Prompt: cfg.PromptColumn, ID: cfg.IDColumn})
	if err != nil {
		return err
	}
	defer closing(&err, dataset.Close)
	job, place, err := describe(cfg, models, dataset.Info())
	if err != nil {
		return err
	}
	pair, release, err := models.Open(pipeline.Place{}, 0)(ctx, job, place, pipeline.SpS)
	if err != nil {
		return err
	}
	defer release()
	prompts, err := t.choose(dataset, job, pair)
	if err != nil {
		return err
	}
	settings, err := job.Settings(pipeline.SpS)
	if err != nil {
		return err
	}
	if settings.Lanes, settings.AutoLanes, err = cfg.Lanes.Count(); err != nil {
		return err
	}
	plan := certify.Plan{
		Settings: settings, Prompts: prompts, Samples: t.samples, Tokens: t.tokens,
		Seed: job.Seed, Level: t.level, Power: t.power,
	}
	began := time.Now()
	c, err := certify.Run(ctx, pair, plan, func(done, of int) {
		fmt.Fprintf(stderr, "\rcertify: %d of %d prompts, %s", done, of, time.Since(began).Round(time.Second))
	})
	fmt.Fprintln(stderr)
	if err != nil {
		return interrupted(ctx, err)
	}
	if err := t.write(job, c); err != nil {
		return err
	}
	if err := c.Text(stdout); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "written to %s\n", t.output)
	if c.Verdict != certify.Pass {
		return fmt.Errorf("the certificate says %s: %s", c.Verdict, c.Reason)
	}
	return nil
}

// choose tokenizes prompts at even distances over the dataset, leaving out
// what cannot be decoded.
func (t *trial) choose(dataset *storage.Dataset, job *pipeline.Job, pair engine.Pair) ([][]int32, error) {
	var all [][]int32
	for row, err := range job.Prompts(dataset) {
		if err != nil {
			return nil, err
		}
		if row.Null {
			continue
		}
		prompt, err := pair.Tokenizer.Encode(string(row.Prompt))
		if err == nil && len(prompt) > 0 && len(prompt)+t.tokens < pair.Target.Context() {
			all = append(all, prompt)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no prompt of the dataset can be decoded")
	}
	n := min(t.prompts, len(all))
	prompts := make([][]int32, n)
	for i := range prompts {
		prompts[i] = all[i*len(all)/n]
	}
	return prompts, nil
}

// write keeps the certificate with what it is about.
func (t *trial) write(job *pipeline.Job, c *certify.Certificate) error {
	data, err := json.MarshalIndent(struct {
		Target  pipeline.Model   `json:"target"`
		Draft   *pipeline.Model  `json:"draft,omitempty"`
		Dataset pipeline.Dataset `json:"dataset"`
		*certify.Certificate
	}{job.Target, job.Draft, job.Dataset, c}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	if err := os.WriteFile(t.output, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	return nil
}
