package spec_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/draftmill/draftmill/spec"
)

var coupled = mustRule("coupled")

var raceDraws = flag.Int("draws", 500_000, "how many draws TestCoupledJointLaw counts")

func mustRule(name string) spec.Rule {
	r, err := spec.ParseRule(name)
	if err != nil {
		panic(err)
	}
	return r
}

func distOf(w ...float32) spec.Dist {
	var sum float64
	for _, x := range w {
		sum += float64(x)
	}
	return spec.Dist{W: w, Sum: sum}
}

// randomPair is a draft and a target that resemble each other more or less; some
// tokens are impossible under one of them.
func randomPair(r *rand.Rand, vocab int) (p, q spec.Dist) {
	a, b := make([]float32, vocab), make([]float32, vocab)
	spread, apart := 2*r.Float64(), 2*r.Float64()
	for i := range a {
		l := r.NormFloat64() * spread
		a[i], b[i] = float32(math.Exp(l)), float32(math.Exp(l+apart*r.NormFloat64()))
		if r.IntN(6) == 0 && i > 0 {
			a[i] = 0
		}
		if r.IntN(6) == 0 && i > 0 {
			b[i] = 0
		}
	}
	return distOf(a...), distOf(b...)
}

// acceptance is the closed form of Daliri, Musco and Suresh: the chance that two
// races with the same noise have the same winner.
func acceptance(p, q *spec.Dist) (sum float64) {
	for x := range int32(len(p.W)) {
		if p.Prob(x) == 0 || q.Prob(x) == 0 {
			continue
		}
		var rate float64
		for y := range int32(len(p.W)) {
			rate += max(p.Prob(y)/p.Prob(x), q.Prob(y)/q.Prob(x))
		}
		sum += 1 / rate
	}
	return sum
}

// TestCoupledAcceptance: on random pairs, the chances in the log have the closed
// form for their mean under p, coupled accepts as often as that, and the closed
// form lies between (1 - d)/(1 + d) and 1 - d.
func TestCoupledAcceptance(t *testing.T) {
	const draws = 3000
	r := rand.New(rand.NewPCG(4, 2))
	var z float64
	const pairs = 60
	for pair := range uint64(pairs) {
		p, q := randomPair(r, 2+r.IntN(60))
		want, alike := acceptance(&p, &q), spec.Overlap(&p, &q)
		if d := 1 - alike; want < (1-d)/(1+d)-1e-12 || want > alike+1e-12 {
			t.Errorf("pair %d: %v is not between %v and %v", pair, want, (1-d)/(1+d), alike)
		}
		var mean float64
		var out spec.Outcome
		chances := make([]float64, len(p.W))
		verify := func(x int32, coins spec.Uniforms, at int) {
			if err := spec.Verify(coupled, []int32{x}, []spec.Dist{p}, []spec.Dist{q, q}, coins, at, &out); err != nil {
				t.Fatal(err)
			}
		}
		for x := range int32(len(p.W)) {
			if p.W[x] == 0 {
				continue
			}
			verify(x, spec.Coins{}, 0)
			chances[x] = out.Chance[0]
			mean += p.Prob(x) * chances[x]
			if math.Abs(out.Overlap[0]-alike) > 1e-12 {
				t.Errorf("pair %d: overlap %v, want %v", pair, out.Overlap[0], alike)
			}
		}
		if math.Abs(mean-want) > 1e-9 {
			t.Errorf("pair %d: the mean chance is %.12f, the closed form %.12f", pair, mean, want)
		}
		var hits, expected, variance float64
		for at := range draws {
			coins := spec.Coins{Seed: 8, Row: pair}
			x := coupled.Draft(&p, coins, at)
			verify(x, coins, at)
			hits += float64(out.Accepted)
			expected += want
			variance += want * (1 - want)
		}
		z += (hits - expected) * (hits - expected) / max(variance, 1e-9)
	}
	if z > pairs+5*math.Sqrt(2*pairs) {
		t.Errorf("chi-square of the acceptances is %.1f of %d degrees", z, pairs)
	}
}

// TestCoupledJointLaw compares the joint law of draft and target over three
// tokens with the integral over the exponential race.
//
// x wins the draft's race and y the target's where E(z) >= max(E(x) p(z)/p(x),
// E(y) q(z)/q(y)) for every z. For x = y that has chance 1 / sum over z of
// max(p(z)/p(x), q(z)/q(x)). For x != y, with a = E(x) and b = E(y), it is the
// integral of exp(-a - b - max(a p(z)/p(x), b q(z)/q(y))), z the third token,
// over the cone of b/a between p(y)/p(x) and q(y)/q(x).
func TestCoupledJointLaw(t *testing.T) {
	draws := *raceDraws
	// cone integrates exp(-a f - b g) over a > 0, from <= b/a <= to.
	cone := func(f, g, from, to float64) float64 {
		if from >= to {
			return 0
		}
		return (1/(f+g*from) - 1/(f+g*to)) / g
	}
	p, q := distOf(0.5, 0.3, 0.2), distOf(0.2, 0.3, 0.5)
	var want [3][3]float64
	for x := range 3 {
		for y := range 3 {
			if x == y {
				var rate float64
				for z := range int32(3) {
					rate += max(p.Prob(z)/p.Prob(int32(x)), q.Prob(z)/q.Prob(int32(y)))
				}
				want[x][y] = 1 / rate
				continue
			}
			z := int32(3 - x - y)
			pz, qz := p.Prob(z)/p.Prob(int32(x)), q.Prob(z)/q.Prob(int32(y))
			from, to := p.Prob(int32(y))/p.Prob(int32(x)), q.Prob(int32(y))/q.Prob(int32(x))
			turn := min(max(pz/qz, from), max(to, from)) // below it the draft's bound on E(z) is the larger
			want[x][y] = cone(1+pz, 1, from, turn) + cone(1, 1+qz, turn, to)
		}
	}
	for x := range 3 { // the integral is right: its margins are p and q
		if got := want[x][0] + want[x][1] + want[x][2]; math.Abs(got-p.Prob(int32(x))) > 1e-12 {
			t.Fatalf("draft margin of %d is %v", x, got)
		}
		if got := want[0][x] + want[1][x] + want[2][x]; math.Abs(got-q.Prob(int32(x))) > 1e-12 {
			t.Fatalf("target margin of %d is %v", x, got)
		}
	}
	var counts [3][3]float64
	for row := range draws {
		coins := spec.Coins{Seed: 12, Row: uint64(row)}
		x := coupled.Draft(&p, coins, 5)
		y, _ := coupled.Draw(&q, coins, 5)
		counts[x][y]++
	}
	for x := range 3 {
		for y := range 3 {
			pr := want[x][y]
			if z := (counts[x][y] - pr*float64(draws)) / math.Sqrt(pr*(1-pr)*float64(draws)); math.Abs(z) > 5 || pr == 0 && counts[x][y] > 0 {
				t.Errorf("draft %d and target %d: %.6f, want %.6f, %.1f deviations", x, y, counts[x][y]/float64(draws), pr, z)
			}
		}
	}
}

// TestCoupledDraftsOfAnyKind: one-hot and uniform drafts, and a draft that never
// agrees, change how often is accepted and nothing else.
func TestCoupledDraftsOfAnyKind(t *testing.T) {
	q := distOf(3, 0, 1, 2)
	for name, p := range map[string]spec.Dist{
		"one-hot": distOf(0, 0, 1, 0), "uniform": distOf(1, 1, 1, 1), "impossible": distOf(0, 1, 0, 0), "the same": q,
	} {
		for row := range uint64(500) {
			coins := spec.Coins{Row: row}
			x := coupled.Draft(&p, coins, 3)
			want, _ := coupled.Draw(&q, coins, 3)
			var out spec.Outcome
			if err := spec.Verify(coupled, []int32{x}, []spec.Dist{p}, []spec.Dist{q, q}, coins, 3, &out); err != nil {
				t.Fatal(err)
			}
			got := out.Token
			if out.Accepted == 1 {
				got = x
			}
			if got != want || q.W[got] == 0 {
				t.Fatalf("%s, row %d: token %d, autoregressively %d", name, row, got, want)
			}
			if name == "impossible" && (out.Accepted != 0 || out.Chance[0] != 0) || name == "the same" && (out.Accepted != 1 || math.Abs(out.Chance[0]-1) > 1e-12) {
				t.Fatalf("%s: %d accepted, chance %v", name, out.Accepted, out.Chance)
			}
			if len(out.Margins) != out.Accepted+1 || out.Coins[0] != coins.Noise(3).At(x) {
				t.Fatalf("%s: %s", name, fmt.Sprintf("%+v", out))
			}
		}
	}
}
