package engine

import (
	"slices"
	"strings"

	"github.com/draftmill/draftmill/pipeline/tokenize"
)

// Why a completion ended.
const (
	FinishStop   = "stop"   // at a stop sequence
	FinishEOS    = "eos"    // at an end-of-sequence token
	FinishLength = "length" // at its limit, or the context's
)

// Ending is where and why a completion ends, as a function of its tokens.
type Ending struct {
	Tokens int    // of those that there are, how many the completion has
	Text   string // without the stop sequence and what came with it
	Reason string // FinishStop, FinishEOS or FinishLength; empty where it goes on
	Stop   string // the stop sequence that was found
}

// End says where a completion ends whose target drew these tokens. limit is the
// most that it may have.
func End(t *tokenize.Tokenizer, eos []int32, stop []string, limit int, tokens []int32) Ending {
	e := newEnding(t, eos, stop, limit)
	for i, x := range tokens {
		if e.push(x) {
			return Ending{i + 1, e.completion(), e.reason, e.stoppedBy}
		}
	}
	return Ending{Tokens: len(tokens), Text: e.completion()}
}

// ending watches a completion grow, token by token, and says where it ends.
type ending struct {
	eos    []int32
	stop   []string
	limit  int // tokens
	stream *tokenize.Stream

	text      strings.Builder
	longest   int // of the stop sequences, in bytes
	tokens    int
	reason    string // empty while the completion goes on
	stoppedBy string
	cut       int // length of the text before the stop sequence
}

func newEnding(t *tokenize.Tokenizer, eos []int32, stop []string, limit int) *ending {
	e := &ending{eos: eos, stop: stop, limit: limit, stream: t.NewStream()}
	for _, s := range stop {
		e.longest = max(e.longest, len(s))
	}
	return e
}

// push takes the next token and reports whether it is the last.
func (e *ending) push(id int32) bool {
	e.tokens++
	if slices.Contains(e.eos, id) {
		e.reason = FinishEOS
		e.append(e.stream.Flush())
		return true
	}
	e.append(e.stream.Push(id))
	if e.reason == "" && e.tokens >= e.limit {
		e.reason = FinishLength
		e.append(e.stream.Flush())
	}
	return e.reason != ""
}

// append adds text and looks for a stop sequence that ends in it. The earliest
// one counts; of two that start together, the longer.
func (e *ending) append(more string) {
	if more == "" {
		return
	}
	from := max(0, e.text.Len()-e.longest+1)
	e.text.WriteString(more)
	tail := e.text.String()[from:]
	at := -1
	for _, s := range e.stop {
		if i := strings.Index(tail, s); i >= 0 && (at < 0 || i < at || i == at && len(s) > len(e.stoppedBy)) {
			at, e.stoppedBy = i, s
		}
	}
	if at >= 0 {
		e.reason, e.cut = FinishStop, from+at
	}
}

// completion is the text, without the stop sequence and what came with it.
func (e *ending) completion() string {
	if e.reason == FinishStop {
		return e.text.String()[:e.cut]
	}
	return e.text.String()
}
