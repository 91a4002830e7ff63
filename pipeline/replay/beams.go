package replay

import (
	"math"
	"slices"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/verify"
	"github.com/draftmill/draftmill/storage"
)

// again makes beam searches again, by the target alone.
type again struct {
	engine *engine.Engine
	row    int64 // that was searched last
	found  []engine.Sequence
}

// begin searches for the run's row, unless that was done.
func (a *again) begin(r *run) error {
	if a.engine == nil {
		settings, err := r.job.Settings(pipeline.ArS)
		if err != nil {
			return err
		}
		pair := r.options.Pair
		pair.Draft, pair.Law = nil, nil
		if a.engine, err = engine.New(r.ctx, pair, settings); err != nil {
			return err
		}
		a.row = -1
	}
	if a.row == r.row.Row {
		return nil
	}
	a.row, a.found = r.row.Row, nil
	err := a.engine.Admit(engine.Request{Prompt: r.prompt, Stop: r.job.Stop, Limit: r.job.MaxNewTokens, Beams: r.job.Samples, Done: func(s *engine.Sequence) error {
		a.found = append(a.found, *s)
		return nil
	}})
	for err == nil && a.engine.Active() > 0 {
		err = a.engine.Step(r.ctx)
	}
	return err
}

// searched holds a sequence of a beam search against what the target finds.
func (r *run) searched(s *verify.Sequence, n *Mode) error {
	if err := r.again.begin(r); err != nil {
		return err
	}
	c, f := &s.Completion, &r.again.found[s.Completion.Sample]
	n.Tokens += int64(len(c.Tokens))
	n.Drawn += int64(len(c.Tokens))
	switch failed := c.FinishReason == storage.FinishError; {
	case failed != (f.Err != nil):
		return s.Fail("it ended by %s (%s); the target's own search ends with %v", c.FinishReason, c.Error, f.Err)
	case failed && c.Error != f.Err.Error():
		return s.Fail("its error is %q, that of the target's own search %q", c.Error, f.Err)
	case failed:
		n.Errors++
		return nil
	}
	distance, same := math.Abs(*c.Score-f.Score), slices.Equal(c.Tokens, f.Tokens)
	switch {
	case same && distance <= r.options.Tie:
		return nil
	case same:
		return s.Fail("its score is %v, the target gives it %v", *c.Score, f.Score)
	case distance > r.options.Tie:
		return s.Fail("it is %v with the score %v; the target finds %v with %v", c.Tokens, *c.Score, f.Tokens, f.Score)
	}
	at := 0
	for at < min(len(c.Tokens), len(f.Tokens)) && c.Tokens[at] == f.Tokens[at] {
		at++
	}
	n.Ties++
	if len(r.counts.Ties) < MaxTies {
		r.counts.Ties = append(r.counts.Ties, Tie{Mode: s.Mode, Row: c.Row, RowID: c.RowID, Sample: c.Sample, Token: at, What: "the target finds another sequence of nearly its score", Distance: distance})
	}
	return nil
}
