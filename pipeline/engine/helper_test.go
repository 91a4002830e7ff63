package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/spec"
)

// run decodes one completion with a fresh engine and returns what happened.
type ran struct {
	text, reason, stop string
	tokens             []int32
	loops              []Loop
}

func decodeOnce(t testing.TB, pair Pair, k int, s spec.Sampling, coins spec.Uniforms, prompt []int32, stop []string, limit int) ran {
	t.Helper()
	e, err := New(t.Context(), pair, Settings{K: k, Sampling: s})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return decodeAll(t, e, Request{Prompt: prompt, Coins: coins, Stop: stop, Limit: limit})[0]
}

// decodeAll decodes sequences together and returns what happened to each.
func decodeAll(t testing.TB, e *Engine, requests ...Request) []ran {
	t.Helper()
	all := make([]ran, len(requests))
	for i := range requests {
		r := &all[i]
		requests[i].Loop = func(l *Loop) error {
			kept, out := *l, *l.Outcome
			out.P, out.Q, out.Overlap, out.Coins = slices.Clone(l.P), slices.Clone(l.Q), slices.Clone(l.Overlap), slices.Clone(l.Coins)
			out.Below, out.Chance, out.Margins = slices.Clone(l.Below), slices.Clone(l.Chance), slices.Clone(l.Margins)
			kept.Drafted, kept.Outcome = slices.Clone(l.Drafted), &out
			r.loops = append(r.loops, kept)
			return nil
		}
		requests[i].Done = func(s *Sequence) error {
			r.text, r.reason, r.stop = s.Text, s.Reason, s.Stop
			return nil
		}
	}
	tokens, err := e.DrawAll(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].tokens = tokens[i]
	}
	return all
}

func (r ran) String() string { return fmt.Sprintf("%v %s %q", r.tokens, r.reason, r.text) }
