package report

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/spec/theory"
	"github.com/draftmill/draftmill/storage"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// logged makes a loop of one sequence that drafted k tokens, accepted a of
// them, and of whose tokens so many are kept (all, if cut is 0).
func logged(row int64, k, a, cut int, overlap ...float64) *storage.Loop {
	l := &storage.Loop{
		Row: row, Drafted: make([]int32, k), P: make([]float64, k), Q: make([]float64, k), Overlap: overlap,
		Coins: make([]float64, min(a+1, k)), Accepted: int32(a), Emitted: int32(a + 1 - cut), Kind: storage.KindRecovered,
		DraftNS: int64(k) * 1e5, ScoreNS: 1e6 + int64(k)*2e5, SampleNS: 1e5,
	}
	for len(l.Overlap) < k {
		l.Overlap = append(l.Overlap, 0.5)
	}
	if a == k {
		l.Kind = storage.KindBonus
	}
	return l
}

// smallJob is two sequences that were decoded and one that failed.
func smallLoops() []*storage.Loop {
	return []*storage.Loop{
		logged(0, 3, 3, 0, 0.9, 0.8, 0.7), // 4 tokens, bonus
		logged(0, 3, 1, 0, 0.6, 0.2),      // 2 tokens, the second recovered; the third place was not examined
		logged(0, 3, 2, 1, 1, 0.9, 0.3),   // 2 of 3 tokens: the recovered one is cut
		logged(1, 3, 0, 0, 0.1),           // 1 token, recovered
		logged(1, 1, 1, 0, 0.4),           // 2 tokens: near the limit, one is drafted
		logged(1, 0, 0, 0),                // 1 token: none is
		logged(2, 3, 3, 0),                // of a row that failed later
	}
}

func smallLedger() *ledger {
	g := newLedger()
	for _, c := range []storage.Completion{
		{Row: 0, FinishReason: storage.FinishEOS, CompletionTokens: 8, Loops: 3, Drafted: 9, Accepted: 6, DecodeNS: 16e6},
		{Row: 1, FinishReason: storage.FinishLength, CompletionTokens: 4, Loops: 3, Drafted: 4, Accepted: 1, DecodeNS: 4e6},
		{Row: 2, FinishReason: storage.FinishError, CompletionTokens: 4, Loops: 1, Drafted: 3, Accepted: 3, DecodeNS: 9e6},
	} {
		g.completion(&c)
	}
	for _, l := range smallLoops() {
		g.loop(l)
	}
	return g
}

// TestAccountingByHand holds every figure to one worked out with a pencil.
func TestAccountingByHand(t *testing.T) {
	a := smallLedger().accounting()
	if a.Loops != 6 || a.Drafted != 13 || a.Examined != 10 || a.Accepted != 7 {
		t.Errorf("%d loops, %d drafted, %d examined, %d accepted", a.Loops, a.Drafted, a.Examined, a.Accepted)
	}
	if a.KeptAccepted != 7 || a.Recovered != 2 || a.Bonus != 3 || a.Dropped != 1 {
		t.Errorf("%d accepted, %d recovered, %d bonus, %d dropped", a.KeptAccepted, a.Recovered, a.Bonus, a.Dropped)
	}
	near(t, "accepted / drafted", a.AcceptedPerDrafted, 7./13, 1e-12)
	near(t, "accepted / examined", a.AcceptedPerExamined, 0.7, 1e-12)
	near(t, "tokens per loop", a.TokensPerLoop, 2, 1e-12)
	near(t, "without bonus", a.WithoutBonus, 1.5, 1e-12)
	near(t, "block efficiency", a.BlockEfficiency, 13./6, 1e-12)
	if !slices.Equal(a.Lengths, []int64{2, 2, 1, 1}) {
		t.Errorf("accepted lengths %v", a.Lengths)
	}
	want := []Position{
		{1, 5, 5, 4, 4. / 5, 4. / 5},
		{2, 4, 3, 2, 2. / 3, 2. / 4},
		{3, 4, 2, 1, 1. / 2, 1. / 4},
	}
	if !slices.Equal(a.Positions, want) {
		t.Errorf("positions %+v", a.Positions)
	}
	// Examined: 0.9 0.8 0.7, 0.6 0.2, 1 0.9 0.3 of row 0, 0.1 and 0.4 of row 1.
	near(t, "alpha", a.Alpha.Mean, 5.9/10, 1e-12)
	near(t, "its error", a.Alpha.SE, math.Sqrt((4.41/10-0.59*0.59)/9), 1e-12)
	near(t, "its clustered error", a.Alpha.ClusteredSE, math.Sqrt(2*(square(5.4-0.59*8)+square(0.5-0.59*2)))/10, 1e-12)
	near(t, "alpha as a count", a.AlphaCount.Mean, 0.7, 1e-12)
	near(t, "its error", a.AlphaCount.SE, math.Sqrt(0.21/9), 1e-12)
	near(t, "its clustered error", a.AlphaCount.ClusteredSE, math.Sqrt(2*(square(6-5.6)+square(1-1.4)))/10, 1e-12)
	if a.Alpha.N != 10 || a.AlphaCount.N != 10 {
		t.Errorf("means over %d and %d positions", a.Alpha.N, a.AlphaCount.N)
	}
	m := a.PerSequence
	if m.Sequences != 2 {
		t.Errorf("%d sequences", m.Sequences)
	}
	near(t, "mean accepted / drafted", m.AcceptedPerDrafted, (6./9+1./4)/2, 1e-12)
	near(t, "mean accepted / examined", m.AcceptedPerExamined, (6./8+1./2)/2, 1e-12)
	near(t, "mean tokens per loop", m.TokensPerLoop, (8./3+4./3)/2, 1e-12)
	near(t, "mean alpha", m.Alpha, (5.4/8+0.5/2)/2, 1e-12)
	near(t, "mean token time", m.TokenMS, 1.5, 1e-12)
	if len(a.Costs) != 3 || a.Costs[2].Tokens != 4 || a.Costs[2].Loops != 4 {
		t.Errorf("costs %+v", a.Costs)
	}
	near(t, "draft of 3", a.Costs[2].DraftMS, 0.3, 1e-12)
	near(t, "score of 2", a.Costs[1].ScoreMS, 1.2, 1e-12)
}

// TestCounterfactualByHand: the tokens of each smaller lookahead, loop by loop.
func TestCounterfactualByHand(t *testing.T) {
	got := smallLedger().counterfactual(&Cost{Tokens: 1, ScoreMS: 1, SampleMS: 0.1})
	// Kept 4 2 2 1 2 1 with K = 3; capped at 2: 3 2 2 1 2 1; at 1: 2 2 2 1 2 1.
	for k, tokens := range []float64{6, 10, 11, 12} {
		near(t, fmt.Sprintf("tokens per loop at K = %d", k), got[k].TokensPerLoop, tokens/6, 1e-12)
	}
	near(t, "speed-up at K = 0", *got[0].Speedup, 1, 1e-12)
	// K = 3: four loops of 0.3 + 1.6 + 0.1, one of 0.1 + 1.2 + 0.1, one of 1.1 ms.
	near(t, "speed-up at K = 3", *got[3].Speedup, 1.1*12/(4*2.0+1.4+1.1), 1e-12)
	// K = 2: scoring 3 tokens was never seen; between 2 and 4 it takes 1.4.
	near(t, "speed-up at K = 2", *got[2].Speedup, 1.1*11/(4*(0.2+1.4+0.1)+1.4+1.1), 1e-12)
	if got[1].Measured || got[2].Measured || !got[3].Measured || !got[0].Measured { // one loop is too few
		t.Errorf("%+v", got)
	}
	for _, p := range smallLedger().counterfactual(nil) {
		if p.Speedup != nil {
			t.Error("a speed-up over nothing")
		}
	}
}

// simulate decodes sequences under the papers' model, in which a drafted token
// is accepted with a chance that is drawn anew for each position, plus what
// its sequence has in common.
func simulate(r *rand.Rand, k, sequences, tokens int, spread float64) *ledger {
	g := newLedger()
	for row := range int64(sequences) {
		common := 0.7 + spread*(2*r.Float64()-1)
		c := storage.Completion{Row: row, FinishReason: storage.FinishLength, CompletionTokens: int32(tokens)}
		var loops []*storage.Loop
		for have := 0; have < tokens; {
			n := min(k, tokens-have-1)
			overlap, a := make([]float64, n), 0
			rejected := false
			for t := range n {
				overlap[t] = min(1, max(0, common+0.3*(2*r.Float64()-1)))
				if rejected = rejected || r.Float64() >= overlap[t]; !rejected {
					a++
				}
			}
			loops = append(loops, logged(row, n, a, 0, overlap...))
			have += a + 1
			c.Drafted += int32(n)
			c.Accepted += int32(a)
			c.Loops++
		}
		g.completion(&c)
		for _, l := range loops {
			g.loop(l)
		}
	}
	return g
}

// TestInvariants: what must add up does, in logs of many shapes.
func TestInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for k := range 7 {
		g := simulate(r, k, 20, 40, 0.2)
		a := g.accounting()
		var loops, accepted int64
		for n, count := range a.Lengths {
			loops += count
			accepted += int64(n) * count
		}
		if loops != a.Loops || accepted != a.Accepted || a.KeptAccepted+a.Recovered+a.Bonus != 20*40 || a.Dropped != 0 {
			t.Errorf("K = %d: %+v", k, a)
		}
		var drafted, examined, byPosition int64
		for _, p := range a.Positions {
			drafted += p.Drafted
			examined += p.Examined
			byPosition += p.Accepted
		}
		if drafted != a.Drafted || examined != a.Examined || byPosition != a.Accepted {
			t.Errorf("K = %d: positions add up to %d, %d and %d of %+v", k, drafted, examined, byPosition, a)
		}
		all := g.counterfactual(nil)
		if len(all) != k+1 {
			t.Fatalf("%d predictions for K = %d", len(all), k)
		}
		near(t, "K itself", all[k].TokensPerLoop, a.TokensPerLoop, 1e-12)
		near(t, "K = 0", all[0].TokensPerLoop, 1, 1e-12)
	}
}

// TestCounterfactualIsUnbiased compares what a log of K = 6 says of smaller
// lookaheads with logs of those lookaheads, and with the theory.
func TestCounterfactualIsUnbiased(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	said := simulate(r, 6, 400, 250, 0)
	alpha := said.accounting().Alpha.Mean
	for k, p := range said.counterfactual(nil) {
		ran := simulate(r, k, 400, 250, 0).accounting()
		// 100,000 tokens and more than 25,000 loops on each side.
		near(t, fmt.Sprintf("tokens per loop of K = %d", k), p.TokensPerLoop, ran.TokensPerLoop, 0.04)
		near(t, fmt.Sprintf("theory of K = %d", k), p.TokensPerLoop, theory.TokensPerLoop(alpha, k), 0.04)
		near(t, fmt.Sprintf("alpha of K = %d", k), alpha, alphaOr(ran, alpha), 0.01)
	}
}

// alphaOr is a log's alpha, or the given one where nothing was drafted.
func alphaOr(a *Accounting, alpha float64) float64 {
	if a.Drafted == 0 {
		return alpha
	}
	return a.Alpha.Mean
}

// TestStandardErrors: over many logs alpha scatters as its standard error says:
// the plain one where sequences are alike, the clustered one where not.
func TestStandardErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, spread := range []float64{0, 0.2} {
		var mean, squares, se, clustered float64
		const logs = 300
		for range logs {
			a := simulate(r, 4, 40, 60, spread).accounting().Alpha
			mean += a.Mean / logs
			squares += a.Mean * a.Mean / logs
			se += a.SE / logs
			clustered += a.ClusteredSE / logs
		}
		scatter := math.Sqrt(squares - mean*mean)
		near(t, fmt.Sprintf("clustered error over scatter, spread %v", spread), clustered/scatter, 1, 0.15)
		if spread == 0 {
			near(t, "plain error over scatter", se/scatter, 1, 0.15)
		} else if se > 0.6*scatter {
			t.Errorf("the plain error is %v of the scatter where sequences differ", se/scatter)
		}
	}
}

// TestNothingToCount: figures of nothing are zero, and can be written as JSON.
func TestNothingToCount(t *testing.T) {
	for name, g := range map[string]*ledger{"no loops": newLedger(), "no time": newLedger()} {
		if name == "no time" {
			l := logged(0, 2, 1, 0)
			l.DraftNS, l.ScoreNS, l.SampleNS = 0, 0, 0
			g.loop(l)
		}
		a := g.accounting()
		a.Smaller = g.counterfactual(&Cost{Tokens: 1})
		if _, err := json.Marshal(a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var b strings.Builder
		s := Summary{Modes: map[string]*Mode{"sps": {Accounting: a}}}
		if err := s.Full(&b); err != nil || strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
	}
}

// TestSummaryOfAJob reads a job's files, leaves failed rows out everywhere, and
// prints what it found.
func TestSummaryOfAJob(t *testing.T) {
	job, err := storage.CreateJob(t.TempDir(), "small", []byte(`{"k": 3, "modes": ["ars", "sps"], "rule": "lenient:0.5", "sampling": {"temperature": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"ars", "sps"} {
		w, err := job.NewShardWriter(mode, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range smallLoops() {
			if mode == "ars" {
				for range l.Emitted {
					if err := w.AddLoop(*logged(l.Row, 0, 0, 0)); err != nil {
						t.Fatal(err)
					}
				}
			} else if err := w.AddLoop(*l); err != nil {
				t.Fatal(err)
			}
		}
		for row, c := range []storage.Completion{
			{FinishReason: storage.FinishEOS, CompletionTokens: 8, Loops: 3, Drafted: 9, Accepted: 6},
			{FinishReason: storage.FinishLength, CompletionTokens: 4, Loops: 3, Drafted: 4, Accepted: 1},
			{FinishReason: storage.FinishError, Error: "logits hold NaN", CompletionTokens: 4, Loops: 1, Drafted: 3, Accepted: 3},
		} {
			c.Row, c.DecodeNS, c.ScoreNS, c.DraftNS = int64(row), int64(c.CompletionTokens)*1e6, int64(c.Loops)*9e5, int64(c.Drafted)*1e4
			if mode == "ars" {
				c.Loops, c.Drafted, c.Accepted, c.DraftNS, c.ScoreNS = c.CompletionTokens, 0, 0, 0, int64(c.CompletionTokens)*9e5
			}
			if err := w.AddCompletion(c); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Summarize(job)
	if err != nil {
		t.Fatal(err)
	}
	sps := s.Modes["sps"]
	if sps.Errors != 1 || sps.Loops != 6 || sps.Accounting.Loops != 6 || sps.Accounting.Examined != sps.Positions || sps.CompletionTokens != 12 {
		t.Errorf("%+v %+v", sps, sps.Accounting)
	}
	near(t, "alpha", sps.Alpha, 0.59, 1e-12)
	near(t, "tokens per loop", sps.TokensPerLoop, sps.Accounting.TokensPerLoop, 1e-12)
	if a := s.Modes["ars"].Accounting; a.Bonus != 12 || a.Loops != 12 || len(a.Positions) != 0 || a.Alpha.N != 0 {
		t.Errorf("ars %+v", a)
	}
	if !s.Lossy || s.TheorySpeedup != nil || s.Speedup == nil {
		t.Errorf("a lossy rule is called %q, with the theory of the lossless: %v", s.Bound, s.TheorySpeedup)
	}
	var short, full strings.Builder
	if err := s.Table(&short); err != nil {
		t.Fatal(err)
	}
	if err := s.Full(&full); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(short.String(), "Rule lenient:0.5 is LOSSY") {
		t.Errorf("the table does not say LOSSY:\n%s", short.String())
	}
	for _, want := range []string{
		"accepted / examined      70.0%", "its standard error", "clustered by sequence",
		"12 tokens are 7 accepted, 2 recovered and 3 bonus; 1 more",
		"2         4          3          2         66.7%        50.0%",
		"1.833", "interpolated",
	} {
		if !strings.Contains(full.String(), want) {
			t.Errorf("no %q in\n%s", want, full.String())
		}
	}
}
