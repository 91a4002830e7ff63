package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// noting is a law that makes known what it was asked for, as scripted models
// do: an exact law needs to see what every coin decided.
type noting struct {
	law  spec.Drafter
	note func(...any)
}

func (n noting) Law(prefix []int32, s spec.Standardizer, p *spec.Dist) (bool, error) {
	if n.note != nil {
		n.note("law", prefix)
	}
	return n.law.Law(prefix, s, p)
}

// tableOver is a trigram table over a small vocabulary.
func tableOver(t testing.TB, vocab int) *spec.NGram {
	t.Helper()
	trainer, err := spec.NewNGramTrainer(3, vocab)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 3))
	for range 10 {
		text := make([]int32, 20)
		for i := range text {
			text[i] = int32(min(r.IntN(vocab), r.IntN(vocab)))
		}
		if err := trainer.Add(text); err != nil {
			t.Fatal(err)
		}
	}
	return trainer.Table(spec.Digest{})
}

// drafters are all ways of drafting: does a draft model take part, and which
// law without one.
var drafters = []struct {
	name  string
	model bool
	law   func(t testing.TB, vocab int) spec.Drafter
}{
	{"model", true, nil},
	{"ngram", false, func(t testing.TB, vocab int) spec.Drafter { return tableOver(t, vocab).Drafter() }},
	{"lookup", false, func(_ testing.TB, vocab int) spec.Drafter { return spec.Lookup{Vocab: vocab, N: 3} }},
	{"uniform", false, func(_ testing.TB, vocab int) spec.Drafter { return spec.Uniform{Vocab: vocab} }},
	{"model+ngram", true, func(t testing.TB, vocab int) spec.Drafter { return tableOver(t, vocab).Drafter() }},
	{"model+lookup", true, func(_ testing.TB, vocab int) spec.Drafter { return spec.Lookup{Vocab: vocab, N: 3} }},
	{"model+uniform", true, func(_ testing.TB, vocab int) spec.Drafter { return spec.Uniform{Vocab: vocab} }},
}

// trial is one set-up whose law is computed.
type trial struct {
	vocab, limit int
	settings     Settings
	prompt       []int32
	model        bool
	mute         func(prefix []int32) bool // where the draft model has no token to propose; may be nil
	law          func(testing.TB, int) spec.Drafter
	policy       func() spec.Policy // nil: the settings'
	eos          []int32
	change       func(*Engine) // may be nil
}

// law integrates over every coin of whole completions, through the production
// loop, under a clock that passes with the tokens that models are fed.
func (c trial) lawOf(t *testing.T) map[string]float64 {
	t.Helper()
	tok, _ := enginetest.Letters(t, "ab")
	q, p := remembered(enginetest.Hashed(c.vocab, 5)), remembered(enginetest.Hashed(c.vocab, 6))
	if says := p; c.mute != nil {
		none := slices.Repeat([]float32{float32(math.Inf(-1))}, c.vocab)
		p = func(prefix []int32) []float32 {
			if c.mute(prefix) {
				return none
			}
			return says(prefix)
		}
	}
	var law spec.Drafter
	if c.law != nil {
		law = c.law(t, c.vocab)
	}
	return spectest.Law(func(u *spectest.Coins) string {
		time := &enginetest.Clock{}
		target := enginetest.New(t, c.vocab, q)
		target.Note, target.Clock, target.Cost = u.Note, time, costing(10, 1)
		pair := Pair{Target: target, Tokenizer: tok, EOS: c.eos}
		if c.model {
			draft := enginetest.New(t, c.vocab, p)
			draft.Note, draft.Clock, draft.Cost = u.Note, time, costing(1, 1)
			pair.Draft = draft
		}
		if law != nil {
			pair.Law = noting{law, u.Note}
		}
		e, err := newAt(t.Context(), pair, c.settings, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if c.policy != nil {
			e.policy = c.policy()
		}
		if c.change != nil {
			c.change(e)
		}
		e.pair.EOS = c.eos
		tokens, err := e.Draw(t.Context(), c.prompt, u, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(tokens)
	})
}

// remembered keeps the logits of every prefix of one-digit tokens.
func remembered(logits func([]int32) []float32) func([]int32) []float32 {
	known := map[uint64][]float32{}
	return func(prefix []int32) []float32 {
		key := uint64(1)
		for _, x := range prefix {
			key = key*10 + uint64(x)
		}
		if known[key] == nil {
			known[key] = logits(prefix)
		}
		return known[key]
	}
}

func (c trial) want(t *testing.T) map[string]float64 {
	t.Helper()
	eos := int32(-1)
	if len(c.eos) > 0 {
		eos = c.eos[0]
	}
	return targetsLaw(t, enginetest.Hashed(c.vocab, 5), c.vocab, c.settings.Sampling, eos, c.prompt, c.limit)
}

// costing is what a pass over some tokens takes.
func costing(first, more int) func(int) time.Duration {
	return func(tokens int) time.Duration { return time.Duration(first+more*tokens) * time.Millisecond }
}

// lively is a policy as adaptive as can be: what it chooses depends on all that
// every loop before has shown, of discarded drafts and of the clock too.
type lively struct {
	most int
	seen uint64
}

func (p *lively) Begin(l *spec.Lane) bool { p.add(uint64(l.Lag)); return p.seen%2 == 0 }
func (p *lively) Next(lanes []*spec.Lane, beside int) {
	p.add(uint64(beside))
	for _, l := range lanes {
		p.add(uint64(l.Lag))
		l.K = int(p.seen>>20) % (p.most + 1)
	}
}
func (p *lively) Width(most int) int   { return most }
func (p *lively) Costs() *spec.Costs   { return nil }
func (p *lively) More(at float64) bool { p.add(math.Float64bits(at)); return p.seen>>20%4 != 0 }
func (p *lively) Observe(lanes []*spec.Lane, r spec.Round) {
	for _, l := range lanes {
		p.add(uint64(l.Drafted), uint64(l.Accepted), uint64(l.Emitted))
	}
	p.add(uint64(r.Draft), uint64(r.Score), uint64(r.Beside))
}
func (p *lively) add(facts ...uint64) {
	for _, f := range facts {
		p.seen = (p.seen ^ f + 1) * 0x9E3779B97F4A7C15
	}
}

// TestEveryDrafterAndPolicyIsLossless computes the exact law of completions for
// every drafter under every policy, and compares it with the target's.
func TestEveryDrafterAndPolicyIsLossless(t *testing.T) {
	policies := []struct {
		name      string
		lookahead spec.Lookahead
		policy    func() spec.Policy
	}{
		{"fixed", spec.Lookahead{}, nil},
		{"confidence", spec.Lookahead{Kind: spec.ConfidenceLookahead, Threshold: 0.45}, nil},
		{"auto", spec.Lookahead{Kind: spec.AutoLookahead}, func() spec.Policy { return experienced(3) }},
		{"lively", spec.Lookahead{}, func() spec.Policy { return &lively{most: 3, seen: 1 << 21} }},
	}
	for _, d := range drafters {
		for _, p := range policies {
			t.Run(d.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				c := trial{
					vocab: 2, limit: 4, prompt: []int32{0, 1, 0}, model: d.model, law: d.law, policy: p.policy,
					settings: Settings{K: 3, Lookahead: p.lookahead, Sampling: spec.Sampling{Temperature: 1}},
				}
				if d.name == "model+uniform" || d.name == "model+ngram" {
					c.limit, c.settings.K = 3, 2 // many coins: inner loops of one token
				}
				sameLaw(t, c.lawOf(t), c.want(t))
			})
		}
	}
}

// TestDraftersUnderOtherSettings: lookahead 4, larger vocabularies, truncation,
// penalties, greedy decoding and completions that end early.
func TestDraftersUnderOtherSettings(t *testing.T) {
	for _, c := range []struct {
		name   string
		vocab  int
		limit  int
		k      int
		s      spec.Sampling
		eos    []int32
		models []string
	}{
		{"k4", 2, 5, 4, spec.Sampling{Temperature: 1}, nil, []string{"lookup"}},
		{"k4 top-p", 3, 5, 4, spec.Sampling{Temperature: 0.8, TopP: 0.7}, []int32{2}, []string{"model", "ngram", "lookup", "model+lookup"}},
		{"inner loops of two", 2, 4, 3, spec.Sampling{Temperature: 0.8, TopP: 0.8}, nil, []string{"model+ngram", "model+uniform"}},
		{"three tokens", 3, 3, 2, spec.Sampling{Temperature: 0.7}, []int32{2}, []string{"model", "ngram", "lookup", "uniform", "model+lookup"}},
		{"penalties", 3, 3, 2, spec.Sampling{Temperature: 1, RepetitionPenalty: 1.3, PresencePenalty: 0.4}, []int32{2}, []string{"model", "ngram", "lookup", "uniform", "model+lookup"}},
		{"no bigram twice", 3, 4, 3, spec.Sampling{Temperature: 1, NoRepeatNGramSize: 2}, []int32{2}, []string{"ngram", "lookup", "uniform"}},
		{"greedy", 3, 6, 4, spec.Sampling{}, []int32{2}, []string{"model", "ngram", "lookup", "uniform", "model+lookup", "model+ngram"}},
	} {
		for _, d := range drafters {
			if !slices.Contains(c.models, d.name) {
				continue
			}
			t.Run(c.name+"/"+d.name, func(t *testing.T) {
				t.Parallel()
				x := trial{
					vocab: c.vocab, limit: c.limit, prompt: []int32{0, 1, 0}, model: d.model, law: d.law, eos: c.eos,
					settings: Settings{K: c.k, Sampling: c.s},
				}
				sameLaw(t, x.lawOf(t), x.want(t))
			})
		}
	}
}

// TestDraftModelWithNothingToPropose: where none of a trimmed draft model's tokens
// may come next, nothing more is drafted, nested or not, and the law stands.
func TestDraftModelWithNothingToPropose(t *testing.T) {
	last := func(prefix []int32) int32 { return prefix[len(prefix)-1] }
	for where, mute := range map[string]func([]int32) bool{
		"everywhere": func([]int32) bool { return true },
		"behind 1":   func(prefix []int32) bool { return last(prefix) == 1 },
		"later on":   func(prefix []int32) bool { return len(prefix) > 4 },
	} {
		for _, d := range drafters {
			for _, temperature := range []float64{0, 0.8} {
				if !d.model {
					continue
				}
				t.Run(fmt.Sprint(where, "/", d.name, "/", temperature), func(t *testing.T) {
					t.Parallel()
					x := trial{
						vocab: 2, limit: 3, prompt: []int32{0, 1, 0}, model: true, mute: mute, law: d.law,
						settings: Settings{K: 3, Sampling: spec.Sampling{Temperature: temperature}},
					}
					sameLaw(t, x.lawOf(t), x.want(t))
				})
			}
		}
	}
}

// experienced is an auto policy that has decoded before and whose choice hangs
// in the balance.
func experienced(most int) *spec.Auto {
	a := spec.NewAuto(1, 0, most)
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for k := range most + 1 {
		a.Costs().Target.Measured(k+1, ms(11+k))
	}
	a.Costs().Draft.Measured(1, ms(2))
	a.Costs().Draft.Measured(2, ms(2))
	a.Costs().Ready()
	r := rand.New(rand.NewPCG(1, 2))
	l := &spec.Lane{Room: 100}
	a.Begin(l)
	for range 60 {
		a.Next([]*spec.Lane{l}, 0)
		k := l.K
		l.Drafted, l.Accepted = k, 0
		for l.Accepted < k && r.IntN(2) == 0 {
			l.Accepted++
		}
		l.Emitted = l.Accepted + 1
		a.Observe([]*spec.Lane{l}, spec.Round{Draft: ms(2 * k), Score: ms(11 + k)})
	}
	return a
}

// BenchmarkDrafting is everything between the models: their passes cost
// nothing here.
func BenchmarkDrafting(b *testing.B) {
	const vocab = 2048
	tok, _ := enginetest.Letters(b, "ab")
	still := func(seed uint64) Decoder {
		row := enginetest.Hashed(vocab, seed)([]int32{1})
		return &constantModel{logits: slices.Repeat(row, 200), vocab: vocab}
	}
	table := tableOver(b, vocab)
	for _, c := range []struct {
		name string
		pair Pair
	}{
		{"ars", Pair{}},
		{"model", Pair{Draft: still(2)}},
		{"ngram", Pair{Law: table.Drafter()}},
		{"lookup", Pair{Law: spec.Lookup{Vocab: vocab, N: spec.DefaultLookup}}},
		{"model+ngram", Pair{Draft: still(2), Law: table.Drafter()}},
	} {
		for _, kind := range []string{spec.FixedLookahead, spec.AutoLookahead} {
			b.Run(c.name+"/"+kind, func(b *testing.B) {
				pair := c.pair
				pair.Target, pair.Tokenizer = still(1), tok
				e, err := New(b.Context(), pair, Settings{K: 4, Lookahead: spec.Lookahead{Kind: kind}, Sampling: spec.Sampling{Temperature: 0.8}})
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				if err := e.Admit(Request{Prompt: []int32{1}, Coins: spec.Coins{}, Limit: 1 << 20}); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := e.Step(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// constantModel gives the same logits whatever it is fed.
type constantModel struct {
	logits []float32
	vocab  int
}

func (m *constantModel) Vocab() int               { return m.vocab }
func (m *constantModel) Context() int             { return 1 << 20 }
func (m *constantModel) Capacity() int            { return 0 }
func (m *constantModel) Alloc() (int, error)      { return 0, nil }
func (m *constantModel) Free(int)                 {}
func (m *constantModel) Close() error             { return nil }
func (m *constantModel) Share(_, _, _ int) error  { return nil }
func (m *constantModel) Reserve(_, _, _ int) bool { return true }
func (m *constantModel) Truncate(_, _ int)        {}
func (m *constantModel) Forward(_ context.Context, spans []Span) ([]float32, error) {
	rows := 0
	for _, s := range spans {
		rows += s.Rows
	}
	return m.logits[:rows*m.vocab], nil
}
