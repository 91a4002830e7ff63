package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/storage"
)

// ends checks where completions end. Two of the rules are not in the job's
// specification but in the target's folder: which tokens end a sequence, and
// how many tokens its context holds. They are learnt from the completions
// themselves, all of which must agree.
type ends struct {
	job     *pipeline.Job
	last    map[int32]place // end-of-sequence tokens, and a completion that each ends
	longest int             // tokens of prompt and completion: the context, where it cut one
	where   place           // such a one
}

// place names a completion in a message.
type place struct {
	file   string
	row    int64
	sample int32
}

func (p place) String() string { return fmt.Sprintf("row %d sample %d (%s)", p.row, p.sample, p.file) }

// learn reads all completions once.
func (r *replay) learn() error {
	for _, s := range r.files.shards {
		for _, m := range r.job.Modes {
			p, ok := s.parts[m]
			if !ok {
				continue
			}
			if err := read(r.folder, p[0], storage.ReadCompletions, func(c storage.Completion) error {
				r.ends.learn(&c, place{p[0].Path, c.Row, c.Sample})
				return nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *ends) learn(c *storage.Completion, at place) {
	n := len(c.Tokens)
	if total := int(c.PromptTokens) + n; total > e.longest {
		e.longest, e.where = total, at
	}
	if c.FinishReason != storage.FinishEOS || n == 0 {
		return
	}
	if _, known := e.last[c.Tokens[n-1]]; !known {
		e.last[c.Tokens[n-1]] = at
	}
}

// check holds one completion's end against the rules.
func (e *ends) check(s *sequence) error {
	c := &s.c
	n := len(c.Tokens)
	if c.FinishReason == storage.FinishError {
		if c.Error == "" {
			return s.fail("it failed and does not say why")
		}
		return nil
	}
	switch {
	case c.Error != "":
		return s.fail("it ended by %s with the error %q", c.FinishReason, c.Error)
	case n == 0:
		return s.fail("it ended by %s without a token", c.FinishReason)
	case n > e.job.MaxNewTokens:
		return s.fail("it has %d tokens, the job allows %d", n, e.job.MaxNewTokens)
	case e.job.Context > 0 && int(c.PromptTokens)+n > e.job.Context:
		return s.fail("it has %d tokens behind a prompt of %d, the job's context is %d", n, c.PromptTokens, e.job.Context)
	case (c.FinishReason == storage.FinishStop) != (c.StopReason != ""):
		return s.fail("it ended by %s with the stop sequence %q", c.FinishReason, c.StopReason)
	}
	for i, x := range c.Tokens[:n-1] {
		if other, ok := e.last[x]; ok {
			return s.fail("token %d is %d and it goes on, but %s ended with that token", i, x, other)
		}
	}
	for _, stop := range e.job.Stop {
		if strings.Contains(c.Completion, stop) {
			return s.fail("its text goes on after the stop sequence %q", stop)
		}
	}
	switch c.FinishReason {
	case storage.FinishEOS:
		return nil // by its last token, which no completion goes on after
	case storage.FinishStop:
		if !slices.Contains(e.job.Stop, c.StopReason) {
			return s.fail("it ended before %q, which the job does not stop at", c.StopReason)
		}
	case storage.FinishLength:
		if _, eos := e.last[c.Tokens[n-1]]; eos {
			return s.fail("it ended by length with token %d, with which %s ended", c.Tokens[n-1], e.last[c.Tokens[n-1]])
		}
		if total := int(c.PromptTokens) + n; n < e.job.MaxNewTokens && total != e.longest {
			return s.fail("it ended by length after %d of %d tokens, with its prompt after %d, but %s has %d", n, e.job.MaxNewTokens, total, e.where, e.longest)
		}
	default:
		return s.fail("it ended by %q", c.FinishReason)
	}
	return nil
}
