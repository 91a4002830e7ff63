package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort/convert"
)

// importCommand converts a model into an ONNX folder.
func importCommand() *cobra.Command {
	var o convert.Options
	cmd := &cobra.Command{
		Use:   "import SRC DST [flags]",
		Short: "convert a Hugging Face folder or a GGUF file into an ONNX folder",
		Long: `import makes an ONNX folder of a model: of a Hugging Face folder (config.json,
model.safetensors or its shards, tokenizer.json) or of a .gguf file. --target and
--draft take both as they are and convert them into the user's cache; import is
for other settings, and for a folder that other programs on ONNX Runtime can use.

Weights of a GGUF file that are Q4_0, Q4_1 or Q8_0 keep their integers and scales;
those in other formats of few bits are decoded and quantized again.`,
		Example: `  submit import Qwen2.5-Coder-1.5B-Instruct models/target
  submit import Qwen2.5-Coder-0.5B-Instruct-Q4_0.gguf models/draft
  submit import Llama-3.2-1B models/llama --precision int4 --mixed`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return configs.Usagef("name a model and a folder to make: %s SRC DST", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(); err != nil {
				return configs.Usagef("%w", err)
			}
			ctx, _, stop := app.Signals(cmd.Context(), 0)
			defer stop()
			o.Progress = app.ConvertProgress(app.Logger(configs.Log{}, cmd.ErrOrStderr()), args[0])
			began := time.Now()
			r, err := convert.Import(ctx, args[0], args[1], o)
			if err != nil {
				return err
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
	f.BoolVar(&o.Asymmetric, "asymmetric", false, "a zero point for each block beside its scale")
	return cmd
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
