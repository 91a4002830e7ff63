package spec

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// cases is how many random cases a comparison runs: DRAFTMILL_CASES, or few
// enough for every day.
func cases(t testing.TB) int {
	text := os.Getenv("DRAFTMILL_CASES")
	if text == "" {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("DRAFTMILL_CASES=%q is no number of cases", text)
	}
	return n
}

// randomRow draws logits of one of the shapes that models have, and of some
// that they should not.
func randomRow(r *rand.Rand, row []float32) {
	shape, spread := r.IntN(6), []float64{0.1, 1, 3, 10, 40}[r.IntN(5)]
	for i := range row {
		switch shape {
		case 0, 1, 2:
			row[i] = float32(r.NormFloat64() * spread)
		case 3: // few values: ties
			row[i] = float32(r.IntN(4)) * float32(spread)
		case 4: // one value
			row[i] = float32(spread)
		case 5: // a few tokens far above the others
			row[i] = float32(r.NormFloat64())
			if r.IntN(20) == 0 {
				row[i] += float32(spread)
			}
		}
		if shape != 4 && r.IntN(15) == 0 {
			row[i] = float32(math.Inf(-1))
		}
	}
	row[r.IntN(len(row))] = float32(spread)
}

func randomSampling(r *rand.Rand) Sampling {
	s := Sampling{Temperature: []float64{0, 0.2, 0.7, 1, 1.7}[r.IntN(5)]}
	if r.IntN(3) == 0 {
		s.TopK = 1 + r.IntN(60)
	}
	if r.IntN(2) == 0 {
		s.TopP = []float64{1e-3, 0.3, 0.9, 0.95, 0.999}[r.IntN(5)]
	}
	if r.IntN(4) == 0 {
		s.MinP = []float64{1e-5, 0.02, 0.3, 1}[r.IntN(4)]
	}
	return s
}

// nudged is s with its boundaries moved by a relative step.
func nudged(s Sampling, step float64) Sampling {
	s.TopP = math.Min(s.TopP*(1+step), 1)
	s.MinP = math.Min(s.MinP*(1+step), 1)
	return s
}

// TestKernelAgreesWithPlain compares every number that the kernels give,
// weights and sums to 1e-6 relative, in every instruction set of this machine.
func TestKernelAgreesWithPlain(t *testing.T) {
	best := instructions(4)
	defer instructions(best)
	for _, level := range []int{1, 3, 4} {
		if level <= best {
			t.Run(fmt.Sprintf("level%d", instructions(level)), agree)
		}
	}
}

func agree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(a, b) }
	boundaries := 0
	for trial := range 4000 {
		row := make([]float32, 1+r.IntN(700))
		if trial%1000 == 0 {
			row = make([]float32, 50257)
		}
		randomRow(r, row)
		s := randomSampling(r)
		var got, want, other Dist
		if err := s.warp(native{}, row, &got); err != nil {
			t.Fatal(err)
		}
		if err := s.warp(plain{}, row, &want); err != nil {
			t.Fatal(err)
		}
		same := func() bool {
			for i := range row {
				if !near(float64(got.W[i]), float64(want.W[i])) {
					return false
				}
			}
			return near(got.Sum, want.Sum)
		}
		for _, step := range []float64{1e-6, -1e-6} {
			if same() {
				break
			}
			boundaries++
			n := nudged(s, step)
			if err := n.warp(plain{}, row, &want); err != nil {
				t.Fatal(err)
			}
		}
		if !same() {
			t.Fatalf("trial %d, %+v, vocabulary %d: sums %v and %v", trial, s, len(row), got.Sum, want.Sum)
		}
		randomRow(r, row)
		s = randomSampling(r)
		if err := s.warp(native{}, row, &other); err != nil {
			t.Fatal(err)
		}
		a, b := overlap(native{}, &got, &other), overlap(plain{}, &got, &other)
		if math.Abs(a-b) > 1e-6 {
			t.Fatalf("trial %d: overlaps %v and %v", trial, a, b)
		}
		for _, u := range []float64{0, 0.1, 0.9, 1 - 0x1p-53} {
			if x := residual(native{}, &got, &other, u); other.W[x] <= 0 || a < 1-1e-9 && other.Prob(x) <= got.Prob(x) {
				t.Fatalf("trial %d: token %d is recovered with p %v, q %v", trial, x, got.Prob(x), other.Prob(x))
			}
		}
	}
	if boundaries > 20 {
		t.Errorf("%d nuclei differ by rounding", boundaries)
	}
}

// nudge moves every coin by a step.
type nudge struct {
	Uniforms
	step float64
}

func (n nudge) Uniform(purpose Purpose, position int) float64 {
	return math.Min(math.Max(n.Uniforms.Uniform(purpose, position)+n.step, 0), 1-0x1p-53)
}

// decide is one loop, and what it decided.
func decide(t *testing.T, k kernel, rule Rule, s Sampling, rows [][]float32, coins Uniforms) (string, *Outcome) {
	lookahead := len(rows) / 2
	p, q := make([]Dist, lookahead), make([]Dist, lookahead+1)
	drafted := make([]int32, lookahead)
	for i := range p {
		if err := s.warp(k, rows[i], &p[i]); err != nil {
			t.Fatal(err)
		}
		drafted[i] = p[i].Sample(coins.Uniform(DraftCoin, i))
	}
	for i := range q {
		if err := s.warp(k, rows[lookahead+i], &q[i]); err != nil {
			t.Fatal(err)
		}
	}
	var out Outcome
	if err := verify(k, rule.For(s), drafted, p, q, coins, 0, &out); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(drafted, out.Accepted, out.Token), &out
}

// TestKernelDecidesAsPlain runs whole loops with both kernels. They decide
// alike, but where a coin falls within 1e-6 of the edge between two tokens, or
// the edge of a nucleus within that of its mass: there plain must decide as
// native does once coins or edges are moved by as much.
func TestKernelDecidesAsPlain(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	rules := []Rule{Rejection, {kind: match}, {lenient, 0.5}, {capped, 0.7}}
	n, ties := cases(t), 0
	for trial := range n {
		rows := make([][]float32, 2*r.IntN(4)+1)
		vocab := 2 + r.IntN(120)
		if trial%500 == 0 {
			vocab = 3000
		}
		for i := range rows {
			rows[i] = make([]float32, vocab)
			if randomRow(r, rows[i]); i > 0 && r.IntN(3) > 0 { // near the row before
				for j, l := range rows[i-1] {
					rows[i][j] = l + float32(r.NormFloat64())*0.3
				}
			}
		}
		s, rule, coins := randomSampling(r), rules[r.IntN(len(rules))], Coins{Seed: 1, Row: uint64(trial)}
		got, out := decide(t, native{}, rule, s, rows, coins)
		want, _ := decide(t, plain{}, rule, s, rows, coins)
		if got == want {
			continue
		}
		ties++
		step := 1e-6
		if out.Kind == Recovered {
			step /= math.Max(1-out.Overlap[out.Accepted], 1e-6)
		}
		excused := false
		for _, coin := range []float64{0, step, -step} {
			for _, edge := range []float64{0, 1e-6, -1e-6} {
				if want, _ := decide(t, plain{}, rule, nudged(s, edge), rows, nudge{coins, coin}); want == got {
					excused = true
				}
			}
		}
		if !excused {
			t.Fatalf("case %d, %s, %+v, vocabulary %d, %d rows: native decides %s, plain %s", trial, rule, s, vocab, len(rows), got, want)
		}
	}
	t.Logf("%d cases, %d near ties", n, ties)
	if ties > 3+n/10_000 {
		t.Errorf("%d of %d cases are near ties", ties, n)
	}
}

// TestEqualLogitsWeighTheSame, wherever in the row they stand: vector code has
// loops for the middle and others for the rest.
func TestEqualLogitsWeighTheSame(t *testing.T) {
	best := instructions(4)
	defer instructions(best)
	for _, level := range []int{1, 3, 4} {
		if level <= best {
			t.Run(fmt.Sprintf("level%d", instructions(level)), equalLogits)
		}
	}
}

func equalLogits(t *testing.T) {
	for n := 2; n < 600; n++ {
		row := make([]float32, n)
		row[n/2] = 3.3
		s := Sampling{Temperature: 0.9}
		var d Dist
		if err := s.warp(native{}, row, &d); err != nil {
			t.Fatal(err)
		}
		for i, w := range d.W {
			if i != n/2 && w != d.W[(n/2+1)%n] || d.W[n/2] != 1 {
				t.Fatalf("vocabulary %d: weight %d is %v, another of the same logit %v, the largest %v", n, i, w, d.W[(n/2+1)%n], d.W[n/2])
			}
		}
	}
}

// TestDenormalsSurvive: C compiled for speed must not switch the process to
// arithmetic without denormal numbers.
func TestDenormalsSurvive(t *testing.T) {
	s := Sampling{Temperature: 1}
	var d Dist
	if err := s.warp(native{}, []float32{1, 2, 3}, &d); err != nil {
		t.Fatal(err)
	}
	x := float32(math.SmallestNonzeroFloat32) * float32(len(d.W))
	if x/float32(len(d.W)) == 0 || math.SmallestNonzeroFloat64*float64(len(d.W)) == 0 {
		t.Error("denormal numbers are flushed to zero")
	}
}

// TestHostilePositions puts what is no number at every place of a row.
func TestHostilePositions(t *testing.T) {
	for _, bits := range []uint32{0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffc00000, 0xffffffff} {
		for n := 1; n < 70; n++ {
			for i := range n {
				row := make([]float32, n)
				row[i] = math.Float32frombits(bits)
				for _, k := range []kernel{native{}, plain{}} {
					if _, err := k.peak(row); !errors.Is(err, ErrNotANumber) {
						t.Fatalf("%T: %#x at %d of %d: %v", k, bits, i, n, err)
					}
				}
			}
		}
	}
	zeros := []float32{float32(math.Copysign(0, -1)), 0}
	if at, err := (native{}).peak(zeros); at != 0 || err != nil {
		t.Errorf("peak of -0, 0 at %d, %v", at, err)
	}
}

// TestOneMachineOneAnswer: a kernel that summed in an order of its own each
// time would break replays.
func TestOneMachineOneAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	row := make([]float32, 50257)
	for range 20 {
		randomRow(r, row)
		s := randomSampling(r)
		var first, again Dist
		for _, d := range []*Dist{&first, &again} {
			if err := s.warp(native{}, append(make([]float32, 0, len(row)+r.IntN(9)), row...), d); err != nil {
				t.Fatal(err)
			}
		}
		if first.Sum != again.Sum || Overlap(&first, &first) != Overlap(&again, &again) {
			t.Fatalf("%+v: sums %v and %v", s, first.Sum, again.Sum)
		}
	}
}

// TestLoopAllocatesNothing once its buffers have grown, chain included.
func TestLoopAllocatesNothing(t *testing.T) {
	const vocab, k = 5000, 4
	r := rand.New(rand.NewPCG(1, 1))
	row := make([]float32, vocab)
	for name, s := range map[string]Sampling{
		"greedy": {}, "temperature": {Temperature: 1}, "nucleus": {Temperature: 1, TopP: 0.9}, "top-k": {Temperature: 1, TopK: 50},
		"all": {Temperature: 1, TopP: 0.9, TopK: 50, MinP: 0.01, RepetitionPenalty: 1.1, FrequencyPenalty: 1, NoRepeatNGramSize: 3,
			MinNewTokens: 5, ForbiddenTokens: []int32{4}, LogitBias: map[int32]float64{9: 1}},
	} {
		for _, rule := range []Rule{Rejection, {kind: match}, {lenient, 0.5}} {
			chain, err := NewChain(s, vocab, []int32{0})
			if err != nil {
				t.Fatal(err)
			}
			p, q := make([]Dist, k), make([]Dist, k+1)
			var out Outcome
			var coins Uniforms = Coins{}
			prompt := []int32{1, 2, 3}
			tokens := make([]int32, 0, 4096)
			loop := func() {
				n := len(tokens)
				for i := range p {
					if chain.Standardize(row, tokens, &p[i]) != nil {
						t.Fatal("standardize")
					}
					tokens = append(tokens, p[i].Sample(coins.Uniform(DraftCoin, n+i)))
				}
				for i := range q {
					if chain.Standardize(row, tokens[:n+i], &q[i]) != nil {
						t.Fatal("standardize")
					}
				}
				if Verify(rule.For(s), tokens[n:], p, q, coins, n, &out) != nil {
					t.Fatal("verify")
				}
				tokens = append(tokens[:n+out.Accepted], out.Token)
			}
			start := func() {
				tokens = append(tokens[:0], prompt...)
				if err := chain.Begin(prompt); err != nil {
					t.Fatal(err)
				}
			}
			start()
			for range 200 { // the buffers grow
				randomRow(r, row)
				loop()
			}
			start()
			if n := testing.AllocsPerRun(100, loop); n > 0 {
				t.Errorf("%s, %s: %v allocations a loop", name, rule, n)
			}
		}
	}
}
