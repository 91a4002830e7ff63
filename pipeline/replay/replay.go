package replay

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"iter"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/verify"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// DefaultTie is the largest distance of a tie, unless Options say otherwise.
const DefaultTie = 1e-3

// Options say what a job is held against.
type Options struct {
	// Pair is the target, with its tokenizer and its ends of sequence, and what
	// drafts, where that is at hand: Draft, Law or both, as the job has them. Their
	// digests are the caller's to check, as is the dataset's.
	Pair engine.Pair
	// Tie is how far log-probabilities (logits at temperature 0, probabilities in
	// an inverted cumulative distribution) may be off by rounding.
	Tie float64
	// PublicKey is for [verify.Options].
	PublicKey ed25519.PublicKey
	// Progress is told after every completion; may be nil.
	Progress func(completions int64)
}

// Counts is what was held against the models, and holds.
type Counts struct {
	Drafts bool    `json:"drafts"` // what drafts was at hand too
	Tie    float64 `json:"tie"`    // the largest distance of a tie
	Modes  []Mode  `json:"modes"`  // in the job's order
	Ties   []Tie   `json:"ties"`   // the first MaxTies
}

// MaxTies is how many ties are listed.
const MaxTies = 20

// Mode is what was held against the models in one mode.
type Mode struct {
	Mode        pipeline.Mode `json:"mode"`
	Completions int64         `json:"completions"`
	Errors      int64         `json:"errors"` // of them, rows that failed again
	Tokens      int64         `json:"tokens"` // of the completions
	Drawn       int64         `json:"drawn"`  // of Tokens, those that were drawn again, ties included
	Ties        int64         `json:"ties"`   // decisions that differ within rounding
	Believed    int64         `json:"believed"`
}

// Tie is a decision of the log that the models do not make, and nearly do.
type Tie struct {
	Mode     pipeline.Mode `json:"mode"`
	Row      int64         `json:"row"`
	RowID    string        `json:"row_id"`
	Sample   int32         `json:"sample"`
	Token    int           `json:"token"`            // index in the completion
	What     string        `json:"what"`             // which decision
	Distance float64       `json:"distance"`         // see Options.Tie
	Margin   *float64      `json:"margin,omitempty"` // as the log has it
}

// Job holds a job's log against its files, as [verify.Job] does, and then against
// its models. rows are the dataset's, from the first. The error is a
// *[verify.Failure] where something does not hold.
func Job(ctx context.Context, folder *storage.Job, rows pipeline.Rows, o Options) (*verify.Counts, *Counts, error) {
	job, err := verify.Specification(folder)
	if err != nil {
		return nil, nil, err
	}
	r, err := newRun(ctx, job, o)
	if err != nil {
		return nil, nil, err
	}
	defer r.free()
	next, stop := iter.Pull2(job.Prompts(rows))
	defer stop()
	r.next = next
	log, err := verify.Job(folder, verify.Options{Tokenizer: o.Pair.Tokenizer, EOS: o.Pair.EOS, PublicKey: o.PublicKey, Shard: r.shard})
	if err != nil {
		return nil, nil, err
	}
	if plan, err := folder.Plan(); err == nil {
		if n, err := r.count(); err != nil {
			return nil, nil, err
		} else if n != plan.Rows {
			return nil, nil, &verify.Failure{File: "_plan.json", Row: -1, Loop: -1, What: fmt.Sprintf("it plans %d rows, the dataset gives %d", plan.Rows, n)}
		}
	}
	return log, &r.counts, nil
}

// run is one replay.
type run struct {
	ctx     context.Context //nolint:containedctx // of the run
	job     *pipeline.Job
	rule    spec.Rule
	options Options
	q       *source
	p       *source // nil: what drafts is not at hand
	redraws bool    // drafted tokens are draws from p with uniforms of their own
	context int     // most tokens of a sequence
	encode  pipeline.Encoder
	counts  Counts
	again   again // of a beam search

	next   func() (storage.ShardRow, error, bool)
	row    storage.ShardRow // the last one of the dataset that was read
	read   int64
	prompt []int32 // of row
	bad    error   // why it has none
}

func newRun(ctx context.Context, job *pipeline.Job, o Options) (r *run, err error) {
	pair := o.Pair
	r = &run{ctx: ctx, job: job, rule: job.EffectiveRule(), options: o, encode: job.Encoder(), counts: Counts{Tie: o.Tie, Ties: []Tie{}}}
	if r.context = pair.Target.Context(); job.Context > 0 {
		r.context = min(r.context, job.Context)
	}
	for _, m := range job.Modes {
		r.counts.Modes = append(r.counts.Modes, Mode{Mode: m})
	}
	if r.q, err = newSource(pair.Target, nil, job.Sampling, pair.Target.Vocab(), pair.EOS, o.Tie); err != nil {
		return nil, err
	}
	if job.Beams != nil { // what was drafted has no part in it
		return r, nil
	}
	if job.Has(pipeline.SpS) && (job.Draft == nil) == (pair.Draft == nil) && (job.Draft != nil || pair.Law != nil) {
		law := pair.Law
		if pair.Draft != nil {
			law = nil // drafts for the draft model, whose distribution p is
		}
		if r.p, err = newSource(pair.Draft, law, job.Sampling, pair.Target.Vocab(), pair.EOS, o.Tie); err != nil {
			r.q.free()
			return nil, err
		}
		r.counts.Drafts = true
		r.redraws = job.Draft == nil || job.Drafter == nil || !r.rule.Replays()
	}
	return r, nil
}

func (r *run) free() {
	if r.again.engine != nil {
		r.again.engine.Close()
	}
	r.q.free()
	if r.p != nil {
		r.p.free()
	}
}

// shard holds the sequences of a shard against the models.
func (r *run) shard(_ int, all []verify.Sequence) error {
	for i := range all {
		if err := r.seek(&all[i]); err != nil {
			return err
		}
		if err := r.sequence(&all[i]); err != nil {
			return err
		}
		if r.options.Progress != nil {
			var n int64
			for _, m := range r.counts.Modes {
				n += m.Completions
			}
			r.options.Progress(n)
		}
	}
	return nil
}

// seek reads the dataset on to the row of a sequence.
func (r *run) seek(s *verify.Sequence) error {
	for r.read == 0 || r.row.Row < s.Completion.Row {
		row, err, ok := r.next()
		if err != nil {
			return err
		}
		if !ok {
			return s.Fail("the dataset has %d rows", r.read)
		}
		r.row, r.prompt, r.bad = row, nil, nil
		if r.read++; row.Row == s.Completion.Row {
			r.prompt, r.bad = r.encode(r.options.Pair, r.context, &row)
		}
	}
	if r.row.ID != s.Completion.RowID {
		return s.Fail("its id is %q, the dataset's row has %q", s.Completion.RowID, r.row.ID)
	}
	return nil
}

// count reads the rest of the dataset and returns how many rows there are.
func (r *run) count() (int64, error) {
	for {
		_, err, ok := r.next()
		if err != nil || !ok {
			return r.read, err
		}
		r.read++
	}
}

// mode is where a mode's counts are.
func (r *run) mode(m pipeline.Mode) *Mode {
	for i := range r.counts.Modes {
		if r.counts.Modes[i].Mode == m {
			return &r.counts.Modes[i]
		}
	}
	panic("replay: a sequence of a mode that the job does not have")
}
