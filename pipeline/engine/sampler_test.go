package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/pipeline/engine/remote"
	"github.com/draftmill/draftmill/spec"
)

// exactRemote is a sampler elsewhere that computes as package spec does, so that an
// engine over it has to decode what it decodes alone, to the bit.
type exactRemote struct {
	target, draft Decoder
	sampling      spec.Sampling // without what edits say
	rule          spec.Rule
	logits        []float32
	steps         [][]*spec.Dist
	fail          error
}

func newExactRemote(target, draft Decoder, s spec.Sampling, rule spec.Rule) *exactRemote {
	return &exactRemote{target: target, draft: draft, rule: rule.For(s), sampling: spec.Sampling{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
	}}
}

func (r *exactRemote) KeepTarget(ctx context.Context, spans []Span) (err error) {
	r.logits, err = r.target.Forward(ctx, spans)
	return err
}

func (r *exactRemote) KeepDraft(ctx context.Context, spans []Span) (err error) {
	r.logits, err = r.draft.Forward(ctx, spans)
	return err
}

// laws are those of all rows of the last pass.
func (r *exactRemote) laws(rows []remote.Row) (laws []*spec.Dist, drawn []remote.Drawn, err error) {
	vocab := r.target.Vocab()
	if len(r.logits) != len(rows)*vocab {
		return nil, nil, fmt.Errorf("%d rows are drawn from, the pass has %d", len(rows), len(r.logits)/vocab)
	}
	chain, err := spec.NewChain(r.sampling, vocab, nil)
	if err == nil {
		err = chain.Begin([]int32{0})
	}
	for i, row := range rows {
		logits := slices.Clone(r.logits[i*vocab : (i+1)*vocab])
		for _, e := range row.Edits {
			x := logits[e.Token] + e.Add
			if x < 0 {
				x *= e.Penalty
			} else {
				x /= e.Penalty
			}
			if e.Ban {
				x = float32(math.Inf(-1))
			}
			logits[e.Token] = x - e.Less - e.Presence
		}
		d := &spec.Dist{}
		var x remote.Drawn
		switch err := chain.Standardize(logits, []int32{0}, d); {
		case errors.Is(err, spec.ErrNotANumber):
			x.NaN = true
		case errors.Is(err, spec.ErrNoMass):
			x.None = true
		case err != nil:
			return nil, nil, err
		default:
			x.Token = d.Sample(row.Uniform)
			x.Prob = d.Prob(x.Token)
			if r.sampling.Greedy() {
				x.Margin = d.Margin()
			}
		}
		laws, drawn = append(laws, d), append(drawn, x)
	}
	return laws, drawn, errors.Join(err, r.fail)
}

func (r *exactRemote) Draft(step int, rows []remote.Row) ([]remote.Drawn, error) {
	laws, drawn, err := r.laws(rows)
	r.steps = append(r.steps[:step], laws)
	return drawn, err
}

func (r *exactRemote) Draw(rows []remote.Row) ([]remote.Drawn, error) {
	_, drawn, err := r.laws(rows)
	return drawn, err
}

func (r *exactRemote) Verify(rows []remote.Row, drafted []remote.Drafted) ([]remote.Drawn, []remote.Verified, error) {
	laws, drawn, err := r.laws(rows)
	if err != nil {
		return nil, nil, err
	}
	all := slices.Concat(r.steps...)
	if len(all) != len(drafted) {
		return nil, nil, fmt.Errorf("%d tokens were drafted, the steps drew %d", len(drafted), len(all))
	}
	verified := make([]remote.Verified, len(drafted))
	for i, x := range drafted {
		p, q := all[i], laws[x.Row]
		if p.W == nil || p.W[x.Token] <= 0 || drawn[x.Row].NaN || drawn[x.Row].None {
			continue // of a sequence that has ended; nobody looks at it
		}
		verified[i] = remote.Verified{P: p.Prob(x.Token), Q: q.Prob(x.Token), Overlap: spec.Overlap(p, q), Recovered: spec.Residual(p, q, x.Uniform)}
		if r.sampling.Greedy() {
			verified[i].Unadjusted = q.Unadjusted(x.Token)
		}
	}
	return drawn, verified, nil
}

// TestSamplerElsewhere: an engine that draws where its models are decodes what one
// does that draws here, loop by loop, with lanes of different lookaheads, ends inside
// of drafts, drafts that have nothing to propose, sequences that fail, and too few
// blocks.
func TestSamplerElsewhere(t *testing.T) {
	tokenizer, eos := enginetest.Letters(t, "abcdefg")
	vocab := int(eos) + 1
	failed, silent, putBacks := 0, 0, 0
	for n := range 60 {
		r := rand.New(rand.NewPCG(uint64(n), 3))
		s := spec.Sampling{Temperature: []float64{0, 0.7, 1}[n%3]}
		if r.IntN(2) == 0 {
			s.RepetitionPenalty, s.PresencePenalty, s.MinNewTokens = 1.3, 0.4, 2
		}
		if r.IntN(3) == 0 {
			s.TopP = 0.8
		}
		rule, err := spec.ParseRule([]string{"rejection", "rejection", "lenient:0.5", "capped:0.6"}[r.IntN(4)])
		if err != nil {
			t.Fatal(err)
		}
		settings := Settings{K: r.IntN(6), Lanes: 1 + r.IntN(5), Sampling: s, Rule: rule, PassTokens: 8 + r.IntN(30)}
		if s.Temperature > 0 && r.IntN(3) == 0 {
			settings.Lookahead = spec.Lookahead{Kind: spec.ConfidenceLookahead, Threshold: 0.3}
		}
		few := r.IntN(2) == 0
		q, p := enginetest.Hashed(vocab, uint64(n)), enginetest.Hashed(vocab, uint64(n+n%2))
		trimmed := func(prefix []int32) []float32 {
			logits := slices.Clone(p(prefix))
			for i := range logits {
				if len(prefix)%7 == 5 { // nothing may come next
					logits[i] = float32(math.Inf(-1))
				}
			}
			return logits
		}
		broken := func(prefix []int32) []float32 {
			logits := slices.Clone(q(prefix))
			if prefix[0] == 3 && len(prefix) == 11 {
				logits[1] = float32(math.NaN())
			}
			return logits
		}
		decode := func(there bool) ([]ran, []error, int) {
			target, draft := enginetest.New(t, vocab, broken), enginetest.New(t, vocab, trimmed)
			if few {
				target.Blocks, draft.Blocks = 14, 14
			}
			pair := Pair{Target: target, Draft: draft, Tokenizer: tokenizer, EOS: []int32{eos}}
			if there {
				pair.Remote = newExactRemote(target, draft, s, rule)
			}
			e, err := New(t.Context(), pair, settings)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			all, errs := make([]ran, 9), make([]error, 9)
			for next := 0; next < len(all) || e.Active() > 0; {
				for ; next < len(all) && e.Free() > 0; next++ {
					i, out := next, &all[next]
					prompt := []int32{int32(i % 5), int32(i % 3), 1}[:1+i%3]
					err := e.Admit(Request{Prompt: prompt, Coins: spec.Coins{Seed: uint64(n), Row: uint64(i)}, Limit: 6 + 3*i,
						Loop: func(l *Loop) error {
							kept := *l.Outcome
							kept.P, kept.Q, kept.Coins, kept.Margins, kept.Overlap = slices.Clone(l.P), slices.Clone(l.Q), slices.Clone(l.Coins), slices.Clone(l.Margins), slices.Clone(l.Overlap)
							out.loops = append(out.loops, Loop{Position: l.Position, K: l.K, Drafted: slices.Clone(l.Drafted), Emitted: l.Emitted, Outcome: &kept})
							return nil
						},
						Done: func(s *Sequence) error {
							out.tokens, out.reason, errs[i] = slices.Clone(s.Tokens), s.Reason, s.Err
							return nil
						}})
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := e.Step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return all, errs, e.putBacks
		}
		want, wantErrs, _ := decode(false)
		got, gotErrs, back := decode(true)
		putBacks += back
		for i := range want {
			if (gotErrs[i] == nil) != (wantErrs[i] == nil) {
				t.Errorf("case %d: error %v, want %v", n, gotErrs[i], wantErrs[i])
			}
			if wantErrs[i] != nil {
				failed++
			}
			if got[i].String() != want[i].String() || len(got[i].loops) != len(want[i].loops) {
				t.Errorf("case %d, sequence %d: %v in %d loops, want %v in %d", n, i, got[i], len(got[i].loops), want[i], len(want[i].loops))
				continue
			}
			for j := range want[i].loops {
				a, b := want[i].loops[j], got[i].loops[j]
				if len(a.Drafted) == 0 && a.K > 0 {
					silent++
				}
				same := a.Position == b.Position && a.K == b.K && a.Emitted == b.Emitted && a.Accepted == b.Accepted && a.Token == b.Token && a.Kind == b.Kind &&
					slices.Equal(a.Drafted, b.Drafted) && slices.Equal(a.P, b.P) && slices.Equal(a.Q, b.Q) && slices.Equal(a.Coins, b.Coins) && slices.Equal(a.Margins, b.Margins)
				if !same {
					t.Errorf("case %d, sequence %d, loop %d:\n got %+v %+v\nwant %+v %+v", n, i, j, b, b.Outcome, a, a.Outcome)
				}
			}
		}
	}
	if failed == 0 || silent == 0 || putBacks == 0 {
		t.Errorf("%d sequences failed, %d loops had nothing to draft, %d sequences were put back", failed, silent, putBacks)
	}
}

// TestSamplerThatFails: an error of the device ends the step, and the engine goes on
// with other sequences afterwards.
func TestSamplerThatFails(t *testing.T) {
	tokenizer, eos := enginetest.Letters(t, "abc")
	vocab := int(eos) + 1
	target := enginetest.New(t, vocab, enginetest.Hashed(vocab, 1))
	s := spec.Sampling{Temperature: 1}
	r := newExactRemote(target, target, s, spec.Rejection)
	e, err := New(t.Context(), Pair{Target: target, Remote: r, Tokenizer: tokenizer, EOS: []int32{eos}}, Settings{Sampling: s})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	lost := errors.New("the device is lost")
	r.fail = lost
	if _, err := e.Draw(t.Context(), []int32{1}, spec.Coins{}, 3); !errors.Is(err, lost) || e.Active() != 0 {
		t.Errorf("got %v with %d sequences in hand", err, e.Active())
	}
	r.fail = nil
	if tokens, err := e.Draw(t.Context(), []int32{1}, spec.Coins{}, 3); err != nil || len(tokens) == 0 {
		t.Errorf("afterwards: %v, %v", tokens, err)
	}
	if _, err := New(t.Context(), Pair{Target: target, Law: spec.Uniform{Vocab: vocab}, Remote: r, Tokenizer: tokenizer}, Settings{K: 2, Sampling: s}); err == nil {
		t.Error("a drafter without a model is drawn for there")
	}
}
