// Command install puts the pinned ONNX Runtime library into the per-user cache
// and prints the path of the library that draftmill will load.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/draftmill/draftmill/ort/library"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	path, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

func run(ctx context.Context) (string, error) {
	path, err := library.Find("")
	if !errors.Is(err, library.ErrNotInstalled) {
		return path, err
	}
	return library.Install(ctx, library.Options{
		Progress: func(line string) { fmt.Fprintln(os.Stderr, "onnx runtime:", line) },
	})
}
