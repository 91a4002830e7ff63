package pipeline

import (
	"fmt"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/storage"
)

// tally adds up what the loops of one completion decided, so that completion
// and log are held against each other before either is committed.
type tally struct {
	accepted, recovered, bonus int   // tokens that the completion keeps, by where they came from
	lengths                    []int // lengths[a] is how many loops accepted a drafted tokens
}

func (t *tally) add(l *engine.Loop) {
	for len(t.lengths) <= l.Accepted {
		t.lengths = append(t.lengths, 0)
	}
	t.lengths[l.Accepted]++
	t.accepted += min(l.Emitted, l.Accepted)
	if l.Emitted <= l.Accepted {
		return // the completion ends before the loop's last token
	}
	if len(l.Drafted) == l.Accepted {
		t.bonus++
	} else {
		t.recovered++
	}
}

// tokens is how many tokens of the completion the loops account for.
func (t *tally) tokens() int { return t.accepted + t.recovered + t.bonus }

// check holds a completion against its loops: every token is accepted,
// recovered or bonus, and the histogram of accepted lengths has all loops in
// it and all accepted tokens. The loops of a beam search are steps, of which a
// completion may have taken fewer.
func (t *tally) check(c *storage.Completion, search bool) error {
	loops, accepted := 0, 0
	for a, n := range t.lengths {
		loops += n
		accepted += a * n
	}
	switch {
	case !search && t.tokens() != len(c.Tokens) || int(c.CompletionTokens) != len(c.Tokens):
		return fmt.Errorf("check the log: %d accepted, %d recovered and %d bonus tokens are not the completion's %d (%d counted)", t.accepted, t.recovered, t.bonus, len(c.Tokens), c.CompletionTokens)
	case loops != int(c.Loops):
		return fmt.Errorf("check the log: the histogram of accepted lengths holds %d loops, the completion counts %d", loops, c.Loops)
	case accepted != int(c.Accepted):
		return fmt.Errorf("check the log: the histogram of accepted lengths holds %d accepted tokens, the completion counts %d", accepted, c.Accepted)
	}
	return nil
}
