package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort/convert"
	"github.com/draftmill/draftmill/spec"
)

// importCommand converts a model into an ONNX folder.
func importCommand() *cobra.Command {
	var o convert.Options
	var asJSON, asymmetric bool
	var trim string
	cmd := &cobra.Command{
		Use:   "import SRC DST [flags]",
		Short: "convert a Hugging Face folder or a GGUF file into an ONNX folder",
		Long: `import makes an ONNX folder of a model: of a Hugging Face folder (config.json,
model.safetensors or its shards, tokenizer.json) or of a .gguf file, also by their
names on the Hugging Face Hub, hf:OWNER/REPO[/FILE.gguf][@REVISION]. Of a model in
several .gguf files name the first, NAME-00001-of-00003.gguf. --target and
--draft take both as they are and convert them into the user's cache; import is
for other settings, and for a folder that other programs on ONNX Runtime can use.

Weights of a GGUF file that are Q4_0 or Q8_0 keep their integers and scales, on
GPUs those that are Q4_1, too; on the CPU these get 8 bits, unless --precision
says otherwise. Those in other formats of few bits are decoded and quantized again.

A GGUF file's tokenizer becomes the tokenizer.json that its model was published
with, as far as the file tells; llama.cpp and SentencePiece themselves cut long runs
of spaces in another way where a vocabulary is like Llama 2's.

--trim-vocab makes a draft that proposes the N most frequent tokens only, as a
table of submit ngram counts them: most of a small model's work is to score a
large vocabulary. What is generated with it has the target's law as with any
other draft; tokens that it cannot propose cost acceptance. (FR-Spec, arXiv
2502.14856.) Never trim a target.`,
		Example: `  submit import Qwen2.5-Coder-1.5B-Instruct models/target
  submit import Qwen2.5-Coder-0.5B-Instruct-Q4_0.gguf models/draft
  submit import Llama-3.2-1B models/llama --precision int4 --mixed
  submit ngram --order 1 --job out/humaneval --target models/target \
      --output own.ngram
  submit import Qwen2.5-Coder-0.5B-Instruct models/draft \
      --trim-vocab 32768:own.ngram`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return configs.Usagef("name a model and a folder to make: %s SRC DST", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("asymmetric") {
				o.Asymmetric = &asymmetric
			}
			if err := o.Validate(); err != nil {
				return configs.Usagef("%w", err)
			}
			if trim != "" {
				var err error
				if o.Head, err = frequent(trim); err != nil {
					return err
				}
			}
			ctx, _, stop := app.Signals(cmd.Context(), 0)
			defer stop()
			log := app.Logger(configs.Log{}, cmd.ErrOrStderr())
			src, err := app.LocateModel(ctx, log, args[0])
			if err != nil {
				return err
			}
			o.Progress = app.ConvertProgress(log, args[0])
			began := time.Now()
			r, err := convert.Import(ctx, src.Path, args[1], o)
			if err != nil {
				if ctx.Err() != nil {
					return errors.New("interrupted; nothing is left of it")
				}
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}
			describeImport(cmd.OutOrStdout(), args[1], r, time.Since(began))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Precision, "precision", "", "`PRECISION` of the weights: fp32, fp16, bf16, int8 or int4 (default: int4 on cpu and webgpu, where Q8_0 stays 8 bits; fp16 on cuda)")
	f.IntVar(&o.Block, "block", 32, "`N` weights share a scale: 32, 64 or 128")
	f.StringVar(&o.Device, "device", "cpu", "`DEVICE` that is to run it: cpu, cuda or webgpu")
	f.BoolVar(&o.Mixed, "mixed", false, "int4 with 8 bits for the head and the first and the last layer")
	f.BoolVar(&asJSON, "json", false, "print what was made as JSON")
	f.BoolVar(&asymmetric, "asymmetric", false, "a zero point for each block beside its scale; =false for none (default: int4 on cpu has them, which costs no time and is nearer to the model)")
	f.StringVar(&trim, "trim-vocab", "", "`N:TABLE`: a draft whose head scores the N tokens that are most frequent in an n-gram table (see submit ngram)")
	return cmd
}

// frequent are the N most frequent tokens of N:TABLE.
func frequent(trim string) ([]int32, error) {
	count, path, _ := strings.Cut(trim, ":")
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || path == "" {
		return nil, configs.Usagef("--trim-vocab: want a number of tokens and a table of submit ngram, such as 32768:own.ngram, got %q", trim)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the n-gram table: %w", err)
	}
	table, err := spec.ParseCounts(data)
	if err != nil {
		return nil, fmt.Errorf("read the n-gram table %s: %w", path, err)
	}
	return table.Frequent(n), nil
}

// describeImport says what an import has made.
func describeImport(out io.Writer, dst string, r *convert.Report, took time.Duration) {
	fmt.Fprintf(out, "%s: %s, %s, %.1f MB in %.1f s\n", dst, r.Family, r.Settings, float64(r.Bytes)/1e6, took.Seconds())
	for _, c := range []struct {
		counts map[string]int
		what   string
	}{{r.Kept, "kept as they are"}, {r.Again, "decoded and quantized again"}} {
		var parts []string
		for _, format := range slices.Sorted(maps.Keys(c.counts)) {
			parts = append(parts, fmt.Sprintf("%d of %s", c.counts[format], format))
		}
		if len(parts) > 0 {
			fmt.Fprintf(out, "  weights %s: %s\n", c.what, strings.Join(parts, ", "))
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(out, "  %s\n", note)
	}
}
