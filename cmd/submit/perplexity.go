package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/replay"
)

// reading is what perplexity is told.
type reading struct {
	texts     columnTexts
	reference string
	asJSON    bool
}

// perplexityCommand says how well models predict texts.
func perplexityCommand() *cobra.Command {
	var r reading
	cmd := &cobra.Command{
		Use:   "perplexity MODEL [MODEL...] --dataset FILE [flags]",
		Short: "how well models predict texts: what a precision costs",
		Long: `perplexity has each model read the texts of a dataset and prints its perplexity of
their tokens, exp(-1/n sum of log q(x)), the first token of each text left out.
Models of one tokenizer can be compared by it, such as one model in several
precisions. A text longer than the context, or than 4096 tokens, is cut.

Behind +- are standard errors over texts. A model's own says what other texts of the
kind would change, and most of that is the same for all models. To compare two, take
the error of the change: by how much a model's perplexity is above that of the
reference, or without one that of the first model, on the same texts.

With --reference each model is also held against that one: the mean Kullback-Leibler
divergence KL(reference || model) of a token, and how often both have the same most
probable token. A change may make a text likelier by chance; the divergence is zero
only where nothing has changed.`,
		Example: `  submit perplexity models/int8 models/int4 --dataset humaneval.parquet \
      --column prompt --column canonical_solution --reference models/fp16`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return configs.Usagef("name a model: %s MODEL --dataset FILE", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := configs.Load(cmd.Flags())
			if err != nil {
				return err
			}
			if r.texts.dataset == "" {
				return configs.Usagef("dataset: want texts; name a dataset with --dataset")
			}
			ctx, _, stop := app.Signals(cmd.Context(), 0)
			defer stop()
			return interrupted(ctx, r.run(ctx, cfg, args, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.texts.dataset, "dataset", "", "dataset `FILE`: Parquet, Arrow IPC or JSON Lines; or its name on the Hub")
	f.StringArrayVar(&r.texts.columns, "column", nil, "column `NAME` of the texts (default: the prompt, recognized by name); repeatable: a row's columns are joined in this order")
	f.IntVar(&r.texts.limit, "limit", 0, "take the first `N` rows only; 0 takes all")
	f.StringVar(&r.reference, "reference", "", "say how far the models are from `MODEL` too")
	f.BoolVar(&r.asJSON, "json", false, "print it as JSON")
	return cmd
}

// read is what one model made of the texts.
type read struct {
	Model      string  `json:"model"`
	MB         float64 `json:"mb"`
	Texts      int     `json:"texts"`
	Tokens     int     `json:"tokens"` // scored
	Perplexity float64 `json:"perplexity"`
	Standard   float64 `json:"log_standard_error"` // of log perplexity, over texts
	// From the reference, or the first model: the difference of log perplexity, and its
	// standard error over texts.
	Change         *float64 `json:"log_change,omitempty"`
	ChangeStandard *float64 `json:"log_change_standard_error,omitempty"`
	// From the reference, of a token: mean KL(reference || model), its standard error
	// over texts, and how often the most probable token is the same.
	Divergence         *float64 `json:"divergence,omitempty"`
	DivergenceStandard *float64 `json:"divergence_standard_error,omitempty"`
	Same               *float64 `json:"same_most_probable,omitempty"`
	// Of each text, to compare any two models by.
	Sums   []float64 `json:"log_likelihoods"`
	Counts []float64 `json:"text_tokens"`
}

func (r *reading) run(ctx context.Context, cfg configs.Config, names []string, stdout, stderr io.Writer) error {
	cfg.ORT.Device = "cpu"
	var reference *reader
	if r.reference != "" {
		var err error
		if reference, err = openReader(ctx, cfg, r.reference, stderr); err != nil {
			return fmt.Errorf("reference: %w", err)
		}
		defer reference.close()
	}
	var all []*read
	for _, name := range names {
		one, err := r.model(ctx, cfg, name, reference, stderr)
		if err != nil {
			return err
		}
		all = append(all, one)
		if reference == nil {
			one.changed(all[0].Sums, all[0].Counts)
		}
	}
	if r.asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(all)
	}
	return table(stdout, all)
}

// table prints models for people.
func table(out io.Writer, all []*read) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	distance := all[0].Divergence != nil
	change := distance || len(all) > 1
	row := func(always, changed, distant, rest string) {
		if change {
			always += changed
		}
		if distance {
			always += distant
		}
		fmt.Fprintln(w, always+rest)
	}
	row("perplexity\t+-\t", "change\t+-\t", "divergence\t+-\tsame top\t", "MB\ttexts\ttokens\t  model")
	for _, one := range all {
		changed, distant := "-\t-\t", ""
		if one.Change != nil {
			ratio := math.Exp(*one.Change)
			changed = fmt.Sprintf("%+.2f%%\t%.2f%%\t", 100*(ratio-1), 100*ratio**one.ChangeStandard)
		}
		if distance {
			distant = fmt.Sprintf("%.4f\t%.4f\t%.2f%%\t", *one.Divergence, *one.DivergenceStandard, 100**one.Same)
		}
		row(fmt.Sprintf("%.4f\t%.4f\t", one.Perplexity, one.Perplexity*one.Standard), changed, distant, fmt.Sprintf("%.0f\t%d\t%d\t  %s", one.MB, one.Texts, one.Tokens, one.Model))
	}
	return w.Flush()
}

// longest bounds a text, in tokens.
const longest = 4096

// reader is an open model that reads texts.
type reader struct {
	*replay.Reader
	pair    engine.Pair
	bundle  *ort.Bundle
	context int
	close   func()
}

func openReader(ctx context.Context, cfg configs.Config, name string, stderr io.Writer) (_ *reader, err error) {
	models := app.NewReaders(cfg, app.Logger(cfg.Log, stderr))
	models.Interrupt(ctx)
	var undo []func()
	undo = append(undo, models.Close)
	all := func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	defer func() {
		if err != nil {
			all()
		}
	}()
	bundle, err := models.Describe(name)
	if err != nil {
		return nil, err
	}
	ref, place, err := models.Reference(name)
	if err != nil {
		return nil, err
	}
	job := &pipeline.Job{Modes: []pipeline.Mode{pipeline.ArS}, Target: ref, Context: min(longest, bundle.Context)}
	pair, release, err := models.Open(pipeline.Place{}, 0)(ctx, job, pipeline.Place{Target: place}, pipeline.ArS)
	if err != nil {
		return nil, err
	}
	undo = append(undo, release)
	texts, err := replay.NewReader(pair.Target)
	if err != nil {
		return nil, err
	}
	undo = append(undo, texts.Close)
	return &reader{Reader: texts, pair: pair, bundle: bundle, context: job.Context, close: all}, nil
}

// model has one model read all texts; it is let go before the next one.
func (r *reading) model(ctx context.Context, cfg configs.Config, name string, reference *reader, stderr io.Writer) (*read, error) {
	m, err := openReader(ctx, cfg, name, stderr)
	if err != nil {
		return nil, err
	}
	defer m.close()
	most := m.context
	if reference != nil {
		most = min(most, reference.context)
	}
	progress := progressLine(stderr, "perplexity")
	found := &read{Model: name, MB: float64(m.bundle.Bytes) / 1e6}
	var base, divergence []float64 // of each text: the reference's log-likelihood, and the divergence from it
	var agreeing float64
	for text, err := range r.texts.all(ctx) {
		if err != nil {
			return nil, err
		}
		tokens, err := m.pair.Tokenizer.Encode(text)
		if err != nil || len(tokens) < 2 {
			continue // no text
		}
		tokens = tokens[:min(len(tokens), most)]
		sum := 0.0
		if reference == nil {
			sum, err = m.LogLikelihood(ctx, tokens)
		} else {
			var c replay.Comparison
			c, err = m.Compare(ctx, reference.Reader, tokens)
			sum, agreeing = c.Model, agreeing+float64(c.Same)
			base, divergence = append(base, c.Reference), append(divergence, c.Divergence)
		}
		if err != nil {
			return nil, fmt.Errorf("text %d: %w", found.Texts+1, err)
		}
		found.Texts++
		found.Tokens += len(tokens) - 1
		found.Sums, found.Counts = append(found.Sums, sum), append(found.Counts, float64(len(tokens)-1))
		if progress != nil {
			progress(name, found.Texts, found.Texts+1)
		}
	}
	if found.Tokens == 0 {
		return nil, errors.New("the texts have no tokens")
	}
	mean, standard := perToken(found.Sums, found.Counts)
	found.Perplexity, found.Standard = math.Exp(-mean), standard
	if reference != nil {
		kl, off := perToken(divergence, found.Counts)
		agreeing /= float64(found.Tokens)
		found.Divergence, found.DivergenceStandard, found.Same = &kl, &off, &agreeing
		found.changed(base, found.Counts)
	}
	if progress != nil {
		progress(name, found.Texts, found.Texts)
	}
	return found, nil
}

// changed compares with another model's log-likelihoods of the texts, where it read
// as many tokens of each.
func (r *read) changed(sums, counts []float64) {
	if !slices.Equal(counts, r.Counts) {
		return
	}
	less := make([]float64, len(sums))
	for i := range sums {
		less[i] = sums[i] - r.Sums[i]
	}
	mean, standard := perToken(less, counts)
	r.Change, r.ChangeStandard = &mean, &standard
}

// perToken is the mean of a token, of sums over texts of so many tokens, and its
// standard error: texts are independent, tokens are not, so that it is the error of
// a ratio of sums over texts.
func perToken(sums, counts []float64) (mean, standard float64) {
	var sum, count float64
	for i := range sums {
		sum, count = sum+sums[i], count+counts[i]
	}
	mean = sum / count
	var off float64
	for i := range sums {
		d := sums[i] - mean*counts[i]
		off += d * d
	}
	if n := float64(len(sums)); n > 1 {
		standard = math.Sqrt(off*n/(n-1)) / count
	}
	return mean, standard
}
