package main

import (
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/spec"
)

// beams is the job's beam search; nil where tokens are drawn. What has no effect is
// left out.
func beams(cfg configs.Config, target *ort.Bundle, job *pipeline.Job) (*spec.Beams, error) {
	if cfg.Beams == 0 {
		return nil, nil
	}
	b := &spec.Beams{Width: cfg.Beams, LengthPenalty: cfg.LengthPenalty}
	if early := string(cfg.EarlyStopping); early != spec.StopHeuristic {
		b.EarlyStopping = early
	}
	if job.Has(pipeline.SpS) {
		b.DraftWidth = cfg.DraftBeams
	}
	if target.Encoder != nil {
		b.Forced = len(target.Encoder.Start) - 1
	}
	if least := (1 + len(target.EOS)) * max(b.Width, b.DraftWidth); least > target.Vocab {
		return nil, configs.Usagef("beams: %d beams and %d ends of sequence need a vocabulary of %d tokens; that of %s has %d", max(b.Width, b.DraftWidth), len(target.EOS), least, cfg.Target, target.Vocab)
	}
	return b, nil
}
