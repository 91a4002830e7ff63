package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/ort/library"
)

// setupCommand gets the pinned ONNX Runtime into the user's cache.
func setupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "setup",
		Short: "get the pinned ONNX Runtime library into the user's cache, once",
		Long: `setup fetches ONNX Runtime through npm, checks its digest, keeps it in the user's
cache and prints where it lies. It does nothing where it is there already.`,
		Example: `  submit setup`,
		Args:    app.NoArguments,
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
