package report

import (
	"cmp"
	"maps"
	"slices"
)

// Cost is what loops took that drafted Tokens - 1 tokens and scored Tokens,
// on average.
type Cost struct {
	Tokens   int     `json:"tokens"`
	Loops    int64   `json:"loops"`
	DraftMS  float64 `json:"draft_ms"`
	ScoreMS  float64 `json:"score_ms"`
	SampleMS float64 `json:"sample_ms"`
}

// Prediction is what a lookahead capped at K would have yielded.
type Prediction struct {
	K             int      `json:"k"`
	TokensPerLoop float64  `json:"tokens_per_loop"`
	Speedup       *float64 `json:"speedup"`  // of a loop's work over that of ArS; nil where the job has no ArS
	Measured      bool     `json:"measured"` // whether scoring K+1 tokens was; otherwise it is interpolated
}

// costs are the measured times, by tokens scored.
func (g *ledger) costs() []Cost {
	costs := []Cost{}
	for _, n := range slices.Sorted(maps.Keys(g.times)) {
		t := g.times[n]
		costs = append(costs, Cost{
			Tokens: int(n) + 1, Loops: t.loops,
			DraftMS: ratio(float64(t.draft)/1e6, t.loops), ScoreMS: ratio(float64(t.score)/1e6, t.loops), SampleMS: ratio(float64(t.sampled)/1e6, t.loops),
		})
	}
	return costs
}

// counterfactual says what every smaller lookahead would have made of the
// loops of this log.
//
// A loop that drafted k tokens and accepted a of them, had it started at the
// same place with a lookahead of K' < k, would have drafted the same first K'
// tokens, met the same p and q, drawn the same coins, and so accepted
// min(a, K') and yielded min(a, K') + 1 tokens: the draft of a position, its
// coins and the decision over it depend on the prefix and on where the loop
// starts, never on K. That number is no estimate, and it looks at examined
// positions alone: what lies behind a rejection is not used, and what lies
// behind K' is not needed. So the mean over loops is unbiased for a loop that
// starts where this log's loops start. Loops of K' would start at other places
// too, in between; that these are as easy to draft for on average is the one
// assumption here (the papers' theory makes the stronger one, that all places
// are). The same holds for a policy that drafts fewer tokens by itself: K' is
// then a cap. A draft model with a drafter of its own draws other tokens for
// another K', but of the same law.
//
// The cut at a completion's end stays where it is: of a loop's tokens no more
// count than were kept.
//
// Times are the measured ones: drafting by the token, scoring and sampling by
// the number of tokens, between measured numbers along a line. base is the
// cost of a loop of one token, a step of autoregressive sampling.
func (g *ledger) counterfactual(base *Cost) []Prediction {
	predictions := []Prediction{}
	if len(g.shapes) == 0 {
		return predictions
	}
	var largest int32
	for s := range g.shapes {
		largest = max(largest, s.drafted)
	}
	shapes := ordered(g.shapes, func(a, b shape) int {
		return cmp.Or(cmp.Compare(a.drafted, b.drafted), cmp.Compare(a.accepted, b.accepted), cmp.Compare(a.emitted, b.emitted))
	})
	curve, perToken := g.curve(base)
	for k := range largest + 1 {
		var tokens, loops, ms float64
		for s, n := range shapes {
			tokens += float64(n) * float64(min(s.emitted, min(s.accepted, k)+1))
			loops += float64(n)
			drafted := min(s.drafted, k)
			ms += float64(n) * (float64(drafted)*perToken + along(curve, int(drafted)+1))
		}
		p := Prediction{K: int(k), TokensPerLoop: tokens / loops}
		if base != nil && ms > 0 {
			speedup := (base.ScoreMS + base.SampleMS) * tokens / ms
			p.Speedup = &speedup
		}
		p.Measured = slices.ContainsFunc(curve, func(c point) bool { return c.tokens == int(k)+1 })
		predictions = append(predictions, p)
	}
	return predictions
}

// point is the time of scoring and sampling so many tokens.
type point struct {
	tokens int
	ms     float64
}

// fewLoops are too few to take a time from where others are at hand.
const fewLoops = 20

// curve returns the measured points, ascending, and the time of drafting one
// token.
func (g *ledger) curve(base *Cost) (points []point, perToken float64) {
	var draftMS, drafted, most float64
	costs := g.costs()
	for _, c := range costs {
		draftMS += c.DraftMS * float64(c.Loops)
		drafted += float64(c.Tokens-1) * float64(c.Loops)
		most = max(most, float64(c.Loops))
	}
	if base != nil {
		points = append(points, point{1, base.ScoreMS + base.SampleMS})
	}
	for _, c := range costs {
		if (c.Tokens > 1 || base == nil) && float64(c.Loops) >= min(fewLoops, most) {
			points = append(points, point{c.Tokens, c.ScoreMS + c.SampleMS})
		}
	}
	if drafted > 0 {
		perToken = draftMS / drafted
	}
	return points, perToken
}

// along reads a curve at a number of tokens: between two points on the line
// through them, outside at the nearest.
func along(curve []point, tokens int) float64 {
	for i, p := range curve {
		switch {
		case p.tokens < tokens:
			continue
		case p.tokens == tokens || i == 0:
			return p.ms
		}
		before := curve[i-1]
		return before.ms + (p.ms-before.ms)*float64(tokens-before.tokens)/float64(p.tokens-before.tokens)
	}
	if len(curve) == 0 {
		return 0
	}
	return curve[len(curve)-1].ms
}
