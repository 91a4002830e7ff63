package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/spec"
)

// TokenizerDigest is the SHA-256 of a model's tokenizer.json: what an n-gram
// table is tied to.
func TokenizerDigest(b *ort.Bundle) (spec.Digest, error) {
	data, err := os.ReadFile(b.Tokenizer)
	if err != nil {
		return spec.Digest{}, fmt.Errorf("read the tokenizer: %w", err)
	}
	return sha256.Sum256(data), nil
}

// Table reads an n-gram table that drafts for the model in the folder target.
func (m *Models) Table(target, path string) (*spec.NGram, error) {
	_ = m.lock(context.Background())
	defer m.unlock()
	e, err := m.read(target)
	if err != nil {
		return nil, err
	}
	return m.table(e, path)
}

func (m *Models) table(target *entry, path string) (*spec.NGram, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find the n-gram table %s: %w", path, err)
	}
	key := target.bundle.Digest + " " + abs
	if t := m.tables[key]; t != nil {
		return t, nil
	}
	tokenizer, err := TokenizerDigest(target.bundle)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the n-gram table: %w", err)
	}
	t, err := spec.ParseNGram(data, target.bundle.Vocab, tokenizer)
	if err != nil {
		return nil, fmt.Errorf("read the n-gram table %s: %w", path, err)
	}
	m.tables[key] = t
	m.log.Debug("n-gram table loaded", "table", path, "order", t.Order(), "n-grams", t.Size(), "trained on", t.Trained())
	return t, nil
}

// law is what a job's drafter drafts with for the target.
func (m *Models) law(d *pipeline.Drafter, target *entry, path string) (spec.Drafter, error) {
	if d.Table == nil {
		return d.Law(target.bundle.Vocab, nil), nil
	}
	t, err := m.table(target, path)
	if err != nil {
		return nil, fmt.Errorf("open the drafter: %w", err)
	}
	if got := t.Digest().String(); got != d.Table.Digest {
		return nil, fmt.Errorf("open the drafter: the n-gram table %s has digest %.12s, the job was submitted with %s of digest %.12s; put that table there, or name its file in this worker's configuration",
			path, got, d.Table.Name, d.Table.Digest)
	}
	return d.Law(target.bundle.Vocab, t), nil
}
