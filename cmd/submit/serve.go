package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline/report"
	"github.com/draftmill/draftmill/storage"
)

// serveCommand shows a job's report while the job runs.
func serveCommand() *cobra.Command {
	r := reporting{html: "report.html"} // the page, as it would be written
	var addr string
	cmd := &cobra.Command{
		Use:   "serve JOB",
		Short: "show a job's report in the browser while the job runs",
		Long: `serve shows the page of submit report on this machine alone, with progress, speed
and acceptance of what is committed, and renews them as shards come. It reads the
job's folder: the job may run in another process or on other machines. When the
job is complete its log is replayed for the certificate. Ctrl-C ends it; the job
is not touched.

The numbers alone are at /status.json.`,
		Example: `  submit serve demo
  submit serve out/demo --addr 127.0.0.1:8080
  submit serve --out /data/runs humaneval`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return configs.Usagef("name one job or its folder: %s JOB", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check(); err != nil {
				return err
			}
			if !report.IsLoopback(addr) {
				return configs.Usagef("--addr: want a loopback address such as 127.0.0.1:8080, got %q; from another machine, reach it through ssh -L", addr)
			}
			ctx, drain, stop := app.Signals(cmd.Context(), 0)
			defer stop()
			job, err := openJob(args[0], r.out)
			if err != nil {
				return err
			}
			o, err := r.options(ctx, job, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
			if err != nil {
				return fmt.Errorf("serve the report on %s: %w; name another address with --addr", addr, err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "job %s at http://%s (Ctrl-C ends this; the job goes on)\n", job.Name(), listener.Addr())
			return serve(drain, listener, report.NewLive(job, func() (*report.Page, error) {
				c, err := compareChecked([]*storage.Job{job}, o, true)
				if err != nil {
					return nil, err
				}
				return r.page(c, []*storage.Job{job}), nil
			}))
		},
	}
	r.flags(cmd.Flags())
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:0", "loopback `ADDRESS` to listen at; port 0 takes a free one")
	return cmd
}

// serve answers until ctx ends. It owns the listener.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the report: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close() // who still reads is cut off
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
