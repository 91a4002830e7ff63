package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// ruled decodes one completion of a small pair under a rule.
func ruled(t testing.TB, tok *tokenize.Tokenizer, eos int32, rule string, s spec.Sampling, k, limit int, coins spec.Uniforms, note func(...any)) []int32 {
	t.Helper()
	const vocab = 3
	r, err := spec.ParseRule(rule)
	if err != nil {
		t.Fatal(err)
	}
	target, draft := enginetest.New(t, vocab, enginetest.Hashed(vocab, 5)), enginetest.New(t, vocab, enginetest.Hashed(vocab, 6))
	target.Note, draft.Note = note, note
	e, err := New(t.Context(), Pair{Target: target, Draft: draft, Tokenizer: tok, EOS: []int32{eos}}, Settings{K: k, Sampling: s, Rule: r})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	tokens, err := e.Draw(t.Context(), []int32{0, 1}, coins, limit)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// TestRulesThroughTheLoop holds whole completions, decoded by the production
// loop, to what each rule promises of their law.
func TestRulesThroughTheLoop(t *testing.T) {
	const limit, k = 3, 2
	tok, eos := enginetest.Letters(t, "ab")
	for _, c := range []struct {
		rule string
		s    spec.Sampling
		l    float64 // no run of n tokens above (1/l)^n; 1: lossless
	}{
		{"match", spec.Sampling{Temperature: 1}, 1},
		{"match", spec.Sampling{Temperature: 0.8, TopP: 0.8, PresencePenalty: 0.5}, 1},
		{"lenient:1", spec.Sampling{Temperature: 1}, 1},
		{"capped:0.5", spec.Sampling{}, 1}, // greedy decoding stays exact
		{"lenient:0.5", spec.Sampling{Temperature: 1}, 0.5},
		{"capped:0.3", spec.Sampling{Temperature: 1, RepetitionPenalty: 1.3}, 0.3},
	} {
		t.Run(fmt.Sprintf("%s/%g", c.rule, c.s.Temperature), func(t *testing.T) {
			law := spectest.Law(func(u *spectest.Coins) string {
				return fmt.Sprint(ruled(t, tok, eos, c.rule, c.s, k, limit, u, u.Note))
			})
			want := targetsLaw(t, enginetest.Hashed(3, 5), 3, c.s, eos, []int32{0, 1}, limit)
			if c.l == 1 {
				sameLaw(t, law, want)
				return
			}
			for out, pr := range law {
				if bound := want[out] * math.Pow(1/c.l, limit); pr > bound+1e-9 {
					t.Errorf("%s has probability %.9f, above its bound %.9f", out, pr, bound)
				}
			}
			if distance(law, want) < 1e-3 {
				t.Error("a lossy rule passes for lossless")
			}
		})
	}
}

// TestInvariantRulesGiveTheAutoregressiveTokens: with the same seed, row by row,
// whatever drafts.
func TestInvariantRulesGiveTheAutoregressiveTokens(t *testing.T) {
	tok, eos := enginetest.Letters(t, "ab")
	for _, rule := range []string{"match", "coupled"} {
		for row := range uint64(50) {
			s, coins := spec.Sampling{Temperature: 1, FrequencyPenalty: 0.2}, spec.Coins{Seed: 3, Row: row}
			ars := ruled(t, tok, eos, rule, s, 0, 25, coins, nil)
			if sps := ruled(t, tok, eos, rule, s, 4, 25, coins, nil); !slices.Equal(ars, sps) {
				t.Errorf("%s: row %d: %v, autoregressively %v", rule, row, sps, ars)
			}
		}
	}
}
