package eval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/pipeline/eval/rouge"
	"github.com/draftmill/draftmill/pipeline/eval/stat"
	"github.com/draftmill/draftmill/storage"
)

// Ways of scoring.
const (
	// Programs runs them against the dataset's tests.
	Programs = "programs"
	// References compares with a column of the dataset.
	References = "references"
	// Likelihood has the target say how likely it finds them; it is a metric, too.
	Likelihood = "likelihood"
)

// Rows yields the dataset of a job.
type Rows interface {
	Next() (storage.Row, error)
}

// Options says how a job is scored.
type Options struct {
	Kind      string // Programs, References or Likelihood alone; empty: as the dataset's columns say
	Reference string // column; empty: the first of summary, reference, answer, target that there is
	Stem      bool   // ROUGE with the stemmer
	Extract   string // ExtractNone, ExtractFenced or ExtractWhole; empty: fenced where the job has a template or is a chat, and as the format says where completions were given
	Unsafe    bool   // run programs without a sandbox
	Workers   int    // programs at a time
	// Likelihood scores completions by the target, ordered by row; nil: it is not
	// asked. Its scores join those of Kind.
	Likelihood func(ctx context.Context, mode string, all []storage.Completion) ([]storage.Score, error)
	// Progress is told what is being done, and how far it is. May be nil.
	Progress func(step string, done, of int)
}

// Summary sums up the scores of a job.
type Summary struct {
	Job       string           `json:"job"`
	Kind      string           `json:"kind"`
	Complete  bool             `json:"complete"` // every completion of the job was there
	Rows      int              `json:"rows"`     // of the dataset, within the job's limit
	Reference string           `json:"reference,omitempty"`
	Stem      bool             `json:"stemmer,omitempty"`
	Extract   string           `json:"extract,omitempty"`
	Sandbox   string           `json:"sandbox,omitempty"` // what held the programs
	Canonical *Canonical       `json:"canonical,omitempty"`
	Modes     map[string]*Mode `json:"modes"`
}

// Canonical is what became of the dataset's own solutions, which are run first.
type Canonical struct {
	Passed  int     `json:"passed"`
	Of      int     `json:"of"`
	Seconds float64 `json:"seconds"`
}

// Mode sums up the scores of one mode.
type Mode struct {
	Rows    int              `json:"rows"` // with a completion
	Samples int              `json:"samples"`
	Reasons map[string]int   `json:"reasons,omitempty"` // samples by what became of them
	Metrics map[string]Value `json:"metrics"`           // "pass@1" and so on
}

// Value is a mean over rows with its interval.
type Value struct {
	stat.Interval             // percentile bootstrap over rows, level 0.95
	Rows          int         `json:"rows"`
	Exact         *[2]float64 `json:"exact,omitempty"` // Clopper and Pearson, of pass@1 where a row has one sample
}

// IntervalLevel is the level of every interval in a summary.
const IntervalLevel = 0.95

// spec is what scoring needs of a job's specification.
type spec struct {
	Modes   []string `json:"modes"`
	Samples int      `json:"samples"`
	Seed    uint64   `json:"seed"`
	Dataset struct {
		Template string `json:"template"`
		Limit    int    `json:"limit"`
	} `json:"dataset"`
	Chat  *struct{} `json:"chat"`
	Given *Source   `json:"given"`
}

// extract is how programs are taken from completions, if nobody says.
func (s *spec) extract() string {
	if s.Given != nil {
		return s.Given.Extract
	}
	if s.Dataset.Template != "" || s.Chat != nil {
		return ExtractFenced
	}
	return ExtractNone
}

// Score scores what a job has committed, writes the scores into its folder, and
// sums them up. The rows are those of the job's dataset.
func Score(ctx context.Context, job *storage.Job, rows Rows, o Options) (*Summary, error) {
	var s spec
	if err := json.Unmarshal(job.Spec(), &s); err != nil {
		return nil, fmt.Errorf("read the specification of job %s: %w", job.Name(), err)
	}
	dataset, err := read(rows, s.Dataset.Limit)
	if err != nil {
		return nil, err
	}
	if o.Kind == "" {
		o.Kind = o.kind(dataset[0].Fields)
	}
	sum := &Summary{Job: job.Name(), Kind: o.Kind, Rows: len(dataset), Complete: job.Done(), Modes: map[string]*Mode{}}
	var measure func(mode string, all []storage.Completion) ([]storage.Score, error)
	switch o.Kind {
	case Programs:
		if o.Extract == "" {
			o.Extract = s.extract()
		}
		run, err := newRunner(ctx, dataset, o, sum)
		if err != nil {
			return nil, err
		}
		defer run.box.Close()
		if err := run.canonical(ctx, sum); err != nil {
			return nil, err
		}
		measure = func(mode string, all []storage.Completion) ([]storage.Score, error) { return run.score(ctx, mode, all) }
	case References:
		if sum.Reference, err = referenceColumn(dataset[0].Fields, o.Reference); err != nil {
			return nil, err
		}
		sum.Stem = o.Stem
		measure = func(_ string, all []storage.Completion) ([]storage.Score, error) {
			return compareTexts(ctx, dataset, all, sum.Reference, o.Stem)
		}
	case Likelihood:
		measure = func(string, []storage.Completion) ([]storage.Score, error) { return nil, nil }
	default:
		return nil, fmt.Errorf("score job %s: %q is not a way of scoring: want %s, %s or %s", job.Name(), o.Kind, Programs, References, Likelihood)
	}
	for _, mode := range s.Modes {
		all, err := completions(job, mode, len(dataset), o.Likelihood != nil)
		if err != nil {
			return nil, err
		}
		scores, err := measure(mode, all)
		if err != nil {
			return nil, err
		}
		if o.Likelihood != nil {
			more, err := o.Likelihood(ctx, mode, all)
			if err != nil {
				return nil, err
			}
			scores = append(scores, more...)
			slices.SortStableFunc(scores, func(a, b storage.Score) int {
				return cmp.Or(cmp.Compare(a.Row, b.Row), cmp.Compare(a.Sample, b.Sample))
			})
		}
		if err := job.WriteScores(mode, scores); err != nil {
			return nil, err
		}
		sum.Modes[mode] = summarize(scores, s.Seed)
	}
	data, err := json.MarshalIndent(sum, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the scores of job %s: %w", job.Name(), err)
	}
	return sum, job.WriteScoreSummary(append(data, '\n'))
}

// kind is how a dataset with these columns is scored if nobody says.
func (o *Options) kind(f map[string]string) string {
	if has(f, "test") && has(f, "entry_point") {
		return Programs
	}
	if _, err := referenceColumn(f, o.Reference); err != nil && o.Likelihood != nil && o.Reference == "" {
		return Likelihood
	}
	return References
}

// read takes the rows of a dataset that a job decoded.
func read(rows Rows, limit int) ([]storage.Row, error) {
	var all []storage.Row
	for limit == 0 || len(all) < limit {
		row, err := rows.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	if len(all) == 0 {
		return nil, errors.New("the dataset has no rows")
	}
	return all, nil
}

// completions are those of a mode, by row and sample; without tokens, unless they
// are wanted.
func completions(job *storage.Job, mode string, rows int, tokens bool) ([]storage.Completion, error) {
	var all []storage.Completion
	err := job.ReadCompletions(mode, func(c storage.Completion) error {
		if c.Row < 0 || c.Row >= int64(rows) {
			return fmt.Errorf("score job %s: it has a completion of row %d, the dataset has %d rows: name the dataset that was decoded", job.Name(), c.Row, rows)
		}
		if !tokens {
			c.Tokens = nil // the most of a completion's memory
		}
		all = append(all, c)
		return nil
	})
	slices.SortFunc(all, func(a, b storage.Completion) int {
		if a.Row != b.Row {
			return int(a.Row - b.Row)
		}
		return int(a.Sample - b.Sample)
	})
	return all, err
}

func has(fields map[string]string, column string) bool { _, ok := fields[column]; return ok }

func referenceColumn(fields map[string]string, asked string) (string, error) {
	if asked != "" {
		if !has(fields, asked) {
			return "", fmt.Errorf("the dataset has no column %q to compare with", asked)
		}
		return asked, nil
	}
	for _, name := range []string{"summary", "reference", "answer", "target"} {
		if has(fields, name) {
			return name, nil
		}
	}
	return "", errors.New("the dataset has no tests (columns test and entry_point) and no column summary, reference, answer or target: name the column to compare with, --reference COLUMN")
}

// compareTexts scores completions by the reference.
func compareTexts(ctx context.Context, dataset []storage.Row, all []storage.Completion, column string, stem bool) ([]storage.Score, error) {
	var scores []storage.Score
	for _, c := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		reference := dataset[c.Row].Fields[column]
		r := rouge.Compute(reference, c.Completion, stem)
		exact := 0.0
		if strings.TrimSpace(reference) == strings.TrimSpace(c.Completion) {
			exact = 1
		}
		for _, m := range []struct {
			metric string
			score  float64
		}{{"rouge1", r.R1.F}, {"rouge2", r.R2.F}, {"rougeL", r.L.F}, {"rougeLsum", r.LSum.F}, {"exact", exact}} {
			scores = append(scores, storage.Score{Job: c.Job, Row: c.Row, RowID: c.RowID, Sample: c.Sample, Metric: m.metric, Score: m.score})
		}
	}
	return scores, nil
}
