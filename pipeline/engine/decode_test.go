package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// TestDecodeHasTheTargetsLaw integrates over every coin of whole completions,
// through the production loop with its caches and roll-backs, and compares
// their law with the target's, exactly. End-of-sequence cuts some of them.
func TestDecodeHasTheTargetsLaw(t *testing.T) {
	tok, eos := enginetest.Letters(t, "ab")
	const vocab, limit = 3, 3
	prompt := []int32{0, 1}
	for name, s := range map[string]spec.Sampling{
		"plain":  {Temperature: 1},
		"top-p":  {Temperature: 0.8, TopP: 0.8},
		"greedy": {},
	} {
		for k := range 4 {
			t.Run(fmt.Sprintf("%s/k%d", name, k), func(t *testing.T) {
				q, p := enginetest.Hashed(vocab, 5), enginetest.Hashed(vocab, 6)
				law := spectest.Law(func(u *spectest.Coins) string {
					target, draft := enginetest.New(t, vocab, q), enginetest.New(t, vocab, p)
					target.Note, draft.Note = u.Note, u.Note
					pair := Pair{Target: target, Draft: draft, Tokenizer: tok, EOS: []int32{eos}}
					return fmt.Sprint(decodeOnce(t, pair, k, s, u, prompt, nil, limit).tokens)
				})
				sameLaw(t, law, targetsLaw(t, q, vocab, s, eos, prompt, limit))
			})
		}
	}
}

// TestDecodeHasAnEncoderDecodersLaw is the same for an encoder-decoder target: the
// models are told where the input ends, and penalties look back to what the decoder
// begins with.
func TestDecodeHasAnEncoderDecodersLaw(t *testing.T) {
	tok, eos := enginetest.Letters(t, "ab")
	const vocab, limit = 3, 3
	input, start := []int32{0, 1, 0}, []int32{1}
	s := spec.Sampling{Temperature: 1, RepetitionPenalty: 2.5, NoRepeatNGramSize: 2}
	q, p := enginetest.Hashed(vocab, 5), enginetest.Hashed(vocab, 6)
	decoder := func(tokens []int32) []float32 { return q(slices.Concat(input, tokens)) }
	want := targetsLaw(t, decoder, vocab, s, eos, start, limit)
	for name, law := range map[string]spec.Drafter{"draft": nil, "lookup": spec.Lookup{Vocab: vocab, N: 2}} {
		for k := range 3 {
			t.Run(fmt.Sprintf("%s/k%d", name, k), func(t *testing.T) {
				got := spectest.Law(func(u *spectest.Coins) string {
					target, draft := enginetest.New(t, vocab, q), enginetest.New(t, vocab, p)
					target.Note, draft.Note, target.Input, draft.Input = u.Note, u.Note, len(input), len(input)
					pair := Pair{Target: target, Draft: draft, Tokenizer: tok, EOS: []int32{eos}, Encoder: &Encoder{Start: start, Most: 20}}
					if law != nil {
						pair.Draft, pair.Law = nil, law
					}
					return fmt.Sprint(decodeOnce(t, pair, k, s, u, pair.Prompt(input), nil, limit).tokens)
				})
				sameLaw(t, got, want)
			})
		}
	}
	pair := Pair{Target: enginetest.New(t, vocab, q), Encoder: &Encoder{Start: start, Most: 4}}
	for n, room := range map[int]int{1: 3, 4: 3, 5: 0} {
		if got := pair.Room(pair.Prompt(make([]int32, n)), 40); got != room {
			t.Errorf("behind an input of %d tokens there is room for %d, want %d", n, got, room)
		}
	}
}

// TestWhereACompletionEnds has both models recite a text, so that every
// drafted token is accepted, and ends it inside an accepted run.
func TestWhereACompletionEnds(t *testing.T) {
	tok, eos := enginetest.Letters(t, "abcdefgh\n")
	ids := func(text string) []int32 {
		out, err := tok.EncodePlain(text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		recite []int32
		stop   []string
		limit  int
		k      int
		tokens int
		text   string
		reason string
		by     string
		last   int // tokens that the last loop kept
	}{
		{"eos inside the accepted run", append(ids("abc"), eos, 0, 0), nil, 100, 4, 4, "abc", FinishEOS, "", 4},
		{"eos as the bonus token", append(ids("abcd"), eos), nil, 100, 4, 5, "abcd", FinishEOS, "", 5},
		{"eos first", []int32{eos}, nil, 100, 4, 1, "", FinishEOS, "", 1},
		{"stop inside the accepted run", ids("ab\ncdefgh"), []string{"\nc"}, 100, 4, 4, "ab", FinishStop, "\nc", 4},
		{"stop across two loops", ids("abcd\n\nefgh"), []string{"\n\n"}, 100, 4, 6, "abcd", FinishStop, "\n\n", 1},
		{"the earlier stop wins", ids("abcdef"), []string{"cd", "bcd"}, 100, 4, 4, "a", FinishStop, "bcd", 4},
		{"the stop that is complete first", ids("abcdef"), []string{"b", "bc", "abc"}, 100, 0, 2, "a", FinishStop, "b", 1},
		{"limit inside a loop", ids("abcdefgh"), nil, 6, 4, 6, "abcdef", FinishLength, "", 1},
		{"limit of one", ids("abcdefgh"), nil, 1, 4, 1, "a", FinishLength, "", 1},
		{"no lookahead", ids("abcdefgh"), []string{"gh"}, 100, 0, 8, "abcdef", FinishStop, "gh", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			const vocab = 10
			prompt := ids("hh")
			pair := Pair{
				Target:    enginetest.New(t, vocab, enginetest.Reciting(vocab, len(prompt), c.recite)),
				Draft:     enginetest.New(t, vocab, enginetest.Reciting(vocab, len(prompt), c.recite)),
				Tokenizer: tok, EOS: []int32{eos},
			}
			r := decodeOnce(t, pair, c.k, spec.Sampling{Temperature: 1}, spec.Coins{}, prompt, c.stop, c.limit)
			if len(r.tokens) != c.tokens || r.text != c.text || r.reason != c.reason || r.stop != c.by {
				t.Errorf("%d tokens, %q, %s by %q; want %d, %q, %s by %q", len(r.tokens), r.text, r.reason, r.stop, c.tokens, c.text, c.reason, c.by)
			}
			emitted := 0
			for _, l := range r.loops {
				emitted += l.Emitted
			}
			if last := r.loops[len(r.loops)-1]; emitted != len(r.tokens) || last.Emitted != c.last {
				t.Errorf("loops keep %d of %d tokens, the last one %d; want %d", emitted, len(r.tokens), last.Emitted, c.last)
			}
		})
	}
}

// TestNothingIsFedTwice: a loop feeds the target the last token and its drafts,
// and the draft the same but for the last one, which only the next loop feeds
// where it was accepted; the samples of a prompt share its prefill.
func TestNothingIsFedTwice(t *testing.T) {
	tok, _ := enginetest.Letters(t, "ab")
	const vocab, k, limit = 3, 4, 50
	target, draft := enginetest.New(t, vocab, enginetest.Hashed(vocab, 1)), enginetest.New(t, vocab, enginetest.Hashed(vocab, 2))
	prompt := make([]int32, 300)
	e, err := New(t.Context(), Pair{Target: target, Draft: draft, Tokenizer: tok}, Settings{K: k, Sampling: spec.Sampling{Temperature: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for sample := range uint32(3) {
		target.Fed, draft.Fed = 0, 0
		scored, drafted := 0, 0
		if sample == 0 { // the prefill
			scored, drafted = len(prompt)-1, len(prompt)-1
		}
		lag := 0
		if _, err := e.DrawAll(t.Context(), []Request{{Prompt: prompt, Coins: spec.Coins{Sample: sample}, Limit: limit, Loop: func(l *Loop) error {
			scored += len(l.Drafted) + 1
			if k := len(l.Drafted); k > 0 {
				drafted += k + lag
				if lag = 0; l.Accepted == k {
					lag = 1
				}
			}
			return nil
		}}}); err != nil {
			t.Fatal(err)
		}
		if target.Fed != scored || draft.Fed != drafted {
			t.Errorf("sample %d: fed %d and %d tokens, want %d and %d", sample, target.Fed, draft.Fed, scored, drafted)
		}
	}
}

// TestContexts: the target's context ends a completion; a smaller one of the
// draft only ends the drafting.
func TestContexts(t *testing.T) {
	tok, _ := enginetest.Letters(t, "ab")
	const vocab = 3
	prompt := []int32{0, 1, 0, 1, 0}
	for _, c := range []struct{ target, draft, tokens int }{{12, 100, 7}, {30, 11, 25}, {30, 3, 25}, {6, 6, 1}} {
		target, draft := enginetest.New(t, vocab, enginetest.Hashed(vocab, 1)), enginetest.New(t, vocab, enginetest.Hashed(vocab, 2))
		target.Length, draft.Length = c.target, c.draft
		r := decodeOnce(t, Pair{Target: target, Draft: draft, Tokenizer: tok}, 4, spec.Sampling{Temperature: 1}, spec.Coins{}, prompt, nil, 1000)
		if len(r.tokens) != c.tokens || r.reason != FinishLength {
			t.Errorf("contexts %d and %d: %d tokens, %s", c.target, c.draft, len(r.tokens), r.reason)
		}
	}
}

// TestOneTokenPrompt: there is nothing to prefill, and the draft's first step
// has one token to feed.
func TestOneTokenPrompt(t *testing.T) {
	tok, _ := enginetest.Letters(t, "ab")
	pair := Pair{Target: enginetest.New(t, 3, enginetest.Hashed(3, 1)), Draft: enginetest.New(t, 3, enginetest.Hashed(3, 2)), Tokenizer: tok}
	r := decodeOnce(t, pair, 3, spec.Sampling{Temperature: 1}, spec.Coins{}, []int32{1}, nil, 20)
	if len(r.tokens) != 20 {
		t.Errorf("%v", r)
	}
}

func TestEngineRefusesAnotherVocabulary(t *testing.T) {
	tok, _ := enginetest.Letters(t, "ab")
	target := enginetest.New(t, 3, enginetest.Hashed(3, 1))
	_, err := New(t.Context(), Pair{Target: target, Draft: enginetest.New(t, 4, enginetest.Hashed(4, 2)), Tokenizer: tok}, Settings{K: 3})
	if err == nil {
		t.Error("a draft of another vocabulary is taken")
	}
	if len(target.Slots) != 0 {
		t.Error("the target's slot is not given back")
	}
}
