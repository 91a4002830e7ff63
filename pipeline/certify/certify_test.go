package certify

import (
	"math/rand/v2"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/spec"
)

// hashed is a model whose logits are a hash of the whole prefix.
func hashed(t *testing.T, vocab int, seed uint64) *enginetest.Model {
	return enginetest.New(t, vocab, func(prefix []int32) []float32 {
		h := seed
		for _, y := range prefix {
			h = h*0x9E3779B97F4A7C15 + uint64(y) + 1
		}
		r := rand.New(rand.NewPCG(h, 1))
		out := make([]float32, vocab)
		for i := range out {
			out[i] = float32(2 * r.NormFloat64())
		}
		return out
	})
}

func certificate(t *testing.T, rule string, sampling spec.Sampling) *Certificate {
	t.Helper()
	r, err := spec.ParseRule(rule)
	if err != nil {
		t.Fatal(err)
	}
	target, draft := hashed(t, 40, 1), hashed(t, 40, 2)
	c, err := Run(t.Context(), engine.Pair{Target: target, Draft: draft, Tokenizer: letters(t)}, Plan{
		Settings: engine.Settings{K: 3, Sampling: sampling, Rule: r},
		Prompts:  [][]int32{{1, 2, 3}, {4}, {5, 6}}, Samples: 600, Tokens: 3, Seed: 1, Level: 0.001, Power: 0.9,
	}, func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(target.Slots)+len(draft.Slots) != 0 {
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
