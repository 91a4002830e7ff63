package app

import (
	"encoding/json"
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/storage"
)

// QueueOptions turns the configuration into the queue's.
func QueueOptions(c configs.NATS, log *slog.Logger) queue.Options {
	return queue.Options{
		Credentials: c.Credentials, TLSCA: c.TLSCA, TLSCert: c.TLSCert, TLSKey: c.TLSKey,
		AckWait: c.AckWait, Logger: log,
	}
}

// NewWorker wires one worker to a queue. Its progress is reported there.
func NewWorker(name string, source pipeline.Source, open OpenFunc, q *queue.Queue, cfg configs.Config, log *slog.Logger) *pipeline.Worker {
	lanes, auto, err := cfg.Lanes.Count()
	if err != nil {
		lanes, auto = 1, false // validated before
	}
	return &pipeline.Worker{
		Lanes: lanes, AutoLanes: auto, Name: name, Source: source, Open: open, MaxAttempts: cfg.MaxAttempts, Log: log,
		Report: func(p pipeline.Progress) {
			data, err := json.Marshal(p)
			if err == nil {
				err = q.Report(p.Job, data)
			}
			if err != nil { // reports show progress; they do not count
				log.Debug("progress not reported", "err", err)
			}
		},
	}
}

// Versions are what made a job's files, for job.json.
func Versions() []storage.Version {
	v := []storage.Version{{Name: "go", Value: runtime.Version()}, {Name: "onnxruntime", Value: ort.Version()}}
	if info, ok := debug.ReadBuildInfo(); ok {
		v = append(v, storage.Version{Name: "draftmill", Value: info.Main.Version})
	}
	return v
}
