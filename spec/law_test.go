package spec_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// tiny is a language model over a small vocabulary: its logits depend on the
// whole prefix, by a hash, so that no two contexts share a distribution.
type tiny struct {
	vocab int
	seed  uint64
}

// dist is the model's law after a prefix; that it was asked for is noted.
func (m tiny) dist(t testing.TB, s spec.Sampling, coins *spectest.Coins, prefix []int32) spec.Dist {
	t.Helper()
	if coins != nil {
		coins.Note(m.seed, prefix)
	}
	h := m.seed
	for _, x := range prefix {
		h = h*0x9E3779B97F4A7C15 + uint64(x) + 1
	}
	r := rand.New(rand.NewPCG(h, m.seed))
	logits := make([]float32, m.vocab)
	for i := range logits {
		logits[i] = float32(r.NormFloat64())
	}
	chain, err := spec.NewChain(s, m.vocab, nil)
	if err != nil {
		t.Fatal(err)
	}
	var d spec.Dist
	if err := chain.Standardize(logits, prefix, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// loop is one draft-verify round at an empty prefix, as the decode loop does
// it, continued by draws from q so that every output has k+1 tokens.
func loop(t testing.TB, q, p tiny, s spec.Sampling, k int, coins *spectest.Coins) []int32 {
	var drafted []int32
	var ps, qs []spec.Dist
	for i := range k {
		d := p.dist(t, s, coins, drafted)
		drafted = append(drafted, d.Sample(coins.Uniform(spec.DraftCoin, i)))
		ps = append(ps, d)
	}
	for i := range k + 1 {
		qs = append(qs, q.dist(t, s, coins, drafted[:i]))
	}
	var out spec.Outcome
	if err := spec.Verify(spec.Rejection, drafted, ps, qs, coins, 0, &out); err != nil {
		t.Fatal(err)
	}
	tokens := append(drafted[:out.Accepted:out.Accepted], out.Token)
	for len(tokens) < k+1 {
		d := q.dist(t, s, coins, tokens)
		// Positions past the loop's last token belong to a later loop.
		tokens = append(tokens, d.Sample(coins.Uniform(spec.BonusCoin, 100+len(tokens))))
	}
	return tokens
}

// TestLoopHasTheTargetsLaw integrates over every coin of a loop and compares
// the joint law of its k+1 tokens with the target's, exactly (Chen et al.,
// Theorem 1).
func TestLoopHasTheTargetsLaw(t *testing.T) {
	samplings := map[string]spec.Sampling{
		"plain":       {Temperature: 1},
		"temperature": {Temperature: 0.6},
		"top-k":       {Temperature: 1, TopK: 2},
		"top-p":       {Temperature: 0.9, TopP: 0.7},
		"greedy":      {},
	}
	for name, s := range samplings {
		for _, size := range []struct{ vocab, k int }{{2, 0}, {3, 1}, {2, 2}, {3, 2}, {2, 3}} {
			t.Run(fmt.Sprintf("%s/v%dk%d", name, size.vocab, size.k), func(t *testing.T) {
				q, p := tiny{size.vocab, 11}, tiny{size.vocab, 7}
				law := spectest.Law(func(u *spectest.Coins) string { return fmt.Sprint(loop(t, q, p, s, size.k, u)) })
				var total float64
				for out, got := range law {
					want := jointProbability(t, q, s, out, size.k+1)
					if math.Abs(got-want) > 1e-9 {
						t.Errorf("law of %s is %.12f, the target's is %.12f", out, got, want)
					}
					total += got
				}
				if math.Abs(total-1) > 1e-9 {
					t.Errorf("the law sums to %.12f", total)
				}
			})
		}
	}
}

func jointProbability(t *testing.T, q tiny, s spec.Sampling, out string, n int) float64 {
	t.Helper()
	tokens := make([]int32, n)
	var into []any
	for i := range tokens {
		into = append(into, &tokens[i])
	}
	format := "["
	for i := range n {
		if i > 0 {
			format += " "
		}
		format += "%d"
	}
	if _, err := fmt.Sscanf(out, format+"]", into...); err != nil {
		t.Fatalf("parse %q: %v", out, err)
	}
	pr := 1.0
	for i := range tokens {
		d := q.dist(t, s, nil, tokens[:i])
		pr *= d.Prob(tokens[i])
	}
	return pr
}

// TestAcceptanceIsTheOverlap checks Theorem 3.5 of Leviathan et al. through
// Verify: a drafted token is accepted with chance sum min(p, q), and the
// outcome's Overlap says so.
func TestAcceptanceIsTheOverlap(t *testing.T) {
	q, p, s := tiny{5, 3}, tiny{5, 4}, spec.Sampling{Temperature: 1}
	var overlap float64
	law := spectest.Law(func(u *spectest.Coins) string {
		pd, qd := p.dist(t, s, u, nil), q.dist(t, s, u, nil)
		x := pd.Sample(u.Uniform(spec.DraftCoin, 0))
		var out spec.Outcome
		if err := spec.Verify(spec.Rejection, []int32{x}, []spec.Dist{pd}, []spec.Dist{qd, q.dist(t, s, u, []int32{x})}, u, 0, &out); err != nil {
			t.Fatal(err)
		}
		overlap = out.Overlap[0]
		return fmt.Sprint(out.Accepted)
	})
	if math.Abs(law["1"]-overlap) > 1e-9 || overlap <= 0 || overlap >= 1 {
		t.Errorf("accepted with chance %.12f, overlap %.12f", law["1"], overlap)
	}
}

// TestLawSeesABias guards the instrument: a verification that accepts with the
// ratio upside down must not pass for the target.
func TestLawSeesABias(t *testing.T) {
	q, p, s := tiny{3, 11}, tiny{3, 7}, spec.Sampling{Temperature: 1}
	law := spectest.Law(func(u *spectest.Coins) string {
		pd, qd := p.dist(t, s, u, nil), q.dist(t, s, u, nil)
		x := pd.Sample(u.Uniform(spec.DraftCoin, 0))
		u.Note(x)
		if !spec.Accept(u.Uniform(spec.AcceptCoin, 0), qd.Prob(x), pd.Prob(x)) {
			x = spec.Residual(&pd, &qd, u.Uniform(spec.ResidualCoin, 0))
		}
		return fmt.Sprintf("[%d]", x)
	})
	worst := 0.0
	for out, got := range law {
		worst = max(worst, math.Abs(got-jointProbability(t, q, s, out, 1)))
	}
	if worst < 1e-3 {
		t.Errorf("an inverted ratio passes for the target to within %g", worst)
	}
}
