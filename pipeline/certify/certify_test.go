package certify

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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
	for _, rule := range []string{"rejection", "match", "coupled"} {
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

// TestCoupledIsTheControl: under coupled the trial and its control draw the same
// tokens, so that every figure of theirs is the same.
func TestCoupledIsTheControl(t *testing.T) {
	c := certificate(t, "coupled", spec.Sampling{Temperature: 1})
	half := len(c.Tests) / 2
	for i, ars := range c.Tests[:half] {
		sps := c.Tests[half+i]
		if ars.Mode, sps.Mode = "", ""; ars != sps {
			t.Errorf("%+v\n%+v", ars, sps)
		}
	}
	if c.Verdict != Pass || half == 0 {
		t.Errorf("%s: %s", c.Verdict, c.Reason)
	}
}

// TestDrawnElsewhere: samples of another system pass where they are the target's,
// and fail where they are another model's, or where the system leans to its draft.
func TestDrawnElsewhere(t *testing.T) {
	sampling := spec.Sampling{Temperature: 1, TopK: 8}
	prompts := [][]int32{{1, 2, 3}, {4}, {5, 6}}
	draw := func(target, draft *enginetest.Model, rule string) (all [][][]int32) {
		r, err := spec.ParseRule(rule)
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(t.Context(), engine.Pair{Target: target, Draft: draft, Tokenizer: letters(t)}, engine.Settings{K: 3, Sampling: sampling, Rule: r})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		for i, prompt := range prompts {
			var of [][]int32
			for s := range 800 {
				tokens, err := e.Draw(t.Context(), prompt, spec.Coins{Seed: 77, Row: uint64(i), Sample: uint32(s)}, 4)
				if err != nil {
					t.Fatal(err)
				}
				of = append(of, tokens)
			}
			all = append(all, of)
		}
		return all
	}
	for name, c := range map[string]struct {
		target uint64
		rule   string
		want   string
	}{
		"the target's":        {1, "rejection", Pass},
		"another model's":     {3, "rejection", Fail},
		"leaning to a draft":  {1, "lenient:0.3", Fail},
		"the target's, again": {1, "coupled", Pass},
	} {
		drawn := draw(hashed(t, 40, c.target), hashed(t, 40, 2), c.rule)
		cert, err := Run(t.Context(), engine.Pair{Target: hashed(t, 40, 1), Draft: hashed(t, 40, 2), Tokenizer: letters(t)}, Plan{
			Settings: engine.Settings{K: 3, Sampling: sampling}, Drawn: drawn,
			Prompts: prompts, Samples: 300, Tokens: 3, Seed: 1, Level: 0.001, Power: 0.9,
		}, func(int, int) {})
		if err != nil {
			t.Fatal(err)
		}
		if cert.Verdict != c.want || cert.Drawn != 2400 {
			t.Errorf("%s: %s: %s", name, cert.Verdict, cert.Reason)
		}
	}
	if _, err := Run(t.Context(), engine.Pair{Target: hashed(t, 40, 1), Tokenizer: letters(t)}, Plan{
		Settings: engine.Settings{Sampling: sampling}, Drawn: [][][]int32{{{99}}}, Prompts: prompts[:1], Samples: 1, Tokens: 1, Level: 0.01, Power: 0.9,
	}, func(int, int) {}); err == nil {
		t.Error("a token outside the vocabulary is not noticed")
	}
}

func TestReadDrawn(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "samples.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got, err := ReadDrawn(write(`{"task_id": "HumanEval/0", "completion": "    pass\n"}
{"id": 7, "tokens": [5, 17, 2]}
`))
	want := []Drawn{{ID: "HumanEval/0", Text: "    pass\n"}, {ID: "7", Tokens: []int32{5, 17, 2}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: %+v", err, got)
	}
	for _, bad := range []string{"", "{", `{"task_id": "a"}`, `{"tokens": [1]}`, `{"task_id": "a", "tokens": ["x"]}`} {
		if got, err := ReadDrawn(write(bad)); err == nil {
			t.Errorf("%q gives %+v", bad, got)
		}
	}
	if ids, err := parseTokens("[5, 17,2 ]"); err != nil || !slices.Equal(ids, []int32{5, 17, 2}) {
		t.Errorf("%v %v", ids, err)
	}
}
