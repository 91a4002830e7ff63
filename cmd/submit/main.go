// Command submit puts a dataset on the queue as a job, waits for it, and
// compares the job's modes.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
)

func main() {
	os.Exit(app.Execute(command()))
}

func command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit --dataset FILE [flags]",
		Short: "generate text for a dataset with a target and a draft model",
		Long: `submit cuts a dataset into shards, puts them on a queue and waits until workers
have decoded them: by autoregressive sampling (ars), by speculative sampling
(sps), or both, which it then compares.

Without --nats the queue and the workers run inside this process. Running the
same command again, after any interruption, decodes only what is missing.`,
		Example: `  submit --dataset testdata/demo/minieval.parquet
  submit --dataset humaneval.parquet --config configs/humaneval.yaml \
      --target llama-1b --draft llama-68m
  submit --dataset prompts.jsonl --prompt-column text --mode sps \
      --nats nats://127.0.0.1:4222`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := configs.Load(cmd.Flags())
			if err != nil {
				return err
			}
			if err := cfg.ValidateSubmit(); err != nil {
				return err
			}
			if err := app.CheckPlaces(cfg); err != nil {
				return err
			}
			return run(cmd.Context(), cfg, nil, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	configs.SubmitFlags(cmd.Flags())
	cmd.AddCommand(jobCommands()...)
	cmd.AddCommand(setupCommand(), importCommand(), inspectCommand(), reportCommand(), scoreCommand(), planCommand(), verifyCommand(), certifyCommand(), ngramCommand(), perplexityCommand(), calibrateCommand())
	cmd.AddCommand(sweepCommand(), exportCommand(), fsckCommand(), serveCommand())
	complete(cmd)
	return cmd
}
