package main

import (
	"path/filepath"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
)

// drafter says in the job what drafts and how far ahead, and in place where it
// lies.
func drafter(cfg configs.Config, models *app.Models, job *pipeline.Job, place *pipeline.Place) error {
	job.K = cfg.K
	if cfg.Lookahead != configs.LookaheadFixed {
		job.Lookahead = cfg.Lookahead
	}
	d, err := cfg.DrafterSpec()
	if err != nil {
		return err
	}
	if d.Model {
		draft, where, err := models.Reference(cfg.Draft)
		if err != nil {
			return err
		}
		if err := models.CheckPair(cfg.Target, cfg.Draft); err != nil {
			return err
		}
		job.Draft, place.Draft = &draft, where
	}
	if d.Kind == "" {
		return nil
	}
	job.Drafter = &pipeline.Drafter{Kind: d.Kind, N: d.N}
	if d.Table != "" {
		table, err := models.Table(cfg.Target, d.Table)
		if err != nil {
			return err
		}
		job.Drafter.Table = &pipeline.Model{Name: filepath.Base(d.Table), Digest: table.Digest().String()}
		place.Table = d.Table
	}
	return nil
}
