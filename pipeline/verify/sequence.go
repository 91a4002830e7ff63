package verify

import (
	"fmt"
	"strings"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// sequence is a completion and what its loops have added up to so far.
type sequence struct {
	replay *replay
	mode   pipeline.Mode
	c      storage.Completion
	file   string         // of the completion
	kept   []storage.Loop // where the options want whole shards

	loops, drafted, examined, accepted int32
	tokens                             int // kept by the loops so far
	cut                                bool
	draftNS, scoreNS, sampleNS         int64
}

// fail is a Failure of the completion.
func (s *sequence) fail(format string, args ...any) *Failure {
	return &Failure{File: s.file, Row: s.c.Row, RowID: s.c.RowID, Sample: s.c.Sample, Loop: -1, What: fmt.Sprintf(format, args...)}
}

// begin checks what a completion says by itself.
func (s *sequence) begin() error {
	c, job := &s.c, s.replay.job
	switch {
	case c.Job != job.Name:
		return s.fail("it is of job %s", c.Job)
	case c.Seed != job.Seed:
		return s.fail("its seed is %d, the job's %d", c.Seed, job.Seed)
	case int(c.CompletionTokens) != len(c.Tokens):
		return s.fail("completion_tokens is %d and there are %d tokens", c.CompletionTokens, len(c.Tokens))
	}
	for i, x := range c.Tokens {
		if x < 0 {
			return s.fail("token %d is %d", i, x)
		}
	}
	if err := s.replay.ends.check(s); err != nil {
		return err
	}
	if err := s.beamScores(); err != nil {
		return err
	}
	return s.text()
}

// text derives the text, and where and why it ends, from the tokens again.
func (s *sequence) text() error {
	c, o, job := &s.c, &s.replay.options, s.replay.job
	if o.Tokenizer == nil {
		return nil
	}
	limit := job.MaxNewTokens
	if c.FinishReason == storage.FinishLength {
		limit = len(c.Tokens) // which ends.check has held against the job
	}
	end := engine.End(o.Tokenizer, o.EOS, job.Stop, limit, c.Tokens)
	reason := end.Reason
	if c.FinishReason == storage.FinishError && reason == "" {
		reason = storage.FinishError
	}
	switch text := strings.ToValidUTF8(end.Text, "\uFFFD"); {
	case end.Tokens != len(c.Tokens):
		return s.fail("it has %d tokens; the first %d of them end it by %s", len(c.Tokens), end.Tokens, end.Reason)
	case reason != c.FinishReason || end.Stop != c.StopReason:
		return s.fail("it ended by %q (stop sequence %q); its tokens say %q (%q)", c.FinishReason, c.StopReason, reason, end.Stop)
	case text != c.Completion:
		at := 0
		for at < min(len(text), len(c.Completion)) && text[at] == c.Completion[at] {
			at++
		}
		return s.fail("its text differs from that of its tokens at byte %d: %.20q in place of %.20q", at, c.Completion[at:], text[at:])
	}
	return nil
}

// loop replays the sequence's next loop.
func (s *sequence) loop(file string, l *storage.Loop) error {
	if s.replay.job.Beams != nil {
		return s.beamLoop(file, l)
	}
	fail := func(format string, args ...any) error {
		return &Failure{File: file, Row: l.Row, RowID: l.RowID, Sample: l.Sample, Loop: l.Loop, What: fmt.Sprintf(format, args...)}
	}
	if what := s.follows(l); what != "" {
		return fail("%s", what)
	}
	coins := spec.Coins{Seed: s.replay.job.Seed, Row: uint64(l.Row), Sample: uint32(l.Sample)}
	if what := s.replay.decide(l, coins); what != "" {
		return fail("%s", what)
	}
	// What was decided is what the completion has, up to where it ends.
	tokens := l.Decided()
	kept := int(l.Emitted)
	if kept < 1 || kept > len(tokens) {
		return fail("%d of its %d tokens are emitted", kept, len(tokens))
	}
	for i, x := range tokens[:kept] {
		if at := s.tokens + i; at >= len(s.c.Tokens) {
			return fail("it emits token %d of a completion of %d", at, len(s.c.Tokens))
		} else if s.c.Tokens[at] != x {
			return fail("token %d of the completion is %d, the loop decided %d", at, s.c.Tokens[at], x)
		}
	}
	s.cut = kept < len(tokens)
	s.take(l, len(l.Coins))
	return nil
}

// follows says why l cannot be the sequence's next loop; nothing where it can.
func (s *sequence) follows(l *storage.Loop) string {
	job, k, n := s.replay.job, s.replay.lookahead(s.mode, l), len(l.Drafted)
	switch {
	case l.RowID != s.c.RowID:
		return fmt.Sprintf("the row's id is %q, the completion's %q", l.RowID, s.c.RowID)
	case l.Loop != s.loops:
		return fmt.Sprintf("loop %d follows loop %d", l.Loop, s.loops-1)
	case s.cut:
		return "the completion ended in the loop before"
	case int(l.Position) != int(s.c.PromptTokens)+s.tokens:
		return fmt.Sprintf("position is %d after a prompt of %d tokens and %d of the completion", l.Position, s.c.PromptTokens, s.tokens)
	case int(l.K) != k:
		return fmt.Sprintf("k is %d, in mode %s of this job it is %d", l.K, s.mode, k)
	case n > k || n > 0 && s.tokens+n >= job.MaxNewTokens:
		return fmt.Sprintf("%d tokens are drafted with a lookahead of %d and %d of %d tokens to go", n, k, job.MaxNewTokens-s.tokens, job.MaxNewTokens)
	}
	return ""
}

// take counts a loop that replayed; examined is how many of what it drafted were
// looked at.
func (s *sequence) take(l *storage.Loop, examined int) {
	s.tokens += int(l.Emitted)
	s.loops++
	s.drafted += int32(len(l.Drafted))
	s.examined += int32(examined)
	s.accepted += l.Accepted
	s.draftNS += l.DraftNS
	s.scoreNS += l.ScoreNS
	s.sampleNS += l.SampleNS
	if s.replay.options.Shard != nil {
		s.kept = append(s.kept, *l)
	}
}

// lookahead is what k must be in a loop: the job's, or, where the policy
// chooses anew for every loop, any up to it.
func (r *replay) lookahead(m pipeline.Mode, l *storage.Loop) int {
	switch {
	case m == pipeline.ArS:
		return 0
	case r.chosen && l.K >= 0:
		return min(int(l.K), r.job.K)
	}
	return r.job.K
}

// end checks that the loops add up to the completion.
func (s *sequence) end() error {
	c := &s.c
	tokens := int64(s.tokens)
	if s.replay.job.Beams != nil {
		tokens = int64(len(c.Tokens)) // loops are steps of a search, see beams
	}
	for _, sum := range []struct {
		column      string
		says, loops int64
	}{
		{"loops", int64(c.Loops), int64(s.loops)},
		{"drafted", int64(c.Drafted), int64(s.drafted)},
		{"accepted", int64(c.Accepted), int64(s.accepted)},
		{"completion_tokens", int64(c.CompletionTokens), tokens},
		{"draft_ns", c.DraftNS, s.draftNS},
		{"score_ns", c.ScoreNS, s.scoreNS},
		{"sample_ns", c.SampleNS, s.sampleNS},
	} {
		if sum.says != sum.loops {
			return s.fail("%s is %d, its loops add up to %d", sum.column, sum.says, sum.loops)
		}
	}
	return nil
}

// count adds the sequence to what holds.
func (s *sequence) count(n *Mode) {
	n.Completions++
	if s.c.FinishReason == storage.FinishError {
		n.Errors++
	}
	n.Tokens += int64(len(s.c.Tokens))
	n.Loops += int64(s.loops)
	n.Drafted += int64(s.drafted)
	n.Examined += int64(s.examined)
	n.Accepted += int64(s.accepted)
}
