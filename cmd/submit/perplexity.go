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

With --reference each model is also compared with that one, which reads the same
texts: the mean Kullback-Leibler divergence KL(reference || model) of a token, and
how often both have the same most probable token. A change may make a text likelier
by chance; the divergence is zero only where nothing has changed.`,
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
	// From the reference, of a token: mean KL(reference || model), and how often the
	// most probable token is the same.
	Divergence *float64 `json:"divergence,omitempty"`
	Same       *float64 `json:"same_most_probable,omitempty"`
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
	}
	if r.asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(all)
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	further := ""
	if reference != nil {
		further = "divergence\tsame top\t"
	}
	fmt.Fprintln(w, "perplexity\t+-\t"+further+"MB\ttexts\ttokens\t  model")
	for _, one := range all {
		if reference != nil {
			further = fmt.Sprintf("%.4f\t%.2f%%\t", *one.Divergence, 100**one.Same)
		}
		fmt.Fprintf(w, "%.4f\t%.4f\t%s%.0f\t%d\t%d\t  %s\n", one.Perplexity, one.Perplexity*one.Standard, further, one.MB, one.Texts, one.Tokens, one.Model)
	}
	return w.Flush()
}

// longest bounds a text, in tokens.
const longest = 4096

// reader is an open model that reads texts.
type reader struct {
	*replay.Reader
	pair    engine.Pair
	bytes   int64
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
	return &reader{Reader: texts, pair: pair, bytes: bundle.Bytes, context: job.Context, close: all}, nil
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
	found := &read{Model: name, MB: float64(m.bytes) / 1e6}
	var sums, counts []float64
	var divergence, agreeing float64
	for text, err := range r.texts.all(ctx) {
		if err != nil {
			return nil, err
		}
		tokens, err := m.pair.Tokenizer.Encode(text)
		if err != nil || len(tokens) < 2 {
			continue // no text
		}
		tokens = tokens[:min(len(tokens), most)]
		sum, err := m.LogLikelihood(ctx, tokens)
		if err != nil {
			return nil, fmt.Errorf("text %d: %w", found.Texts+1, err)
		}
		if reference != nil {
			kl, same, err := m.Divergence(ctx, reference.Reader, tokens)
			if err != nil {
				return nil, fmt.Errorf("text %d: %w", found.Texts+1, err)
			}
			divergence, agreeing = divergence+kl, agreeing+float64(same)
		}
		found.Texts++
		found.Tokens += len(tokens) - 1
		sums, counts = append(sums, sum), append(counts, float64(len(tokens)-1))
		if progress != nil {
			progress(name, found.Texts, found.Texts+1)
		}
	}
	if found.Tokens == 0 {
		return nil, errors.New("the texts have no tokens")
	}
	if n := float64(found.Tokens); reference != nil {
		divergence, agreeing = divergence/n, agreeing/n
		found.Divergence, found.Same = &divergence, &agreeing
	}
	found.Perplexity, found.Standard = perplexityOf(sums, counts)
	if progress != nil {
		progress(name, found.Texts, found.Texts)
	}
	return found, nil
}

// perplexityOf is exp of the mean negative log-likelihood of a token, and the
// standard error of that mean: texts are independent, tokens are not, so that it
// is the error of a ratio of sums over texts.
func perplexityOf(sums, counts []float64) (perplexity, standard float64) {
	var sum, count float64
	for i := range sums {
		sum, count = sum+sums[i], count+counts[i]
	}
	mean := sum / count
	var off float64
	for i := range sums {
		d := sums[i] - mean*counts[i]
		off += d * d
	}
	n := float64(len(sums))
	if n > 1 {
		standard = math.Sqrt(off*n/(n-1)) / count
	}
	return math.Exp(-mean), standard
}
