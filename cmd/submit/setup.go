package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort/library"
	"github.com/draftmill/draftmill/storage"
)

// setupCommand gets the pinned ONNX Runtime into the user's cache.
func setupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "setup",
		Short: "get the pinned ONNX Runtime library into the user's cache, once",
		Args:  app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := library.Find("")
			if errors.Is(err, library.ErrNotInstalled) {
				path, err = library.Install(cmd.Context(), library.Options{Progress: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "onnx runtime:", line) }})
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), path)
			return nil
		},
	}
}

// reportCommand shows the table of a finished job again.
func reportCommand() *cobra.Command {
	var asJSON, full bool
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "compare the modes of a finished job, from its files",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &configs.UsageError{Msg: "name one job folder: " + cmd.CommandPath() + " out/JOB"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := storage.OpenJob(args[0])
			if err != nil {
				return err
			}
			if !job.Done() {
				return fmt.Errorf("job %s in %s is not complete; submit it again to decode the rest", job.Name(), job.Dir())
			}
			return present(job, asJSON, full, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the summary and the accounting as JSON")
	cmd.Flags().BoolVar(&full, "full", false, "also print the accounting: every denominator, acceptance by position, smaller lookaheads")
	return cmd
}
