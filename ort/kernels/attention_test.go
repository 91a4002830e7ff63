package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// layer is what a test draws once; passes over it are Attention values.
type layer struct {
	Attention
	sequences [][]token // what each sequence consists of, from its begin
	inputs    []int32   // how many tokens of each its later ones do not see, or nil
}

// token is one token's projected rows.
type token struct{ q, k, v []float32 }

func normal(r *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * scale)
	}
	return x
}

// draw makes a layer with features chosen by chance and sequences of given lengths.
func draw(r *rand.Rand, lengths []int) layer {
	sizes := []int{16, 32, 64, 80, 96, 128, 256, 40, 72, 20}
	heads := [][2]int{{1, 1}, {4, 4}, {4, 2}, {6, 1}, {14, 2}, {12, 2}, {8, 1}, {71, 1}}[r.IntN(8)]
	a := Attention{Heads: heads[0], KVHeads: heads[1], HeadSize: sizes[r.IntN(len(sizes))], BlockSize: 16 << r.IntN(5)}
	longest := 1
	for _, n := range lengths {
		longest = max(longest, n)
	}
	if r.IntN(2) == 0 {
		a.Scale = float32(0.05 + r.Float64()/4)
	}
	if r.IntN(3) == 0 {
		a.Softcap = float32(1 + r.IntN(50))
	}
	if r.IntN(3) == 0 {
		a.Window = 1 + r.IntN(longest)
	}
	if r.IntN(3) > 0 {
		a.RotaryDim = []int{a.HeadSize, a.HeadSize / 2, 4}[r.IntN(3)]
		a.RotaryInterleaved = r.IntN(2) == 0
		half := a.RotaryDim / 2
		for p := range longest {
			for i := range half {
				s, c := math.Sincos(float64(p) * math.Pow(10000, -float64(i)/float64(half)))
				a.Cos, a.Sin = append(a.Cos, float32(c)), append(a.Sin, float32(s))
			}
		}
	}
	if r.IntN(3) == 0 {
		a.QNorm, a.KNorm, a.NormEpsilon = normal(r, a.HeadSize, 1), normal(r, a.HeadSize, 1), 1e-6
	}
	if r.IntN(3) == 0 {
		a.Sink = normal(r, a.Heads, 2)
	}
	l := layer{Attention: a}
	for _, n := range lengths {
		var s []token
		for range n {
			s = append(s, token{normal(r, a.Heads*a.HeadSize, 1), normal(r, a.KVHeads*a.HeadSize, 1), normal(r, a.KVHeads*a.HeadSize, 1)})
		}
		l.sequences = append(l.sequences, s)
	}
	return l
}

// paged gives the layer a cache full of NaN and every sequence its blocks, in an
// order of r's.
func (l *layer) paged(r *rand.Rand) {
	longest, total := 0, 0
	for _, s := range l.sequences {
		blocks := (len(s) + l.BlockSize - 1) / l.BlockSize
		longest, total = max(longest, blocks), total+blocks
	}
	total += 3
	l.MaxBlocks = longest + 1
	l.BlockTable = make([]int32, len(l.sequences)*l.MaxBlocks)
	order := r.Perm(total)
	for s, tokens := range l.sequences {
		for b := range l.MaxBlocks {
			l.BlockTable[s*l.MaxBlocks+b] = -1 // never to be looked at
			if b*l.BlockSize < len(tokens) {
				l.BlockTable[s*l.MaxBlocks+b] = int32(order[0])
				order = order[1:]
			}
		}
	}
	if l.KScale != nil {
		l.KeyCache8 = make([]int8, total*l.BlockSize*l.KVHeads*l.HeadSize)
		l.ValueCache8 = make([]int8, len(l.KeyCache8))
		for i := range l.KeyCache8 {
			l.KeyCache8[i], l.ValueCache8[i] = int8(r.IntN(256)-128), int8(r.IntN(256)-128)
		}
		return
	}
	nan := float32(math.NaN())
	l.KeyCache = make([]float32, total*l.BlockSize*l.KVHeads*l.HeadSize)
	l.ValueCache = make([]float32, len(l.KeyCache))
	for i := range l.KeyCache {
		l.KeyCache[i], l.ValueCache[i] = nan, nan
	}
}

// span is some tokens of one sequence in a pass.
type span struct{ sequence, past, tokens int }

// pass computes the spans in one pass; packed puts q, k and v into one row. The
// result is [token][Heads * HeadSize].
func (l *layer) pass(t *testing.T, threads Threads, packed bool, spans []span) []float32 {
	t.Helper()
	a := l.Attention
	hidden, kv := a.Heads*a.HeadSize, a.KVHeads*a.HeadSize
	a.Cumulative, a.BlockTable = []int32{0}, nil
	var q, k, v, row []float32
	for _, s := range spans {
		for _, x := range l.sequences[s.sequence][s.past : s.past+s.tokens] {
			q, k, v = append(q, x.q...), append(k, x.k...), append(v, x.v...)
			row = append(append(append(row, x.q...), x.k...), x.v...)
		}
		a.Cumulative = append(a.Cumulative, a.Cumulative[len(a.Cumulative)-1]+int32(s.tokens))
		a.Past = append(a.Past, int32(s.past))
		if l.inputs != nil {
			a.Inputs = append(a.Inputs, l.inputs[s.sequence])
		}
		a.BlockTable = append(a.BlockTable, l.BlockTable[s.sequence*l.MaxBlocks:(s.sequence+1)*l.MaxBlocks]...)
	}
	a.Query, a.Key, a.Value, a.QueryStride, a.KeyStride, a.ValueStride = q, k, v, hidden, kv, kv
	if packed {
		a.Query, a.QueryStride, a.KeyStride, a.ValueStride = row, hidden+2*kv, hidden+2*kv, hidden+2*kv
		if len(row) > 0 {
			a.Key, a.Value = row[hidden:], row[hidden+kv:]
		}
	}
	a.OutputStride = hidden
	a.Output = make([]float32, len(q))
	if err := a.Attend(threads); err != nil {
		t.Fatalf("%+v: %v", spans, err)
	}
	return a.Output
}

// head is a head of a query or key in float64, with its norm and rotation.
func (l *layer) head(x, norm []float32, h, position int) []float64 {
	y := make([]float64, l.HeadSize)
	var squares float64
	for i := range y {
		y[i] = float64(x[h*l.HeadSize+i])
		squares += y[i] * y[i]
	}
	for i := range y {
		if norm != nil {
			y[i] *= float64(norm[i]) / math.Sqrt(squares/float64(l.HeadSize)+float64(l.NormEpsilon))
		}
	}
	half := l.RotaryDim / 2
	for i := range half {
		a, b := i, i+half
		if l.RotaryInterleaved {
			a, b = 2*i, 2*i+1
		}
		c, s := float64(l.Cos[position*half+i]), float64(l.Sin[position*half+i])
		y[a], y[b] = y[a]*c-y[b]*s, y[b]*c+y[a]*s
	}
	return y
}

// cached are the keys and values of a sequence that belong into the cache, by token
// and KV head.
func (l *layer) cached(s int) (keys, values [][][]float64) {
	keys, values = make([][][]float64, len(l.sequences[s])), make([][][]float64, len(l.sequences[s]))
	for p, x := range l.sequences[s] {
		for h := range l.KVHeads {
			var v []float64
			for _, f := range x.v[h*l.HeadSize : (h+1)*l.HeadSize] {
				v = append(v, float64(f))
			}
			keys[p], values[p] = append(keys[p], l.head(x.k, l.KNorm, h, p)), append(values[p], v)
		}
	}
	return keys, values
}

// exact is the same in float64, from the definition, for every token of a sequence.
func (l *layer) exact(s int) [][]float64 {
	keys, values := l.cached(s)
	return l.exactOf(s, keys, values)
}

// exactOf is exact with these keys and values.
func (l *layer) exactOf(s int, keys, values [][][]float64) [][]float64 {
	scale := float64(l.Scale)
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(l.HeadSize))
	}
	out := make([][]float64, len(l.sequences[s]))
	for p, x := range l.sequences[s] {
		for h := range l.Heads {
			kv := h / (l.Heads / l.KVHeads)
			q := l.head(x.q, l.QNorm, h, p)
			first := 0
			if l.Window > 0 {
				first = max(0, p-l.Window+1)
			}
			y, sum := make([]float64, l.HeadSize), 0.0
			if l.Sink != nil {
				sum = math.Exp(float64(l.Sink[h]))
			}
			for j := first; j <= p; j++ {
				var score float64
				for i := range q {
					score += q[i] * keys[j][kv][i]
				}
				score *= scale
				if l.Softcap != 0 {
					score = float64(l.Softcap) * math.Tanh(score/float64(l.Softcap))
				}
				w := math.Exp(score)
				sum += w
				for i := range y {
					y[i] += w * values[j][kv][i]
				}
			}
			for i := range y {
				y[i] /= sum
			}
			out[p] = append(out[p], y...)
		}
	}
	return out
}

func threadsFor(t *testing.T, n int) Threads {
	t.Helper()
	threads := NewThreads(n)
	t.Cleanup(threads.Free)
	return threads
}

// fill computes sequences from their begins in chunks of random sizes, alone.
func (l *layer) fill(t *testing.T, r *rand.Rand, threads Threads, s, to int) []float32 {
	t.Helper()
	var out []float32
	for past := 0; past < to; {
		n := min(1+r.IntN(1+r.IntN(to)), to-past)
		out = append(out, l.pass(t, threads, r.IntN(2) == 0, []span{{s, past, n}})...)
		past += n
	}
	return out
}

func TestAttentionIsTheDefinition(t *testing.T) {
	threads := threadsFor(t, 2)
	for seed := range uint64(14) {
		r := rand.New(rand.NewPCG(seed, 3))
		lengths := make([]int, 1+r.IntN(3))
		for i := range lengths {
			lengths[i] = 1 + r.IntN(60)
		}
		if seed%7 == 0 {
			lengths[0] = 250 + r.IntN(270)
		}
		l := draw(r, lengths)
		name := fmt.Sprintf("seed %d: %d/%d heads of %d, blocks of %d, window %d, softcap %g, rotary %d %v, norm %v, sink %v, lengths %v",
			seed, l.Heads, l.KVHeads, l.HeadSize, l.BlockSize, l.Window, l.Softcap, l.RotaryDim, l.RotaryInterleaved, l.QNorm != nil, l.Sink != nil, lengths)
		var want [][][]float64
		for s := range lengths {
			want = append(want, l.exact(s))
		}
		var first []float32
		eachLevel(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 4))
			l.paged(r)
			var all []float32
			for s, n := range lengths {
				got := l.fill(t, r, threads, s, n)
				all = append(all, got...)
				hidden := l.Heads * l.HeadSize
				for i, g := range got {
					w := want[s][i/hidden][i%hidden]
					if diff := math.Abs(float64(g) - w); !(diff <= 3e-5) {
						t.Fatalf("%s: sequence %d, token %d, channel %d: %g, not %g", name, s, i/hidden, i%hidden, g, w)
					}
				}
			}
			if first == nil {
				first = all
			} else if i := sameBits(first, all); i >= 0 {
				t.Fatalf("%s: other bits than on the portable level at %d", name, i)
			}
		})
	}
}

// A token's output has the same bits however its prompt was cut, in any company, in
// any blocks, on any threads, and though other sequences are NaN.
func TestAttentionDoesNotDependOnCompany(t *testing.T) {
	pools := []Threads{{}, threadsFor(t, 1), threadsFor(t, 2), threadsFor(t, 3)}
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 5))
		lengths := []int{1 + r.IntN(200), 1 + r.IntN(200), 1 + r.IntN(40), 1 + r.IntN(20)}
		if seed == 4 {
			lengths[0] = 520 + r.IntN(100)
		}
		l := draw(r, lengths)
		for l.Heads*l.HeadSize > 1600 { // the portable level is slow
			l = draw(r, lengths)
		}
		if seed%2 == 1 {
			l.narrow(r)
		}
		eachLevel(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 6))
			hidden := l.Heads * l.HeadSize
			// Alone, in chunks.
			l.paged(r)
			var alone [][]float32
			for s, n := range lengths {
				alone = append(alone, l.fill(t, r, pools[0], s, n))
			}
			// One after another, the ends only: before them, one pass of all.
			l.paged(r)
			at := 0
			if lengths[0] > 30 {
				at = lengths[0] - 30
				if i := sameBits(l.pass(t, pools[2], false, []span{{0, 0, at}}), alone[0]); i >= 0 {
					t.Fatalf("seed %d: a prompt in one pass: other bits at token %d", seed, i/hidden)
				}
			}
			for ; at < lengths[0]; at++ {
				if i := sameBits(l.pass(t, pools[at%len(pools)], true, []span{{0, at, 1}}), alone[0][at*hidden:]); i >= 0 {
					t.Fatalf("seed %d: token %d alone: other bits", seed, at)
				}
			}
			// All together, in other blocks; the last sequence is NaN and infinite.
			broken := len(lengths) - 1
			kept := l.sequences[broken]
			l.sequences[broken] = make([]token, len(kept))
			for i := range kept {
				l.sequences[broken][i] = token{fill(kept[i].q, math.NaN()), fill(kept[i].k, math.Inf(1)), fill(kept[i].v, math.NaN())}
			}
			l.paged(r)
			done := make([]int, len(lengths))
			for {
				var spans []span
				for _, s := range r.Perm(len(lengths)) {
					if left := lengths[s] - done[s]; left > 0 {
						spans = append(spans, span{s, done[s], r.IntN(min(left, 130) + 1)})
					}
				}
				if len(spans) == 0 {
					break
				}
				got := l.pass(t, pools[r.IntN(len(pools))], r.IntN(2) == 0, spans)
				for _, s := range spans {
					n := s.tokens * hidden
					if s.sequence != broken {
						if i := sameBits(got[:n], alone[s.sequence][s.past*hidden:]); i >= 0 {
							t.Fatalf("seed %d: %v: other bits at token %d", seed, spans, s.past+i/hidden)
						}
					}
					got, done[s.sequence] = got[n:], done[s.sequence]+s.tokens
				}
			}
			l.sequences[broken] = kept
		})
	}
}

func fill(like []float32, f float64) []float32 {
	x := make([]float32, len(like))
	for i := range x {
		x[i] = float32(f)
	}
	return x
}

// What a sequence begins with may be another's of the same pass, from tokens on that
// itself was given them: the results are those of the sequence alone.
func TestAttentionCopiesBeginnings(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 77))
		l := draw(r, []int{40, 40, 40})
		if seed%3 == 1 {
			l.narrow(r)
		}
		one, two := 1+r.IntN(30), 0
		two = one + 1 + r.IntN(38-one)
		copy(l.sequences[1], l.sequences[0][:one])
		copy(l.sequences[2], l.sequences[1][:two])
		var want [][]float32
		for s := range l.sequences {
			l.paged(r)
			want = append(want, l.pass(t, Threads{}, false, []span{{s, 0, 40}}))
		}
		l.paged(r)
		place := func(s, i int) int32 {
			return l.BlockTable[s*l.MaxBlocks+i/l.BlockSize]*int32(l.BlockSize) + int32(i%l.BlockSize)
		}
		l.Copies = nil
		for i := range one {
			l.Copies = append(l.Copies, place(0, i), place(1, i))
		}
		for i := range two {
			l.Copies = append(l.Copies, place(1, i), place(2, i))
		}
		got := l.pass(t, Threads{}, seed%2 == 0, []span{{0, 0, 40}, {1, one, 40 - one}, {2, two, 40 - two}})
		hidden := l.Heads * l.HeadSize
		for s, past := range []int{0, one, two} {
			for i, w := range want[s][past*hidden:] {
				if got[i] != w {
					t.Fatalf("seed %d: sequence %d: %d of %d is %v, alone %v", seed, s, i, len(got), got[i], w)
				}
			}
			got = got[(40-past)*hidden:]
		}
		l.Copies = []int32{0, int32(len(l.KeyCache) + len(l.KeyCache8))}
		bad := l.Attention
		bad.Cumulative = []int32{0}
		if err := bad.Attend(Threads{}); err == nil {
			t.Fatal("a copy from outside of the cache is taken")
		}
	}
}
