package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
)

// calibration is what calibrate is told.
type calibration struct {
	texts  columnTexts
	tokens int
	asJSON bool
}

// calibrated is what was made.
type calibrated struct {
	Model       string `json:"model"`
	Digest      string `json:"digest"`
	TokenBytes  int    `json:"cache_bytes_per_token"`
	BeforeBytes int    `json:"cache_bytes_per_token_before"`
	Texts       int    `json:"texts"`
	Tokens      int    `json:"tokens"`
}

// calibrateCommand gives a model a KV cache of 8 bits.
func calibrateCommand() *cobra.Command {
	var c calibration
	cmd := &cobra.Command{
		Use:   "calibrate MODEL DST --dataset FILE [flags]",
		Short: "make a copy of a model whose KV cache has 8 bits",
		Long: fmt.Sprintf(`calibrate has a model read texts on the CPU, sees how far each channel of its keys
and values goes, and writes a copy of the model, DST, whose KV cache holds integers
of 8 bits: a quarter of the memory of float32, half of that of float16. A channel's
integers reach %.1f times as far as the texts did; what goes farther becomes their
end. The weights are the same.

It is another model, with a digest of its own: its completions are those of
its own law. submit perplexity DST --reference MODEL says how far it is from the
first. It runs on the CPU and on CUDA.

The texts should be like those that the model will read. MODEL is a folder with
GroupQueryAttention, as submit import and onnxruntime-genai's model builder make
them, and DST has the form that ONNX Runtime itself reads.`, ort.CacheMargin),
		Example: `  submit import Qwen2.5-Coder-1.5B-Instruct models/target
  submit calibrate models/target models/target-cache8 \
      --dataset humaneval.parquet --column prompt --column canonical_solution
  submit perplexity models/target-cache8 --reference models/target \
      --dataset humaneval.parquet --column prompt --column canonical_solution`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return configs.Usagef("name a model and a folder to make: %s MODEL DST --dataset FILE", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case c.texts.dataset == "":
				return configs.Usagef("dataset: want texts; name a dataset with --dataset")
			case c.tokens < 1:
				return configs.Usagef("--tokens: want 1 or more, got %d", c.tokens)
			}
			cfg, err := configs.Load(cmd.Flags())
			if err != nil {
				return err
			}
			ctx, _, stop := app.Signals(cmd.Context(), 0)
			defer stop()
			return interrupted(ctx, c.run(ctx, cfg, args[0], args[1], cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.texts.dataset, "dataset", "", "dataset `FILE`: Parquet, Arrow IPC or JSON Lines; or its name on the Hub")
	f.StringArrayVar(&c.texts.columns, "column", nil, "column `NAME` of the texts (default: the prompt, recognized by name); repeatable: a row's columns are joined in this order")
	f.BoolVar(&c.asJSON, "json", false, "print what was made as JSON")
	f.IntVar(&c.tokens, "tokens", 8192, "read `N` tokens at most")
	return cmd
}

func (c *calibration) run(ctx context.Context, cfg configs.Config, model, dst string, stdout, stderr io.Writer) error {
	cfg.ORT.Device = "cpu"
	m, err := openReader(ctx, cfg, model, stderr)
	if err != nil {
		return err
	}
	defer m.close()
	if err := m.bundle.CanNarrow(dst); err != nil {
		return fmt.Errorf("calibrate %s: %w", model, err)
	}
	decoder, ok := m.pair.Target.(*ort.Decoder)
	if !ok {
		return fmt.Errorf("calibrate %s: not a model of ONNX Runtime", model)
	}
	found, texts, tokens := m.bundle.NewCacheRange(), 0, 0
	for text, err := range c.texts.all(ctx) {
		if err != nil {
			return err
		}
		if tokens >= c.tokens {
			break
		}
		some, err := m.pair.Tokenizer.Encode(text)
		if err != nil || len(some) == 0 {
			continue // no text
		}
		some = some[:min(len(some), c.tokens-tokens, m.context)]
		if err := decoder.MeasureCache(ctx, some, found); err != nil {
			return fmt.Errorf("calibrate %s: text %d: %w", model, texts+1, err)
		}
		texts, tokens = texts+1, tokens+len(some)
	}
	if tokens == 0 {
		return errors.New("the texts have no tokens")
	}
	if err := m.bundle.WriteNarrow(dst, found); err != nil {
		return fmt.Errorf("calibrate %s: %w", model, err)
	}
	narrow, err := ort.OpenBundle(dst)
	if err != nil {
		return err
	}
	made := calibrated{dst, narrow.Digest, narrow.CacheBytesPerToken(), m.bundle.CacheBytesPerToken(), texts, tokens}
	if c.asJSON {
		return printJSON(stdout, made)
	}
	fmt.Fprintf(stdout, "%s: the cache of a token takes %d bytes in place of %d; measured on %d tokens of %d texts\n",
		made.Model, made.TokenBytes, made.BeforeBytes, made.Tokens, made.Texts)
	return nil
}
