package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/eval"
	"github.com/draftmill/draftmill/storage"
)

// giving is what submit score is told of a file of another system.
type giving struct {
	format, job  string
	prompt, id   string // columns of the dataset
	dataset, out string
}

// isGiven tells whether a name is a file of completions and not a job.
func isGiven(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// open makes a job of the completions in a file, or finds the one that was made
// of it before.
func (g *giving) open(ctx context.Context, path string) (job *storage.Job, err error) {
	if g.format != "" && !slices.Contains(eval.Formats, g.format) {
		return nil, configs.Usagef("--format: want one of %s, got %q", strings.Join(eval.Formats, ", "), g.format)
	}
	if g.dataset == "" {
		return nil, configs.Usagef("%s is a file of completions: name the dataset that they are of with --dataset FILE", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the completions: %w", err)
	}
	place, rows, err := openNamed(ctx, g.dataset, storage.Columns{Prompt: g.prompt, ID: g.id})
	if err != nil {
		return nil, err
	}
	defer closing(&err, rows.Close)
	columns := rows.Info().Columns
	given, format, err := eval.ReadGiven(data, g.format, columns.ID)
	if err != nil {
		return nil, fmt.Errorf("read the completions %s: %w", path, err)
	}
	digest, err := rows.Digest()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	name := g.job
	if name == "" {
		name = givenName(path)
	}
	spec, err := eval.GivenSpec(name,
		eval.GivenDataset{Name: filepath.Base(place), SHA256: digest, PromptColumn: columns.Prompt, IDColumn: columns.ID},
		eval.Source{File: filepath.Base(path), SHA256: hex.EncodeToString(sum[:]), Format: format})
	if err != nil {
		return nil, err
	}
	job, err = storage.CreateJob(g.out, name, spec, app.Versions()...)
	if errors.Is(err, storage.ErrOtherJob) {
		return nil, fmt.Errorf("%w, with --job NAME", err)
	}
	if err != nil {
		return nil, err
	}
	if err := note(job, place, pipeline.Place{}); err != nil {
		return nil, err
	}
	if job.Done() {
		return job, nil
	}
	if err := eval.Import(ctx, job, rows, given); err != nil {
		return nil, fmt.Errorf("take over the completions %s: %w", path, err)
	}
	return job, nil
}

// givenName makes a job's name of a file's.
func givenName(path string) string {
	base, _, _ := strings.Cut(filepath.Base(path), ".")
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '-'
	}, base)
	if name = strings.TrimLeft(name, "-_"); name == "" {
		return "given"
	}
	return name[:min(len(name), 64)]
}
