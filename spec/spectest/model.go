package spectest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/draftmill/draftmill/spec"
)

// Model is a language model over a small vocabulary. Its logits depend on the
// whole prefix, by a hash, so that no two contexts share a distribution. It is
// used by one goroutine at a time.
type Model struct {
	Vocab int
	Seed  uint64
	Only  []int32 // tokens that it knows, of a trimmed draft; the others' logits are -Inf. nil: all

	known map[string][]float32
}

// Logits returns the row after prefix, which is the caller's to read.
func (m *Model) Logits(prefix []int32) []float32 {
	key := Key(prefix)
	if row, ok := m.known[key]; ok {
		return row
	}
	h := m.Seed
	for _, x := range prefix {
		h = h*0x9E3779B97F4A7C15 + uint64(x) + 1
	}
	r := rand.New(rand.NewPCG(h, m.Seed))
	row := make([]float32, m.Vocab)
	for i := range row {
		row[i] = float32(r.NormFloat64())
	}
	for i := range row {
		if m.Only != nil && !slices.Contains(m.Only, int32(i)) {
			row[i] = float32(math.Inf(-1))
		}
	}
	if m.known == nil {
		m.known = map[string][]float32{}
	}
	m.known[key] = row
	return row
}

// Key is a short text that only tokens has; ids are below 256.
func Key(tokens []int32) string {
	b := make([]byte, len(tokens))
	for i, x := range tokens {
		b[i] = byte(x)
	}
	return string(b)
}

// Joint returns the law of the n tokens that follow prompt when each is drawn
// from next's distribution, by output as fmt prints the tokens.
func Joint(prompt []int32, n int, next func(tokens []int32, d *spec.Dist)) map[string]float64 {
	law := map[string]float64{}
	var walk func(tokens []int32, weight float64)
	walk = func(tokens []int32, weight float64) {
		if len(tokens) == len(prompt)+n {
			law[fmt.Sprint(tokens[len(prompt):])] += weight
			return
		}
		var d spec.Dist
		next(tokens, &d)
		for x := range int32(len(d.W)) {
			if pr := d.Prob(x); pr > 0 {
				walk(append(tokens[:len(tokens):len(tokens)], x), weight*pr)
			}
		}
	}
	walk(prompt, 1)
	return law
}
