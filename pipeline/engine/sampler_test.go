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
	drawn         [][]remote.Drawn // by step
	wide          int              // a row of draws in so many is wide; 0: none
	waits         int              // answers to the engine
	fail          error
}

func newExactRemote(target, draft Decoder, s spec.Sampling, rule spec.Rule) *exactRemote {
	return &exactRemote{target: target, draft: draft, rule: rule.For(s), sampling: spec.Sampling{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
	}}
}

func (r *exactRemote) KeepTarget(ctx context.Context, spans []Span) (err error) {
	r.logits, err = r.target.Forward(ctx, r.known(spans))
	return err
}

// known are spans with the tokens in place of what stands for them.
func (r *exactRemote) known(spans []Span) []Span {
	drawn := slices.Concat(r.drawn...)
	all := slices.Clone(spans)
	for i := range all {
		s := &all[i]
		s.Tokens = slices.Clone(s.Tokens)
		for j, x := range s.Tokens {
			if x < 0 {
				s.Tokens[j] = drawn[remote.Ref(int(x))].Token
			}
		}
	}
	return all
}

func (r *exactRemote) KeepDraft(ctx context.Context, spans []Span) (err error) {
	r.logits, err = r.draft.Forward(ctx, r.known(spans))
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
			if x.Token = d.Sample(row.Uniform); !r.rule.Replays() && !r.sampling.Greedy() {
				x.Token, x.Margin = d.Race(row.Noise)
			}
			x.Prob = d.Prob(x.Token)
			if r.sampling.Greedy() {
				x.Margin, x.Prob = d.Margin(), softmaxAt(r.logits[i*vocab:(i+1)*vocab], x.Token)
			}
		}
		laws, drawn = append(laws, d), append(drawn, x)
	}
	return laws, drawn, errors.Join(err, r.fail)
}

func (r *exactRemote) Draft(step int, rows []remote.Row, wait bool) ([]remote.Drawn, error) {
	laws, drawn, err := r.laws(rows)
	r.steps, r.drawn = append(r.steps[:step], laws), append(r.drawn[:step], drawn)
	for i := range drawn {
		drawn[i].Wide = r.isWide(rows[i].Uniform)
	}
	if !wait {
		for i, x := range drawn {
			if x.Wide || x.NaN || x.None {
				drawn[i].Token = int32(i % r.target.Vocab()) // anything
			}
		}
		return nil, err
	}
	r.waits++
	answer := slices.Clone(drawn)
	for i := range drawn {
		drawn[i].Wide = false // it was drawn again
	}
	return answer, err
}

// isWide says which rows have a nucleus that is not found at first, by their coin.
func (r *exactRemote) isWide(u float64) bool {
	return r.wide > 0 && int(u*(1<<20))%r.wide == 0
}

func (r *exactRemote) Draw(rows []remote.Row) ([]remote.Drawn, error) {
	r.waits++
	_, drawn, err := r.laws(rows)
	return drawn, err
}

func (r *exactRemote) Verify(rows []remote.Row, drafted []remote.Drafted, whole bool) ([]remote.Drawn, []remote.Verified, error) {
	r.waits++
	laws, drawn, err := r.laws(rows)
	if err != nil {
		return nil, nil, err
	}
	all, tokens := slices.Concat(r.steps...), slices.Concat(r.drawn...)
	if len(all) != len(drafted) {
		return nil, nil, fmt.Errorf("%d tokens were drafted, the steps drew %d", len(drafted), len(all))
	}
	for i := range drawn {
		if drawn[i].Wide = !whole && r.isWide(rows[i].Uniform); drawn[i].Wide {
			drawn[i].Token, drawn[i].Prob = 0, 0
		}
	}
	verified := make([]remote.Verified, len(drafted))
	for i, x := range drafted {
		p, q, token := all[i], laws[x.Row], tokens[i].Token
		verified[i].Drafted = tokens[i]
		if p.W == nil || p.W[token] <= 0 || drawn[x.Row].NaN || drawn[x.Row].None {
			continue // of a sequence that has ended; nobody looks at it
		}
		v := remote.Verified{Drafted: tokens[i], P: p.Prob(token), Q: q.Prob(token), Overlap: spec.Overlap(p, q), Below: q.Below(token), Recovered: spec.Residual(p, q, x.Uniform)}
		if r.sampling.Greedy() {
			v.Unadjusted = q.Unadjusted(token)
		}
		verified[i] = v
	}
	return drawn, verified, nil
}

// TestSamplerElsewhere: an engine that draws where its models are decodes what one
// does that draws here, loop by loop, with lanes of different lookaheads, ends inside
// of drafts, drafts that have nothing to propose, sequences that fail, too few blocks,
// and rows that have to be drawn from again.
func TestSamplerElsewhere(t *testing.T) {
	tokenizer, eos := enginetest.Letters(t, "abcdefg")
	vocab := int(eos) + 1
	failed, silent, putBacks, ends := 0, 0, 0, 0
	for n := range 90 {
		r := rand.New(rand.NewPCG(uint64(n), 3))
		s := spec.Sampling{Temperature: []float64{0, 0.7, 1}[n%3]}
		if r.IntN(2) == 0 {
			s.RepetitionPenalty, s.PresencePenalty, s.MinNewTokens = 1.3, 0.4, 2
		}
		if r.IntN(3) == 0 {
			s.TopP = 0.8
		}
		if r.IntN(3) == 0 {
			s.LogitBias, s.ForbiddenTokens, s.MinNewTokens = map[int32]float64{2: 1.5}, []int32{4}, 3
		}
		rule, err := spec.ParseRule([]string{"rejection", "coupled", "match", "lenient:0.5", "capped:0.6"}[r.IntN(5)])
		if err != nil {
			t.Fatal(err)
		}
		settings := Settings{K: r.IntN(6), Lanes: 1 + r.IntN(5), Sampling: s, Rule: rule, PassTokens: 8 + r.IntN(30)}
		if r.IntN(3) == 0 {
			settings.Lookahead = spec.Lookahead{Kind: spec.ConfidenceLookahead, Threshold: 0.3}
		}
		few, wide := r.IntN(2) == 0, []int{0, 3, 20}[r.IntN(3)]
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
				target.Blocks, draft.Blocks = 12, 12
			}
			pair := Pair{Target: target, Draft: draft, Tokenizer: tokenizer, EOS: []int32{eos}}
			if there {
				remote := newExactRemote(target, draft, s, rule)
				remote.wide = wide
				pair.Remote = remote
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
							kept.P, kept.Q, kept.Coins, kept.Margins, kept.Overlap, kept.Below = slices.Clone(l.P), slices.Clone(l.Q), slices.Clone(l.Coins), slices.Clone(l.Margins), slices.Clone(l.Overlap), slices.Clone(l.Below)
							out.loops = append(out.loops, Loop{Position: l.Position, K: l.K, Lanes: l.Lanes, Drafted: slices.Clone(l.Drafted), Emitted: l.Emitted, Scored: l.Scored, Outcome: &kept})
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
				if i := slices.Index(a.Drafted, eos); i >= 0 && i+1 < a.K {
					ends++
				}
				same := a.Position == b.Position && a.K == b.K && a.Lanes == b.Lanes && a.Emitted == b.Emitted && a.Scored == b.Scored && a.Accepted == b.Accepted && a.Token == b.Token && a.Kind == b.Kind &&
					slices.Equal(a.Drafted, b.Drafted) && slices.Equal(a.P, b.P) && slices.Equal(a.Q, b.Q) && slices.Equal(a.Coins, b.Coins) && slices.Equal(a.Margins, b.Margins) && slices.Equal(a.Below, b.Below)
				if !same {
					t.Errorf("case %d, sequence %d, loop %d:\n got %+v %+v\nwant %+v %+v", n, i, j, b, b.Outcome, a, a.Outcome)
				}
			}
		}
	}
	if failed == 0 || silent == 0 || putBacks == 0 || ends == 0 {
		t.Errorf("%d sequences failed, %d loops had nothing to draft, %d ended inside of a draft, %d sequences were put back", failed, silent, ends, putBacks)
	}
}

// TestSamplerWaits counts how often the engine waits for a device in a loop of three
// sequences: once where it knows the lookahead, and once more for each step where it
// has to see what was drafted.
func TestSamplerWaits(t *testing.T) {
	tokenizer, eos := enginetest.Letters(t, "abcdefg")
	vocab := int(eos) + 1
	const k = 4
	for _, c := range []struct {
		name      string
		sampling  spec.Sampling
		lookahead spec.Lookahead
		k, wide   int
		want      int // a loop
	}{
		{"greedy", spec.Sampling{}, spec.Lookahead{}, k, 0, 1},
		{"sampling", spec.Sampling{Temperature: 0.8, TopP: 0.9, TopK: 5, MinP: 0.01}, spec.Lookahead{}, k, 0, 1},
		{"nothing drafted", spec.Sampling{Temperature: 1}, spec.Lookahead{}, 0, 0, 1},
		{"penalties", spec.Sampling{Temperature: 1, PresencePenalty: 0.1}, spec.Lookahead{}, k, 0, k + 1},
		{"n-grams", spec.Sampling{Temperature: 1, NoRepeatNGramSize: 3}, spec.Lookahead{}, k, 0, k + 1},
		{"bans", spec.Sampling{Temperature: 1, ForbiddenTokens: []int32{1}, MinNewTokens: 3, LogitBias: map[int32]float64{2: 1}}, spec.Lookahead{}, k, 0, 1},
		{"auto", spec.Sampling{Temperature: 1}, spec.Lookahead{Kind: spec.AutoLookahead}, k, 0, 2},
		{"confidence", spec.Sampling{Temperature: 1}, spec.Lookahead{Kind: spec.ConfidenceLookahead, Threshold: 1e-9}, k, 0, k + 1},
		// Every row is wide: what was drafted at first is drafted again, and verified twice.
		{"wide", spec.Sampling{Temperature: 1, TopP: 0.9}, spec.Lookahead{}, k, 1, k + 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			target, draft := enginetest.New(t, vocab, enginetest.Hashed(vocab, 1)), enginetest.New(t, vocab, enginetest.Hashed(vocab, 2))
			r := newExactRemote(target, draft, c.sampling, spec.Rejection)
			r.wide = c.wide
			e, err := New(t.Context(), Pair{Target: target, Draft: draft, Remote: r, Tokenizer: tokenizer}, Settings{K: c.k, Lanes: 3, Sampling: c.sampling, Lookahead: c.lookahead})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			loops := 0
			for i := range 3 {
				err := e.Admit(Request{Prompt: []int32{int32(i), 1}, Coins: spec.Coins{Row: uint64(i)}, Limit: 200, Loop: func(l *Loop) error { loops++; return nil }})
				if err != nil {
					t.Fatal(err)
				}
			}
			for range 12 {
				before, waits, drafts := loops, r.waits, draft.Passes
				if err := e.Step(t.Context()); err != nil {
					t.Fatal(err)
				}
				if loops == before { // prompts
					continue
				}
				want := c.want
				if c.lookahead.Kind == spec.AutoLookahead && draft.Passes == drafts {
					want-- // it drafts nothing
				}
				if c.wide > 0 && before == 0 {
					want++ // and the try that was made again
				}
				if got := r.waits - waits; got != want {
					t.Errorf("loop %d: %d waits, want %d", loops/3, got, want)
				}
			}
			if loops < 20 {
				t.Errorf("%d loops", loops)
			}
		})
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
