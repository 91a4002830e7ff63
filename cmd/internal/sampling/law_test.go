package sampling

import (
	"fmt"
	"math"
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline/engine/remote"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// TestLaw integrates over every coin of a loop whose draws and numbers are the
// device's, and compares the joint law of its k+1 tokens with the target's (Chen et
// al., Theorem 1): exactly, but for the rounding of float32. It runs on the CPU
// only: it takes thousands of loops, and devices are compared by the other tests.
func TestLaw(t *testing.T) {
	o := ort.Options{Device: "cpu", Threads: 1}
	eachDevice(t, func(t *testing.T, _ ort.Options) {}) // loads the library
	for _, c := range []struct {
		name, rule string
		sampling   spec.Sampling
		vocab, k   int
	}{
		{"plain", "rejection", spec.Sampling{Temperature: 1}, 3, 1},
		{"plain", "match", spec.Sampling{Temperature: 1}, 3, 1},
		{"two", "rejection", spec.Sampling{Temperature: 0.6}, 2, 2},
		{"top-p", "rejection", spec.Sampling{Temperature: 0.9, TopP: 0.7}, 4, 1},
		{"penalties", "rejection", spec.Sampling{Temperature: 1, RepetitionPenalty: 1.7, PresencePenalty: 0.9, FrequencyPenalty: 0.5}, 2, 2},
		{"greedy", "rejection", spec.Sampling{}, 5, 2},
	} {
		t.Run(fmt.Sprintf("%s/%s/v%dk%d", c.rule, c.name, c.vocab, c.k), func(t *testing.T) {
			l := &lawful{
				d: deviceT(t, o, c.sampling, c.rule, c.vocab, 0), k: c.k, prompt: []int32{1, 0},
				q: &spectest.Model{Vocab: c.vocab, Seed: 11}, p: &spectest.Model{Vocab: c.vocab, Seed: 7},
			}
			l.chain = chainT(t, c.sampling, c.vocab, l.prompt)
			got := spectest.Law(l.loop)
			want := spectest.Joint(l.prompt, c.k+1, func(tokens []int32, d *spec.Dist) {
				if err := l.chain.Standardize(l.q.Logits(tokens), tokens, d); err != nil {
					panic(err)
				}
			})
			var total float64
			for out, pr := range got {
				if math.Abs(pr-want[out]) > 2e-6 {
					t.Errorf("law of %s is %.9f, want %.9f", out, pr, want[out])
				}
				total += pr
			}
			for out, pr := range want {
				if _, ok := got[out]; !ok && pr > 2e-6 {
					t.Errorf("%s never comes, want %.9f", out, pr)
				}
			}
			if math.Abs(total-1) > 1e-9 {
				t.Errorf("the law sums to %.12f", total)
			}
		})
	}
}

// lawful is a pair of small models that a device draws for.
type lawful struct {
	d      *device
	q, p   *spectest.Model
	chain  *spec.Chain
	k      int
	prompt []int32
}

// loop is one draft-verify round behind the prompt, continued by draws from q.
func (l *lawful) loop(coins *spectest.Coins) string {
	n := len(l.prompt)
	tokens := append([]int32(nil), l.prompt...)
	row := func(m *spectest.Model, at int) Row {
		return Row{Logits: m.Logits(tokens), Chain: l.chain, Tokens: tokens, Coins: coins, At: at}
	}
	must := func(drawn []remote.Place, err error) int32 {
		if err != nil {
			panic(err)
		}
		return drawn[0].Token
	}
	for t := range l.k {
		tokens = append(tokens, must(l.d.Draft(t, []Row{row(l.p, n+t)})))
		coins.Note(spectest.Key(tokens))
	}
	var out spec.Outcome
	later := &later{Coins: coins, have: map[int]float64{}}
	v := Loop{Loop: remote.Loop{Chain: l.chain, Tokens: tokens, Drafted: tokens[n:], Coins: later, Out: &out}}
	for t := range l.k + 1 {
		v.Logits = append(v.Logits, l.q.Logits(tokens[:n+t])...)
	}
	for {
		if err := l.d.Verify([]Loop{v}); err != nil {
			panic(err)
		}
		if !later.ask(l.d.rule, &out, n) {
			break
		}
	}
	tokens = append(tokens[:n+out.Accepted], out.Token)
	for len(tokens) < n+l.k+1 {
		coins.Note(spectest.Key(tokens))
		// Positions past the loop's last token belong to later loops.
		tokens = append(tokens, must(l.d.Draw([]Row{row(l.q, 1000+len(tokens))})))
	}
	return fmt.Sprint(tokens[n:])
}

// later are the coins of a verification. The device takes all that it may need at
// once; the law is integrated coin by coin, each after what the one before it
// decided. So those that draw on the device are given any number first, and the
// verification is made again with each that has turned out to matter.
type later struct {
	*spectest.Coins
	have map[int]float64 // by position
}

func (l *later) Uniform(purpose spec.Purpose, position int) float64 {
	if u, ok := l.have[position]; ok && purpose != spec.AcceptCoin {
		return u
	}
	if purpose == spec.AcceptCoin {
		return l.Coins.Uniform(purpose, position)
	}
	return 0.5
}

// ask asks for the first coin that matters and is not known yet, false where all
// are.
func (l *later) ask(rule spec.Rule, out *spec.Outcome, start int) bool {
	last := start + out.Accepted
	for at := start; at <= last; at++ {
		if _, ok := l.have[at]; ok || at < last && !rule.Invariant() {
			continue
		}
		purpose := spec.BonusCoin
		if out.Kind == spec.Recovered && !rule.Invariant() {
			purpose = spec.ResidualCoin
		}
		l.have[at] = l.Coins.Uniform(purpose, at)
		return true
	}
	return false
}
