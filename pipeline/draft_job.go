package pipeline

import (
	"fmt"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
)

// Drafter names, in a job, what drafts without a model: instead of the draft
// model, or for it where the job has one too.
type Drafter struct {
	Kind  string `json:"kind"`
	N     int    `json:"n,omitempty"`     // DrafterLookup: the longest suffix compared
	Table *Model `json:"table,omitempty"` // DrafterNGram: its file and digest
}

// Kinds of drafters.
const (
	DrafterNGram   = "ngram"
	DrafterLookup  = "lookup"
	DrafterUniform = "uniform"
)

// Law returns what the drafter drafts with. table is the drafter's, read and
// checked by the caller; nil where it has none.
func (d *Drafter) Law(vocab int, table *spec.NGram) spec.Drafter {
	switch d.Kind {
	case DrafterNGram:
		return table.Drafter()
	case DrafterLookup:
		return spec.Lookup{Vocab: vocab, N: d.N}
	}
	return spec.Uniform{Vocab: vocab}
}

// DraftWidth is how many tokens one pass of the draft model may have to score
// while drafting.
func (j *Job) DraftWidth() int {
	if j.Drafter == nil {
		return 2
	}
	return 2 + engine.InnerLookahead
}

func (d *Drafter) check() error {
	switch d.Kind {
	case DrafterNGram:
		if d.Table == nil {
			return fmt.Errorf("drafter %s has no table", d.Kind)
		}
	case DrafterLookup:
		if d.N < 1 {
			return fmt.Errorf("drafter %s compares suffixes of %d tokens; at least 1 is wanted", d.Kind, d.N)
		}
	case DrafterUniform:
	default:
		return fmt.Errorf("unknown drafter %q", d.Kind)
	}
	return nil
}

// Settings says how an engine decodes the job's rows in mode m.
func (j *Job) Settings(m Mode) (engine.Settings, error) {
	lookahead, err := spec.ParseLookahead(j.Lookahead)
	if err != nil {
		return engine.Settings{}, err
	}
	s := engine.Settings{K: j.K, Lookahead: lookahead, Sampling: j.Sampling, Rule: j.Rule, Context: j.Context, Beams: j.Beams}
	if m == ArS {
		s.K = 0
	}
	return s, nil
}
