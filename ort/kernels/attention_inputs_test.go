package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// drawInputs draws a layer of a decoder with an encoder: each sequence begins with an
// input of some tokens, whose keys and values its own tokens do not see, and scores get
// something by head and distance.
func drawInputs(r *rand.Rand, lengths, inputs []int) layer {
	l := draw(r, lengths)
	for l.Heads*l.HeadSize > 1000 { // the portable level is slow
		l = draw(r, lengths)
	}
	l.RotaryDim, l.QNorm, l.KNorm, l.Sink = 0, nil, nil, nil
	for _, n := range inputs {
		l.inputs = append(l.inputs, int32(n))
	}
	if r.IntN(4) > 0 {
		l.Distances = slices.Max(lengths) + r.IntN(3)
		l.Bias = normal(r, l.Heads*l.Distances, 1)
	}
	return l
}

// exactRow is attention of a query of head h to positions first to last of sequence s,
// in float64, from the definition; own is where the query stands, -1: outside.
func (l *layer) exactRow(s int, q []float32, h, first, last, own int) []float64 {
	scale := float64(l.Scale)
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(l.HeadSize))
	}
	kv := h / (l.Heads / l.KVHeads) * l.HeadSize
	y, sum := make([]float64, l.HeadSize), 0.0
	for j := first; j <= last; j++ {
		x := l.sequences[s][j]
		var score float64
		for i := range l.HeadSize {
			score += float64(q[h*l.HeadSize+i]) * float64(x.k[kv+i])
		}
		score *= scale
		if l.Bias != nil && own >= 0 {
			score += float64(l.Bias[h*l.Distances+own-j])
		}
		if l.Softcap != 0 {
			score = float64(l.Softcap) * math.Tanh(score/float64(l.Softcap))
		}
		w := math.Exp(score)
		sum += w
		for i := range y {
			y[i] += w * float64(x.v[kv+i])
		}
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

// cross computes attention of the spans' queries to their sequences' inputs.
func (l *layer) cross(t *testing.T, threads Threads, spans []span) []float32 {
	t.Helper()
	hidden := l.Heads * l.HeadSize
	a := Attention{Heads: l.Heads, KVHeads: l.KVHeads, HeadSize: l.HeadSize, Scale: l.Scale, Softcap: l.Softcap, Cross: true,
		Cumulative: []int32{0}, MaxBlocks: l.MaxBlocks, QueryStride: hidden, OutputStride: hidden,
		KeyCache: l.KeyCache, ValueCache: l.ValueCache, BlockSize: l.BlockSize}
	for _, s := range spans {
		for _, x := range l.sequences[s.sequence][s.past : s.past+s.tokens] {
			a.Query = append(a.Query, x.q...)
		}
		a.Cumulative = append(a.Cumulative, int32(len(a.Query)/hidden))
		a.Inputs = append(a.Inputs, l.inputs[s.sequence])
		a.BlockTable = append(a.BlockTable, l.BlockTable[s.sequence*l.MaxBlocks:(s.sequence+1)*l.MaxBlocks]...)
	}
	a.Output = make([]float32, len(a.Query))
	if err := a.Attend(threads); err != nil {
		t.Fatalf("%+v: %v", spans, err)
	}
	return a.Output
}

// TestAttentionWithInputs: attention behind an input and attention to the input are the
// definition, on every level with the same bits, in any company and cut in any way.
func TestAttentionWithInputs(t *testing.T) {
	pools := []Threads{{}, threadsFor(t, 2)}
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 11))
		inputs := []int{1 + r.IntN(60), 1 + r.IntN(20), 1 + r.IntN(40)}
		if seed%5 == 0 {
			inputs[0] = 250 + r.IntN(270) // more than a part
		}
		var lengths []int
		for _, n := range inputs {
			lengths = append(lengths, n+1+r.IntN(40))
		}
		l := drawInputs(r, lengths, inputs)
		name := fmt.Sprintf("seed %d: %d/%d heads of %d, window %d, softcap %g, %d distances, inputs %v of %v", seed, l.Heads, l.KVHeads, l.HeadSize, l.Window, l.Softcap, l.Distances, inputs, lengths)
		hidden := l.Heads * l.HeadSize
		var first [2][]float32
		eachLevel(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 12))
			l.paged(r)
			var all [2][]float32
			check := func(what string, s, p, low, own int, got []float32) {
				t.Helper()
				last := p
				if own < 0 {
					last = inputs[s] - 1
				}
				for h := range l.Heads {
					for i, w := range l.exactRow(s, l.sequences[s][p].q, h, low, last, own) {
						if g := float64(got[h*l.HeadSize+i]); !(math.Abs(g-w) <= 3e-5) {
							t.Fatalf("%s: %s, sequence %d, token %d: %g, not %g", name, what, s, p, g, w)
						}
					}
				}
			}
			for s, n := range inputs {
				l.write(t, s, n)
				for past := n; past < lengths[s]; {
					k := 1 + r.IntN(lengths[s]-past)
					got, across := l.pass(t, pools[0], r.IntN(2) == 0, []span{{s, past, k}}), l.cross(t, pools[0], []span{{s, past, k}})
					for i := range k {
						low := n
						if l.Window > 0 {
							low = max(n, past+i-l.Window+1)
						}
						check("its own", s, past+i, low, past+i, got[i*hidden:])
						check("the input's", s, past+i, 0, -1, across[i*hidden:])
					}
					all[0], all[1] = append(all[0], got...), append(all[1], across...)
					past += k
				}
			}
			for i := range all {
				if first[i] == nil {
					first[i] = all[i]
				} else if at := sameBits(first[i], all[i]); at >= 0 {
					t.Fatalf("%s: other bits than on the portable level at %d", name, at)
				}
			}
			// All together, in other blocks.
			l.paged(r)
			var spans []span
			for s, n := range inputs {
				l.write(t, s, n)
				spans = append(spans, span{s, n, lengths[s] - n})
			}
			for i, got := range [][]float32{l.pass(t, pools[1], false, spans), l.cross(t, pools[1], spans)} {
				if at := sameBits(first[i], got); at >= 0 {
					t.Fatalf("%s: together: other bits at %d", name, at)
				}
			}
		})
	}
}

// write puts keys and values of a sequence's first n tokens into the cache.
func (l *layer) write(t *testing.T, s, n int) {
	t.Helper()
	plain := *l
	plain.inputs, plain.Bias = nil, nil
	plain.pass(t, Threads{}, false, []span{{s, 0, n}})
}

// TestAttentionRefusesInputs: what does not hold together is refused.
func TestAttentionRefusesInputs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 13))
	l := drawInputs(r, []int{20}, []int{8})
	l.Window, l.Distances = 0, 5
	l.Bias = normal(r, l.Heads*l.Distances, 1)
	l.paged(r)
	hidden, kv := l.Heads*l.HeadSize, l.KVHeads*l.HeadSize
	for _, c := range []struct {
		change func(a *Attention)
		want   string
	}{
		{func(*Attention) {}, ""},
		{func(a *Attention) { a.Inputs = []int32{-1} }, "an input"},
		{func(a *Attention) { a.Inputs = []int32{10} }, "an input"},
		{func(a *Attention) { a.Inputs = []int32{3} }, "farther back"},
		{func(a *Attention) { a.Inputs = nil }, "farther back"},
		{func(a *Attention) { a.Distances = 0 }, "no distance"},
		{func(a *Attention) { a.Cross, a.Bias, a.Inputs = true, nil, nil }, "has none"},
		{func(a *Attention) { a.Cross = true }, "belongs to a sequence's own"},
		{func(a *Attention) { a.Cross, a.Bias, a.Window = true, nil, 3 }, "belongs to a sequence's own"},
		{func(a *Attention) { a.Cross, a.Bias, a.Inputs = true, nil, []int32{0} }, "an input"},
		{func(a *Attention) { a.Cross, a.Bias, a.Inputs = true, nil, []int32{int32(l.MaxBlocks*l.BlockSize + 1)} }, "longer than its row"},
	} {
		a := l.Attention
		a.Cumulative, a.Past, a.Inputs = []int32{0, 1}, []int32{9}, []int32{8}
		a.Query, a.Key, a.Value, a.QueryStride, a.KeyStride, a.ValueStride = make([]float32, hidden), make([]float32, kv), make([]float32, kv), hidden, kv, kv
		a.Output, a.OutputStride = make([]float32, hidden), hidden
		c.change(&a)
		if err := a.Attend(Threads{}); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
