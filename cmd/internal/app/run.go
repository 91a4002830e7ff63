package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/configs"
)

// Exit codes of both commands.
const (
	exitFailure = 1 // something did not work
	exitUsage   = 2 // the command line or the configuration is wrong
)

// Execute runs a command, prints its error as one line and returns the code
// for os.Exit.
func Execute(cmd *cobra.Command) int {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	help(cmd)
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &configs.UsageError{Msg: err.Error() + "; see " + c.CommandPath() + " --help", Err: err}
	})
	err := cmd.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", cmd.Name(), err)
	if _, usage := errors.AsType[*configs.UsageError](err); usage {
		return exitUsage
	}
	return exitFailure
}

// NoArguments refuses positional arguments as bad usage.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &configs.UsageError{Msg: fmt.Sprintf("unexpected argument %q; settings are flags, see %s --help", args[0], cmd.CommandPath())}
	}
	return nil
}

// Logger makes the logger that the configuration asks for.
func Logger(cfg configs.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo // configs has checked it
	}
	o := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// Signals returns two contexts. The first SIGINT or SIGTERM ends drain: take
// no new work, finish what is in hand. The second one, or the end of grace
// after the first, ends ctx: give back what is in hand. stop releases the
// signal handler and ends both.
func Signals(parent context.Context, grace time.Duration) (ctx, drain context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	drain, soft := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(signals)
		select {
		case <-signals:
			soft()
		case <-ctx.Done():
			return
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-signals:
		case <-timer.C:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, drain, cancel
}

// WorkerName says who decoded a row: host, process and number in the process.
func WorkerName(n int) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%d", host, os.Getpid(), n)
}
