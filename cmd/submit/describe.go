package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// describe makes the job's specification out of the configuration, the dataset
// and the model folders.
func describe(cfg configs.Config, models *app.Models, info storage.Info) (*pipeline.Job, pipeline.Place, error) {
	var place pipeline.Place
	template, err := cfg.TemplateText()
	if err != nil {
		return nil, place, err
	}
	digest, err := fileDigest(cfg.Dataset)
	if err != nil {
		return nil, place, err
	}
	job := &pipeline.Job{
		Name: cfg.Job,
		Dataset: pipeline.Dataset{
			Name: filepath.Base(cfg.Dataset), SHA256: digest,
			PromptColumn: info.Columns.Prompt, IDColumn: info.Columns.ID,
			Template: template, Limit: cfg.Limit,
		},
		ShardRows: cfg.ShardRows,
		Sampling:  sampling(cfg.Sampling),
		Seed:      cfg.Sampling.Seed, Samples: cfg.Sampling.N,
		MaxNewTokens: cfg.Sampling.MaxNewTokens, Stop: cfg.Sampling.Stop,
		Margin: cfg.Margin,
	}
	for _, m := range cfg.Modes() {
		job.Modes = append(job.Modes, pipeline.Mode(m))
	}
	target, err := models.Describe(cfg.Target)
	if err != nil {
		return nil, place, err
	}
	job.Target = model(target)
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
	for _, p := range []struct {
		to   *string
		from string
	}{{&place.Out, cfg.Out}, {&place.Target, cfg.Target}, {&place.Draft, place.Draft}, {&place.Table, place.Table}} {
		if p.from == "" {
			continue
		}
		if *p.to, err = filepath.Abs(p.from); err != nil {
			return nil, place, fmt.Errorf("make %s an absolute path: %w", p.from, err)
		}
	}
	return job, place, nil
}

func model(b *ort.Bundle) pipeline.Model {
	return pipeline.Model{Name: filepath.Base(filepath.Clean(b.Dir)), Digest: b.Digest}
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the dataset: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read the dataset %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
