package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/storage/bucket"
)

// inTurns submits several jobs to one queue before the first of them is waited
// for, so that they take turns shard by shard: whatever else the machine does
// meanwhile disturbs all of them alike. Those that are done are left as they are.
func inTurns(parent context.Context, jobs []configs.Config, stderr io.Writer) (err error) {
	first := jobs[0]
	if first.NATS.URL != "" { // the workers are elsewhere
		err := queueAll(parent, jobs, nil, stderr)
		if err == nil && !first.Detach {
			err = awaitAll(parent, jobs, nil, stderr)
		}
		return err
	}
	dir := first.NATS.StoreDir
	if dir == "" {
		if dir, err = queueDir(bucket.Join(first.Out, "_queue-"+first.Job)); err != nil {
			return err
		}
	}
	log := app.Logger(first.Log, stderr)
	server, err := queue.Embed(dir, queue.EmbedOptions{Logger: log, SyncInterval: syncInterval})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, server.Close())
		if err == nil && first.NATS.StoreDir == "" { // nothing is left in it
			err = os.RemoveAll(dir)
		}
	}()
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	ctx, drain, stop := app.Signals(ctx, first.DrainTimeout)
	defer stop()
	models := app.NewModels(first, log)
	models.Interrupt(drain)
	defer models.Close()
	options := app.QueueOptions(first.NATS, log)
	options.Turn = 1 // one shard
	q, err := server.Connect(ctx, options)
	if err != nil {
		return err
	}
	defer closing(&err, q.Close)
	if err := queueAll(ctx, jobs, server, stderr); err != nil {
		return err
	}
	finish, failed, err := startWorkers(ctx, drain, q, models, first, log)
	if err != nil {
		return err
	}
	defer closing(&err, finish)
	go func() { // a worker that cannot go on ends the wait
		select {
		case err := <-failed:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	return awaitAll(ctx, jobs, server, stderr)
}

// queueAll puts the jobs' shards on the queue.
func queueAll(ctx context.Context, jobs []configs.Config, server *queue.Server, stderr io.Writer) error {
	for _, cfg := range jobs {
		cfg.Detach, cfg.Sign = true, "" // signed when it is complete
		if err := run(ctx, cfg, server, io.Discard, stderr); err != nil {
			return err
		}
	}
	return nil
}

// awaitAll sees the jobs through, one after the other.
func awaitAll(ctx context.Context, jobs []configs.Config, server *queue.Server, stderr io.Writer) error {
	for _, cfg := range jobs {
		if err := run(ctx, cfg, server, io.Discard, stderr); err != nil {
			return err
		}
	}
	return nil
}
