package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/spec"
)

// targetsLaw is the law of completions under the target alone: by walking over
// all of them, each token weighted with its probability.
func targetsLaw(t testing.TB, q func([]int32) []float32, vocab int, s spec.Sampling, eos int32, prompt []int32, limit int) map[string]float64 {
	t.Helper()
	chain, err := spec.NewChain(s, vocab, []int32{eos})
	if err != nil {
		t.Fatal(err)
	}
	if err := chain.Begin(prompt); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{}
	var walk func(tokens []int32, weight float64)
	walk = func(tokens []int32, weight float64) {
		if n := len(tokens); n == limit || n > 0 && tokens[n-1] == eos {
			want[fmt.Sprint(tokens)] += weight
			return
		}
		var d spec.Dist
		all := append(slices.Clone(prompt), tokens...)
		if err := chain.Standardize(q(all), all, &d); err != nil {
			t.Fatal(err)
		}
		for x := range int32(vocab) {
			if pr := d.Prob(x); pr > 0 {
				walk(append(slices.Clone(tokens), x), weight*pr)
			}
		}
	}
	walk([]int32{}, 1)
	return want
}

// sameLaw compares two laws to rounding error.
func sameLaw(t testing.TB, law, want map[string]float64) {
	t.Helper()
	for out, pr := range want {
		if math.Abs(law[out]-pr) > 1e-9 {
			t.Errorf("law of %s is %.12f, the target's is %.12f", out, law[out], pr)
		}
	}
	for out, pr := range law {
		if _, ok := want[out]; !ok && pr > 1e-12 {
			t.Errorf("%s has probability %g and the target never says it", out, pr)
		}
	}
}

// distance is how far two laws are apart: the largest difference of a
// probability.
func distance(law, want map[string]float64) float64 {
	worst := 0.0
	for out, pr := range want {
		worst = max(worst, math.Abs(law[out]-pr))
	}
	for out, pr := range law {
		if _, ok := want[out]; !ok {
			worst = max(worst, pr)
		}
	}
	return worst
}
