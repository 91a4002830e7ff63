package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/pipeline/verify"
	"github.com/draftmill/draftmill/storage"
	"github.com/draftmill/draftmill/storage/hub"
)

// jobModels are the models of a job that was run before: where the flags say, or
// where they were when it was submitted.
type jobModels struct {
	folder *storage.Job
	job    *pipeline.Job
	place  pipeline.Place
	named  pipeline.Place // of it, what the flags say
	models *app.Models
}

// openJobModels finds them; nothing is loaded yet. The caller closes models.
func openJobModels(cfg configs.Config, folder *storage.Job, models *app.Models) (*jobModels, error) {
	job, err := verify.Specification(folder)
	if err != nil {
		return nil, err
	}
	was := folder.Place()
	m := &jobModels{folder: folder, job: job, models: models, place: pipeline.Place{Target: was.Target, Draft: was.Draft, Table: was.Table}}
	if cfg.IsSet("target") {
		m.named.Target = cfg.Target
	}
	if cfg.IsSet("draft") {
		m.named.Draft = cfg.Draft
	}
	if cfg.IsSet("drafter") {
		d, err := cfg.DrafterSpec()
		if err != nil {
			return nil, err
		}
		m.named.Table = d.Table
	}
	for _, p := range []struct{ to, from *string }{{&m.place.Target, &m.named.Target}, {&m.place.Draft, &m.named.Draft}, {&m.place.Table, &m.named.Table}} {
		if *p.from != "" {
			*p.to = *p.from
		}
	}
	return m, nil
}

// words are the target's tokenizer and ends of sequence. Where they are not at
// hand, why says so; an error is the flags' fault.
func (m *jobModels) words() (t *tokenize.Tokenizer, eos []int32, why string, err error) {
	if m.place.Target == "" {
		return nil, nil, "it is not known where the target lies: name it with --target", nil
	}
	t, eos, err = m.models.Words(m.place.Target, m.job.Target)
	if m.job.Chat != nil {
		eos = slices.Concat(eos, m.job.Chat.End)
	}
	if err != nil && m.named.Target == "" {
		return nil, nil, err.Error(), nil
	}
	return t, eos, "", err
}

// open loads the target, and beside it what drafts where that is wanted and at
// hand; why says where it is not.
func (m *jobModels) open(ctx context.Context, drafts bool) (pair engine.Pair, release func(), why string, err error) {
	if m.place.Target == "" {
		return pair, nil, "", configs.Usagef("it is not known where the target of job %s lies: name it with --target", m.job.Name)
	}
	mode := pipeline.ArS
	if drafts && m.job.Has(pipeline.SpS) {
		if why, err = m.missing(); err != nil {
			return pair, nil, "", err
		} else if why == "" {
			mode = pipeline.SpS
		}
	}
	pair, release, err = m.models.Open(pipeline.Place{}, 0)(ctx, m.job, m.place, mode)
	return pair, release, why, err
}

// missing says which part of what drafts is not at hand. One that the flags name
// has to be there.
func (m *jobModels) missing() (string, error) {
	for _, part := range []struct {
		what, flag, at string
		wanted, named  bool
	}{
		{"the draft model", "--draft", m.place.Draft, m.job.Draft != nil, m.named.Draft != ""},
		{"the n-gram table", "--drafter", m.place.Table, m.job.Drafter != nil && m.job.Drafter.Table != nil, m.named.Table != ""},
	} {
		if !part.wanted {
			continue
		}
		_, err := os.Stat(part.at)
		switch {
		case err == nil || part.named || hub.Is(part.at): // opening says what is wrong with it
		case part.at == "" || errors.Is(err, fs.ErrNotExist):
			return fmt.Sprintf("%s is not at hand: name it with %s", part.what, part.flag), nil
		default:
			return "", fmt.Errorf("find %s: %w", part.what, err)
		}
	}
	return "", nil
}
