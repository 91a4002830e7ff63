package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
	"github.com/draftmill/draftmill/storage/bucket"
)

// prepared is what is decoded: a dataset, and the specification of the job over it.
type prepared struct {
	dataset *storage.Dataset // the caller closes it
	path    string           // where it is
	job     *pipeline.Job
	place   pipeline.Place
}

// prepare finds and opens the dataset, fetches it where it is on the Hub, and
// describes the job.
func prepare(ctx context.Context, log *slog.Logger, cfg configs.Config, models *app.Models) (_ *prepared, err error) {
	located, err := app.LocateDataset(ctx, log, cfg.Dataset)
	if err != nil {
		return nil, err
	}
	o := &prepared{path: located.Path}
	if o.dataset, err = openDataset(cfg, located.Path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.dataset.Close())
		}
	}()
	digest, err := o.dataset.Digest()
	if err != nil {
		return nil, err
	}
	if o.job, o.place, err = describe(cfg, models, located, o.dataset.Info(), digest); err != nil {
		return nil, err
	}
	return o, nil
}

// describe makes the job's specification out of the configuration, the dataset
// and the model folders.
func describe(cfg configs.Config, models *app.Models, dataset app.Located, info storage.Info, digest string) (*pipeline.Job, pipeline.Place, error) {
	var place pipeline.Place
	template, err := cfg.TemplateText()
	if err != nil {
		return nil, place, err
	}
	job := &pipeline.Job{
		Name: cfg.Job,
		Dataset: pipeline.Dataset{
			Name: baseName(dataset.Path), SHA256: digest, Source: dataset.Name,
			PromptColumn: info.Columns.Prompt, IDColumn: info.Columns.ID,
			Template: template, Limit: cfg.Limit,
		},
		ShardRows: cfg.ShardRows,
		Sampling:  sampling(cfg.Sampling),
		Seed:      cfg.Sampling.Seed, Samples: cfg.Sampling.N,
		MaxNewTokens: cfg.Sampling.MaxNewTokens, Stop: cfg.Sampling.Stop,
		Margin: cfg.Margin,
	}
	if dataset.Short != "" {
		job.Dataset.Name = dataset.Short
	}
	for _, m := range cfg.Modes() {
		job.Modes = append(job.Modes, pipeline.Mode(m))
	}
	target, err := models.Describe(cfg.Target)
	if err != nil {
		return nil, place, err
	}
	if job.Target, place.Target, err = models.Reference(cfg.Target); err != nil {
		return nil, place, err
	}
	if job.Chat, err = conversations(cfg, models, target, job.Target, info); err != nil {
		return nil, place, err
	}
	if _, err := spec.NewChain(job.Sampling, target.Vocab, target.EOS); err != nil {
		return nil, place, configs.Usagef("sampling with the target %s: %w", cfg.Target, err)
	}
	if cfg.ORT.Context < target.Context { // else it bounds nothing
		job.Context = cfg.ORT.Context
	}
	if job.Rule, err = spec.ParseRule(cfg.Rule); err != nil {
		return nil, place, configs.Usagef("rule: %w", err)
	}
	if !job.Has(pipeline.SpS) {
		job.Rule = job.Rule.Autoregressive()
	} else if err := drafter(cfg, models, job, &place); err != nil {
		return nil, place, err
	}
	if job.Beams, err = beams(cfg, target, job); err != nil {
		return nil, place, err
	}
	if least := job.K + 2; job.Context > 0 && job.Context < least {
		return nil, place, configs.Usagef("ort.context: want %d or more for a prompt and a loop with k %d, got %d", least, job.K, job.Context)
	}
	if job.Name == "" {
		if job.Name, err = job.DefaultName(); err != nil {
			return nil, place, err
		}
	}
	if err := job.Validate(); err != nil {
		return nil, place, err
	}
	if place.Out, err = bucket.Clean(cfg.Out); err != nil {
		return nil, place, fmt.Errorf("make %s an absolute path: %w", cfg.Out, err)
	}
	if place.Table != "" {
		if place.Table, err = filepath.Abs(place.Table); err != nil {
			return nil, place, fmt.Errorf("make the n-gram table's an absolute path: %w", err)
		}
	}
	return job, place, nil
}

// baseName is the last part of a path or URL.
func baseName(place string) string {
	_, name := bucket.Split(place)
	return name
}
