// Command worker decodes shards from a NATS queue until it is told to stop.
// Any number of workers, on any number of machines, share a queue.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/metrics"
	"github.com/draftmill/draftmill/pipeline/queue"
)

func main() {
	os.Exit(app.Execute(command()))
}

func command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "worker --nats URL [flags]",
		Short: "decode shards from a queue",
		Long: `worker takes shards from the queue that submit fills, decodes them and commits
their files. It sees the job's output folder and models at the paths that submit
gave, or at its own --out, --target and --draft.

The first SIGTERM or SIGINT lets it finish the shards in hand; the second, or the
end of drain_timeout, gives them back.`,
		Example: `  worker --nats nats://queue:4222
  worker --nats nats://queue:4222 --target /models/target --lanes auto
  worker --nats nats://queue:4222 --device cuda:0,cuda:1`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := configs.Load(cmd.Flags())
			if err != nil {
				return err
			}
			if err := cfg.ValidateWorker(); err != nil {
				return err
			}
			if err := app.CheckPlaces(cfg); err != nil {
				return err
			}
			return run(cmd.Context(), cfg, cmd.ErrOrStderr())
		},
	}
	configs.WorkerFlags(cmd.Flags())
	return cmd
}

// rig changes a worker before it runs. The fault suite's build sets it (chaos.go).
var rig = func(*pipeline.Worker) {}

func run(parent context.Context, cfg configs.Config, stderr io.Writer) error {
	ctx, drain, stop := app.Signals(parent, cfg.DrainTimeout)
	defer stop()
	log := app.Logger(cfg.Log, stderr)
	flush, err := app.Tracing(ctx, "worker", log)
	if err != nil {
		return err
	}
	defer flush()
	var reached atomic.Pointer[queue.Queue]
	monitor := &app.Monitor{Metrics: metrics.New(), Ready: func() error {
		switch q := reached.Load(); {
		case drain.Err() != nil:
			return errors.New("the worker is stopping")
		case q == nil || !q.Connected():
			return errors.New("the queue is not reached")
		}
		return nil
	}}
	if cfg.Metrics != "" {
		at, err := monitor.Listen(cfg.Metrics)
		if err != nil {
			return err
		}
		defer func() {
			if e := monitor.Close(); e != nil {
				log.Debug("metrics", "err", e)
			}
		}()
		log.Info("showing metrics", "at", "http://"+at+"/metrics")
	}
	models := app.NewModels(cfg, log)
	models.Interrupt(ctx)
	defer models.Close()
	options := app.QueueOptions(cfg.NATS, log)
	options.Wait, options.Worker = cfg.NATS.ConnectWait, true
	q, err := queue.Connect(drain, cfg.NATS.URL, options)
	if err != nil {
		return err
	}
	reached.Store(q)
	monitor.Metrics.Watch(app.Depths(q))
	var running sync.WaitGroup
	failures := make([]error, len(cfg.ORT.Devices())) // each device has a worker
	for n := range failures {
		source, err := q.Source(ctx)
		if err != nil {
			stop()
			running.Wait()
			return errors.Join(err, q.Close())
		}
		w := app.NewWorker(app.WorkerName(n), source, models.Open(overrides(cfg), n), models.Check, q, cfg, log)
		w.Observer = monitor.Metrics.Worker()
		if cfg.IsSet("out") {
			w.Out = cfg.Out
		}
		rig(w)
		log.Info("waiting for shards", "queue", q.Server(), "worker", w.Name, "sampler", cfg.ORT.Sampler)
		running.Go(func() {
			err := w.Run(ctx, drain)
			if errors.Is(err, context.Canceled) { // told to stop twice: not a failure
				err = nil
			}
			if err != nil {
				log.Error("a worker has stopped", "worker", w.Name, "err", err)
			}
			failures[n] = errors.Join(err, source.Close())
		})
	}
	quiet := context.AfterFunc(drain, func() {
		log.Info("finishing the shards in hand; a second signal gives them back", "at most", cfg.DrainTimeout)
	})
	running.Wait()
	quiet()
	log.Info("stopped")
	return errors.Join(append(failures, q.Close())...)
}

// overrides are the model folders, and the n-gram table, that this worker was given itself.
func overrides(cfg configs.Config) (p pipeline.Place) {
	if cfg.IsSet("target") {
		p.Target = cfg.Target
	}
	if cfg.IsSet("draft") {
		p.Draft = cfg.Draft
	}
	if d, err := cfg.DrafterSpec(); err == nil {
		p.Table = d.Table
	}
	return p
}
