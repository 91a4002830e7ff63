package certify

import (
	"context"
	"fmt"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
)

// Plan says what to test and how much of it.
type Plan struct {
	Settings engine.Settings // of the speculative engine; its Rule is what is on trial
	Prompts  [][]int32       // tokenized, each of at least one token
	// Drawn, if not nil, is on trial in place of the engine's speculative sampling:
	// by prompt, the tokens of completions that another system drew, of which the
	// first Tokens are tested. One that is shorter has to end with an end of sequence.
	Drawn   [][][]int32
	Samples int // per prompt and mode; with Drawn, of the control, at most as many as there are
	Tokens  int // positions behind each prompt
	Seed    uint64
	Level   float64 // joint chance that a correct engine fails
	Power   float64 // with which the certificate's detectable bias is found
}

// Certificate is the outcome, and all that is needed to judge it.
type Certificate struct {
	Verdict    string         `json:"verdict"` // Pass, Fail or Invalid
	Reason     string         `json:"reason"`
	Prompts    int            `json:"prompts"`
	Samples    int            `json:"samples"`         // per prompt and mode
	Drawn      int            `json:"drawn,omitempty"` // completions of another system, which are on trial
	Tokens     int            `json:"tokens"`          // positions behind each prompt
	Seed       uint64         `json:"seed"`
	K          int            `json:"k"`
	Lookahead  string         `json:"lookahead"`
	Rule       string         `json:"rule"`
	Lossy      bool           `json:"lossy"` // the rule gives no guarantee
	Sampling   spec.Sampling  `json:"sampling"`
	Level      float64        `json:"level"`
	Power      float64        `json:"power"`
	Tests      []Test         `json:"tests"`
	Impossible map[string]int `json:"impossible"` // tokens, by mode, that the target cannot draw
}

// Modes on trial. The control is "ars".
const (
	control     = "ars"
	speculative = "sps"
	other       = "other" // another system's completions
)

// Verdicts.
const (
	Pass    = "pass"    // no bias was found, and one of the stated size would have been
	Fail    = "fail"    // what is on trial does not draw from the target's law
	Invalid = "invalid" // the control failed: the test itself is broken here
)

// Test is the comparison of one mode at one position on one partition.
type Test struct {
	Mode       string  `json:"mode"`
	Position   int     `json:"position"` // 1 is the first token behind the prompt; 0: all positions together
	Partition  string  `json:"partition"`
	N          int     `json:"n"`
	ChiSquare  float64 `json:"chi_square"`
	DF         int     `json:"df"` // 0: nothing to compare
	P          float64 `json:"p"`
	Rejected   bool    `json:"rejected"`   // by Holm's procedure over the mode's tests
	TV         float64 `json:"tv"`         // observed total variation on the partition
	TVUpper    float64 `json:"tv_upper"`   // 95% upper bound of the true one
	Detectable float64 `json:"detectable"` // total variation that would have been found
}

// Run makes a certificate for a pair of models. progress is told how many of
// how many prompts are through.
func Run(ctx context.Context, pair engine.Pair, plan Plan, progress func(done, of int)) (*Certificate, error) {
	c := &Certificate{
		Prompts: len(plan.Prompts), Samples: plan.Samples, Tokens: plan.Tokens, Seed: plan.Seed,
		K: plan.Settings.K, Lookahead: lookahead(plan.Settings.Lookahead), Rule: plan.Settings.Rule.String(),
		Lossy: plan.Settings.Rule.Lossy(), Sampling: plan.Settings.Sampling,
		Level: plan.Level, Power: plan.Power, Impossible: map[string]int{},
	}
	ref, err := newReference(pair, plan.Settings.Sampling)
	if err != nil {
		return nil, err
	}
	defer ref.free()
	ars := pair
	ars.Draft, ars.Law = nil, nil
	trials := []*trial{{mode: control}, {mode: speculative}}
	if plan.Drawn != nil {
		trials[1].mode = other
		c.Rule, c.Lookahead, c.K, c.Lossy = "", "", 0, false
		for _, of := range plan.Drawn {
			c.Drawn += len(of)
		}
	}
	for i, p := range []engine.Pair{ars, pair} {
		trials[i].init(plan.Tokens)
		if trials[i].mode == other {
			continue
		}
		if trials[i].engine, err = engine.New(ctx, p, plan.Settings); err != nil {
			return nil, err
		}
		defer trials[i].engine.Close()
	}
	for i, prompt := range plan.Prompts {
		if err := ref.begin(ctx, prompt); err != nil {
			return nil, fmt.Errorf("exact laws of prompt %d: %w", i, err)
		}
		for _, t := range trials {
			if err := t.sample(ctx, plan, ref, i); err != nil {
				return nil, fmt.Errorf("%s samples of prompt %d: %w", t.mode, i, err)
			}
		}
		progress(i+1, len(plan.Prompts))
	}
	for _, t := range trials {
		c.Impossible[t.mode] = t.impossible
		c.Tests = append(c.Tests, t.tests(plan)...)
	}
	c.judge()
	return c, nil
}

// trial is one mode under test.
type trial struct {
	mode       string
	engine     *engine.Engine       // nil: another system's
	tallies    [][partitions]*tally // by position, 0 for all together
	impossible int
}

func (t *trial) init(positions int) {
	t.tallies = make([][partitions]*tally, positions+1)
	for i := range t.tallies {
		for j := range t.tallies[i] {
			t.tallies[i][j] = newTally(partitionCells[j])
		}
	}
}

// sample draws and counts the completions of one prompt.
func (t *trial) sample(ctx context.Context, plan Plan, ref *reference, prompt int) error {
	samples := plan.Samples
	if plan.Drawn != nil {
		samples = min(samples, len(plan.Drawn[prompt]))
	}
	if t.engine == nil {
		for i, tokens := range plan.Drawn[prompt] {
			if err := t.count(ctx, ref, tokens[:min(len(tokens), plan.Tokens)]); err != nil {
				return fmt.Errorf("completion %d: %w", i, err)
			}
		}
		return nil
	}
	requests := make([]engine.Request, samples)
	for s := range requests {
		requests[s] = engine.Request{
			Prompt: plan.Prompts[prompt], Limit: plan.Tokens,
			Coins: spec.Coins{Seed: plan.Seed, Row: uint64(prompt), Sample: uint32(s)},
		}
	}
	all, err := t.engine.DrawAll(ctx, requests)
	if err != nil {
		return err
	}
	for _, tokens := range all {
		if err := t.count(ctx, ref, tokens); err != nil {
			return err
		}
	}
	return nil
}

// count adds one completion.
func (t *trial) count(ctx context.Context, ref *reference, tokens []int32) error {
	for position, x := range tokens {
		if x < 0 || int(x) >= ref.target.model.Vocab() {
			return fmt.Errorf("token %d is outside the target's vocabulary of %d: is this the tokenizer that it was drawn with?", x, ref.target.model.Vocab())
		}
		law, err := ref.after(ctx, tokens[:position])
		if err != nil {
			return err
		}
		if _, possible := law.cell(byRank, x); !possible {
			t.impossible++
			break // no law is known behind what cannot be
		}
		for i := range partitions {
			cell, _ := law.cell(i, x)
			t.tallies[0][i].add(law.cells[i], cell)
			t.tallies[position+1][i].add(law.cells[i], cell)
		}
	}
	return nil
}

// tests turns the counts into tests, judged together.
func (t *trial) tests(plan Plan) []Test {
	var tests []Test
	var p []float64
	for position, tallies := range t.tallies {
		for i, tally := range tallies {
			stat, df := tally.chiSquare()
			tests = append(tests, Test{
				Mode: t.mode, Position: position, Partition: partitionNames[i], N: tally.n,
				ChiSquare: stat, DF: df, P: tally.p(stat, df),
				TV: tally.totalVariation(), TVUpper: min(1, tally.totalVariation()+tally.tvRadius(0.95)),
			})
			p = append(p, tally.p(stat, df))
		}
	}
	for i, rejected := range holm(p, plan.Level) {
		tests[i].Rejected = rejected
		tests[i].Detectable = detectable(tests[i].N, tests[i].DF, plan.Level/float64(len(tests)), plan.Power)
	}
	return tests
}

// judge draws the verdict from the tests.
func (c *Certificate) judge() {
	rejected := map[string]*Test{}
	trial := speculative
	for i := range c.Tests {
		t := &c.Tests[i]
		if t.Rejected && (rejected[t.Mode] == nil || t.P < rejected[t.Mode].P) {
			rejected[t.Mode] = t
		}
		if t.Mode == other {
			trial = other
		}
	}
	switch {
	case c.Impossible[control] > 0:
		c.Verdict, c.Reason = Invalid, fmt.Sprintf("the control drew %d tokens that the target cannot draw", c.Impossible[control])
	case rejected[control] != nil:
		c.Verdict, c.Reason = Invalid, "the control failed: "+rejected[control].String()
	case c.Impossible[trial] > 0:
		c.Verdict, c.Reason = Fail, fmt.Sprintf("%d tokens that the target cannot draw", c.Impossible[trial])
	case rejected[trial] != nil:
		c.Verdict, c.Reason = Fail, rejected[trial].String()
	default:
		c.Verdict, c.Reason = Pass, "no deviation from the target's law, with autoregressive sampling as the control"
	}
}

func (t *Test) String() string {
	return fmt.Sprintf("%s on partition %s: chi-square %.1f with %d degrees of freedom, p = %.2g, total variation %.3f",
		t.where(), t.Partition, t.ChiSquare, t.DF, t.P, t.TV)
}

func (t *Test) where() string {
	if t.Position == 0 {
		return "all tokens"
	}
	return fmt.Sprintf("token %d", t.Position)
}

// lookahead is the text that a Lookahead is parsed from.
func lookahead(l spec.Lookahead) string {
	switch l.Kind {
	case "":
		return spec.FixedLookahead
	case spec.ConfidenceLookahead:
		return fmt.Sprintf("%s:%g", l.Kind, l.Threshold)
	}
	return l.Kind
}
