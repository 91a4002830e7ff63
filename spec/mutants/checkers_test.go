package mutants

import (
	"errors"
	"fmt"
	"math"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// checker holds a loop to one thing, and says what is wrong with it, or nothing.
type checker struct {
	name  string
	check func(s *steps) string
}

var checkers = []checker{
	{"law, temperature", law(spec.Sampling{Temperature: 0.8})},
	{"law, top-k and top-p", law(spec.Sampling{Temperature: 1, TopK: 3, TopP: 0.8})},
	{"law, penalties", law(spec.Sampling{Temperature: 1, PresencePenalty: 1.5, RepetitionPenalty: 1.5})},
	{"law, greedy", law(spec.Sampling{})},
	{"yield", yield},
	{"chi-square", chiSquare},
	{"coins", audit},
	{"replay", replay},
	{"hostile rows", hostile},
}

func quiet(...any) {}
func unseen(round) {}

// law compares the joint law of three tokens, over all coins of the loops that
// they take, with the target's (Theorem 1 of Chen et al.).
func law(sampling spec.Sampling) func(*steps) string {
	const vocab, k, length = 3, 2, 3
	target := func() map[string]float64 {
		w := newWorld(vocab, k, sampling)
		chain, err := spec.NewChain(sampling, vocab, nil)
		if err != nil {
			panic(err)
		}
		if err := chain.Begin(w.prompt); err != nil {
			panic(err)
		}
		return spectest.Joint(w.prompt, length, func(tokens []int32, d *spec.Dist) {
			if err := chain.Standardize(w.target.Logits(tokens), tokens, d); err != nil {
				panic(err)
			}
		})
	}
	return func(s *steps) string {
		w, want := newWorld(vocab, k, sampling), target()
		got := spectest.Law(func(u *spectest.Coins) string {
			tokens, err := w.decode(s, u, length, u.Note, unseen)
			if err != nil {
				return err.Error()
			}
			return fmt.Sprint(tokens)
		})
		worst, where := 0.0, ""
		for _, side := range []map[string]float64{got, want} {
			for out := range side {
				if off := math.Abs(got[out] - want[out]); off > worst {
					worst, where = off, out
				}
			}
		}
		if worst > 1e-9 {
			return fmt.Sprintf("%s has probability %.4f, the target gives %.4f", where, got[where], want[where])
		}
		return ""
	}
}

// yield compares the expected number of tokens of the first loop with the sum
// over t of the probability that t drafted tokens are accepted, plus one
// (Leviathan et al., equation 1, without its assumption of independence).
func yield(s *steps) string {
	const vocab, k = 3, 2
	w := newWorld(vocab, k, spec.Sampling{Temperature: 1})
	type stop struct{ tokens int }
	law := spectest.Law(func(u *spectest.Coins) (count string) {
		defer func() {
			if r := recover(); r != nil {
				done, ok := r.(stop)
				if !ok {
					panic(r)
				}
				count = fmt.Sprint(done.tokens)
			}
		}()
		_, err := w.decode(s, u, k+1, u.Note, func(r round) { panic(stop{r.tokens}) })
		return fmt.Sprint(err)
	})
	var got float64
	for count, pr := range law {
		var n float64
		if _, err := fmt.Sscan(count, &n); err != nil {
			return count
		}
		got += n * pr
	}
	want := 1.0
	var accepted func(tokens []int32, weight float64)
	accepted = func(tokens []int32, weight float64) {
		p, q := unwarped(w.draft.Logits(tokens)), unwarped(w.target.Logits(tokens))
		for x := range int32(vocab) {
			pr := weight * min(p.Prob(x), q.Prob(x))
			want += pr
			if len(tokens)+1 < len(w.prompt)+k {
				accepted(append(tokens[:len(tokens):len(tokens)], x), pr)
			}
		}
	}
	accepted(w.prompt, 1)
	if math.Abs(got-want) > 1e-9 {
		return fmt.Sprintf("a loop yields %.4f tokens, it should be %.4f", got, want)
	}
	return ""
}

// chiSquare draws many sequences with production coins and compares the counts
// of each token, at each position after each first token, with the target's
// law.
func chiSquare(s *steps) string {
	const vocab, k, length, samples = 8, 3, 3, 4000
	w := newWorld(vocab, k, spec.Sampling{Temperature: 1, TopP: 0.9})
	counts := map[string]float64{}
	for row := range uint64(samples) {
		tokens, err := w.decode(s, spec.Coins{Seed: 5, Row: row}, length, quiet, unseen)
		if err != nil {
			return err.Error()
		}
		for t := range tokens {
			counts[fmt.Sprint(t, tokens[0], tokens[t])]++
		}
	}
	chain, err := spec.NewChain(w.sampling, vocab, nil)
	if err != nil {
		return err.Error()
	}
	expected := map[string]float64{}
	for out, pr := range spectest.Joint(w.prompt, length, func(tokens []int32, d *spec.Dist) {
		if err := chain.Standardize(w.target.Logits(tokens), tokens, d); err != nil {
			panic(err)
		}
	}) {
		tokens := make([]int32, length)
		if _, err := fmt.Sscanf(out, "[%d %d %d]", &tokens[0], &tokens[1], &tokens[2]); err != nil {
			return err.Error()
		}
		for t := range tokens {
			expected[fmt.Sprint(t, tokens[0], tokens[t])] += pr * samples
		}
	}
	for key, n := range counts {
		if expected[key] == 0 {
			return fmt.Sprintf("position, first token and token %s came %v times and cannot", key, n)
		}
	}
	for t := range length {
		var sum, free, rare, rareWant float64
		for key, want := range expected {
			if key[0] != byte('0'+t) {
				continue
			}
			if want < 8 {
				rare, rareWant = rare+counts[key], rareWant+want
				continue
			}
			sum += (counts[key] - want) * (counts[key] - want) / want
			free++
		}
		if rareWant >= 8 {
			sum += (rare - rareWant) * (rare - rareWant) / rareWant
			free++
		}
		if z := spectest.ChiSquareZ(sum, free-1); z > 5 {
			return fmt.Sprintf("position %d: chi-square %.0f of %.0f degrees", t, sum, free-1)
		}
	}
	return ""
}

// ledger remembers every coin that was asked for.
type ledger struct {
	spec.Uniforms
	asked map[string]bool
	value map[float64]string
	wrong string
}

func (l *ledger) Uniform(purpose spec.Purpose, position int) float64 {
	u := l.Uniforms.Uniform(purpose, position)
	key := fmt.Sprintf("coin %d at %d", purpose, position)
	switch other, known := l.value[u]; {
	case l.asked[key]:
		l.wrong = key + " decides twice"
	case known:
		l.wrong = key + " is " + other
	}
	l.asked[key], l.value[u] = true, key
	return u
}

// audit checks that within a sequence no coin decides twice, and that no two
// coins share a draw.
func audit(s *steps) string {
	w := newWorld(5, 3, spec.Sampling{Temperature: 1})
	for row := range uint64(60) {
		l := &ledger{Uniforms: spec.Coins{Row: row}, asked: map[string]bool{}, value: map[float64]string{}}
		if _, err := w.decode(s, l, 12, quiet, unseen); err != nil {
			return err.Error()
		}
		if l.wrong != "" {
			return l.wrong
		}
	}
	return ""
}

// replay decides every loop again from its log and from coins that are derived
// from the seed.
func replay(s *steps) string {
	w := newWorld(5, 3, spec.Sampling{Temperature: 1})
	wrong := ""
	for row := range uint64(200) {
		coins := spec.Coins{Row: row}
		if _, err := w.decode(s, coins, 12, quiet, func(r round) {
			accepted := 0
			for accepted < len(r.out.P) && spec.Accept(coins.Uniform(spec.AcceptCoin, r.n+accepted), r.out.P[accepted], r.out.Q[accepted]) {
				accepted++
			}
			full := accepted == len(r.drafted)
			switch {
			case accepted != r.out.Accepted:
				wrong = fmt.Sprintf("%d tokens are accepted, the log says %d", accepted, r.out.Accepted)
			case full != (r.out.Kind == spec.Bonus):
				wrong = fmt.Sprintf("the last token is called %s", r.out.Kind)
			case !full && r.out.Token == r.drafted[accepted]:
				wrong = "a token is recovered that was just rejected"
			}
		}); err != nil {
			return err.Error()
		}
	}
	return wrong
}

// constant is a coin that always falls alike.
type constant float64

func (c constant) Uniform(spec.Purpose, int) float64 { return float64(c) }

func (c constant) Noise(int) spec.Noise { return spec.Noise{} }

// hostile hands the verification rows that must be refused, and a draft that
// must be rejected.
func hostile(s *steps) string {
	nan := float32(math.NaN())
	row := func(w ...float32) spec.Dist {
		var sum float64
		for _, x := range w {
			sum += float64(x)
		}
		return spec.Dist{W: w, Sum: sum}
	}
	for _, c := range []struct {
		name string
		p, q spec.Dist
		want error
	}{
		{"a drafted token with p = 0", row(0, 1), row(1, 1), spec.ErrImpossibleDraft},
		{"NaN in the draft's row", row(nan, 1), row(1, 1), spec.ErrNotANumber},
		{"NaN in the target's row", row(1, 1), row(nan, 1), spec.ErrNotANumber},
		{"a row without mass", row(1, 1), row(0, 0), spec.ErrNoMass},
	} {
		var out spec.Outcome
		if err := s.verify(nil, []int32{0}, []spec.Dist{c.p}, []spec.Dist{c.q, row(1, 1)}, spec.Coins{}, 0, &out); !errors.Is(err, c.want) {
			return fmt.Sprintf("%s: error %v", c.name, err)
		}
	}
	for _, u := range []float64{0, 0.5, 1 - 0x1p-53} {
		var out spec.Outcome
		if err := s.verify(nil, []int32{0}, []spec.Dist{row(1, 1)}, []spec.Dist{row(0, 1), row(1, 1)}, constant(u), 0, &out); err != nil {
			return err.Error()
		}
		if out.Accepted != 0 || out.Token != 1 {
			return fmt.Sprintf("a token with q = 0 is emitted where the coin is %g", u)
		}
	}
	return ""
}
