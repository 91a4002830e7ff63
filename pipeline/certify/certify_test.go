package certify

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
)

// scripted is a model whose logits are a hash of the whole prefix; its slots
// hold the prefix in place of keys and values.
type scripted struct {
	vocab int
	seed  uint64
	slots map[int][]int32
}

func newScripted(vocab int, seed uint64) *scripted {
	return &scripted{vocab, seed, map[int][]int32{}}
}

func (m *scripted) Vocab() int   { return m.vocab }
func (m *scripted) Context() int { return 1000 }
func (m *scripted) Close() error { return nil }
func (m *scripted) Free(s int)   { delete(m.slots, s) }
func (m *scripted) Copy(dst, src, n int) error {
	m.slots[dst] = slices.Clone(m.slots[src][:n])
	return nil
}
func (m *scripted) Alloc() (int, error) {
	s := len(m.slots)
	m.slots[s] = nil
	return s, nil
}

func (m *scripted) Forward(_ context.Context, slots, past []int, tokens [][]int32) ([]float32, error) {
	var out []float32
	held := m.slots[slots[0]][:past[0]]
	for _, x := range tokens[0] {
		held = append(held, x)
		h := m.seed
		for _, y := range held {
			h = h*0x9E3779B97F4A7C15 + uint64(y) + 1
		}
		r := rand.New(rand.NewPCG(h, 1))
		for range m.vocab {
			out = append(out, float32(2*r.NormFloat64()))
		}
	}
	m.slots[slots[0]] = held
	return out, nil
}

func certificate(t *testing.T, rule string, sampling spec.Sampling) *Certificate {
	t.Helper()
	r, err := spec.ParseRule(rule)
	if err != nil {
		t.Fatal(err)
	}
	target, draft := newScripted(40, 1), newScripted(40, 2)
	c, err := Run(t.Context(), engine.Pair{Target: target, Draft: draft, Tokenizer: letters(t)}, Plan{
		Settings: engine.Settings{K: 3, Sampling: sampling, Rule: r},
		Prompts:  [][]int32{{1, 2, 3}, {4}, {5, 6}}, Samples: 600, Tokens: 3, Seed: 1, Level: 0.001, Power: 0.9,
	}, func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(target.slots)+len(draft.slots) != 0 {
		t.Error("slots are left")
	}
	return c
}

func TestLosslessRulesPass(t *testing.T) {
	for _, rule := range []string{"rejection", "match"} {
		for _, s := range []spec.Sampling{{Temperature: 1}, {Temperature: 0.7, TopP: 0.8}, {Temperature: 1, RepetitionPenalty: 1.3}} {
			if c := certificate(t, rule, s); c.Verdict != Pass || c.Lossy {
				t.Errorf("%s at %+v: %s: %s", rule, s, c.Verdict, c.Reason)
			}
		}
	}
}

func TestLossyRulesFail(t *testing.T) {
	for _, rule := range []string{"lenient:0.3", "capped:0.3"} {
		c := certificate(t, rule, spec.Sampling{Temperature: 1})
		if c.Verdict != Fail || !c.Lossy {
			t.Errorf("%s: %s: %s", rule, c.Verdict, c.Reason)
		}
		for _, x := range c.Tests {
			if x.Mode == "ars" && x.Rejected {
				t.Errorf("%s: the control is rejected: %s", rule, x.String())
			}
		}
	}
}

func TestTheCertificateSaysWhatItCouldSee(t *testing.T) {
	c := certificate(t, "rejection", spec.Sampling{Temperature: 1})
	for _, x := range c.Tests {
		if x.DF > 0 && (x.Detectable <= 0 || x.Detectable > 0.2 || x.TVUpper < x.TV) {
			t.Errorf("%+v", x)
		}
	}
}
