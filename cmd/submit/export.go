package main

import (
	"bufio"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline/eval"
)

// exportCommand writes completions in the formats of other systems.
func exportCommand() *cobra.Command {
	var out, dataset, mode, format, extract string
	cmd := &cobra.Command{
		Use:   "export JOB --mode ars|sps",
		Short: "print completions as human-eval, EvalPlus or bigcode read them",
		Long: `export prints the completions of one mode, by row and sample: as human-eval's
samples.jsonl (task_id and completion), as EvalPlus's (task_id and solution, a
whole program), as bigcode's list of lists of programs, as OpenAI's batch output, or
as samples of lm-evaluation-harness.`,
		Example: `  submit export demo --mode sps > samples.jsonl
  submit export out/humaneval --mode ars --format evalplus > samples.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return configs.Usagef("name one job or its folder: %s JOB", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if mode != configs.ModeArS && mode != configs.ModeSpS {
				return configs.Usagef("--mode: want ars or sps, got %q", mode)
			}
			if formats := eval.Formats[:len(eval.Formats)-1]; !slices.Contains(formats, format) {
				return configs.Usagef("--format: want one of %s, got %q", strings.Join(formats, ", "), format)
			}
			if !slices.Contains([]string{"", eval.ExtractNone, eval.ExtractFenced}, extract) {
				return configs.Usagef("--extract: want none or fenced, got %q", extract)
			}
			job, err := openJob(args[0], out)
			if err != nil {
				return err
			}
			rows, err := openScored(cmd.Context(), job, dataset)
			if err != nil {
				return err
			}
			defer closing(&err, rows.Close)
			w := bufio.NewWriter(cmd.OutOrStdout())
			defer closing(&err, w.Flush)
			return eval.Export(w, job, rows, mode, format, extract)
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "out", "output `DIR` in which the job's folder is")
	f.StringVar(&dataset, "dataset", "", "dataset `FILE`, or its name on the Hub (default: where it was when the job was submitted)")
	f.StringVar(&mode, "mode", configs.ModeSpS, "`MODE`: ars or sps")
	f.StringVar(&format, "format", eval.HumanEvalJSONL, "`FORMAT`: humaneval, evalplus, bigcode, openai or lm-eval")
	f.StringVar(&extract, "extract", "", "`WAY` to take a program from a completion: none or fenced (default: fenced where the job has a template)")
	return cmd
}
