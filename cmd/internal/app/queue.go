package app

import (
	"encoding/json"
	"log/slog"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/storage"
)

// QueueOptions turns the configuration into the queue's.
func QueueOptions(c configs.NATS, log *slog.Logger) queue.Options {
	return queue.Options{
		Credentials: c.Credentials, NKey: c.NKey, TLSCA: c.TLSCA, TLSCert: c.TLSCert, TLSKey: c.TLSKey,
		AckWait: c.AckWait, Turn: c.Turn, Replicas: c.Replicas, MaxBytes: int64(c.StreamMB) << 20, Logger: log,
	}
}

// NewWorker wires one worker to a queue. Its progress is reported there.
func NewWorker(name string, source pipeline.Source, open OpenFunc, check func() error, q *queue.Queue, cfg configs.Config, log *slog.Logger) *pipeline.Worker {
	lanes, auto, err := cfg.Lanes.Count()
	if err != nil {
		lanes, auto = 1, false // validated before
	}
	return &pipeline.Worker{
		Lanes: lanes, AutoLanes: auto, Name: name, Source: source, Open: open, Check: check, MaxAttempts: cfg.MaxAttempts, Log: log,
		Report: func(p pipeline.Progress) {
			data, err := json.Marshal(p)
			if err == nil {
				err = q.Report(p.Job+"/"+p.Run, data)
			}
			if err != nil { // reports show progress; they do not count
				log.Debug("progress not reported", "err", err)
			}
		},
	}
}

// Versions are what made a job's files, for job.json: ONNX Runtime's where this
// process has loaded it. Storage adds what the binary knows of itself.
func Versions() []storage.Version {
	if v := ort.Version(); v != "" {
		return []storage.Version{{Name: "onnxruntime", Value: v}}
	}
	return nil
}
