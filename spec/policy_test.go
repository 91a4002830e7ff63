package spec_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/draftmill/draftmill/spec"
)

func TestParseLookahead(t *testing.T) {
	for text, want := range map[string]spec.Lookahead{
		"":               {Kind: spec.FixedLookahead},
		"fixed":          {Kind: spec.FixedLookahead},
		"auto":           {Kind: spec.AutoLookahead},
		"confidence:0.4": {Kind: spec.ConfidenceLookahead, Threshold: 0.4},
		"confidence:1":   {Kind: spec.ConfidenceLookahead, Threshold: 1},
	} {
		if got, err := spec.ParseLookahead(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"4", "Auto", "auto:", "auto:1", "fixed:4", "confidence", "confidence:", "confidence:0", "confidence:-1", "confidence:1.01", "confidence:NaN", "confidence:x", " auto"} {
		if got, err := spec.ParseLookahead(text); err == nil {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}

// next is the lookahead of the first lane.
func next(p spec.Policy, lanes []*spec.Lane) int {
	p.Next(lanes, 0)
	return lanes[0].K
}

func TestFixedAndConfidence(t *testing.T) {
	one := []*spec.Lane{{Room: 10}}
	fixed := spec.Lookahead{}.Policy(4, 1, false)
	if next(fixed, one) != 4 || fixed.Width(7) != 7 || !fixed.More(0) || !fixed.Begin(&spec.Lane{Lag: 1000}) {
		t.Error("fixed is not")
	}
	for _, choose := range []bool{false, true} {
		sure := spec.Lookahead{Kind: spec.ConfidenceLookahead, Threshold: 0.5}.Policy(4, 2, choose)
		sure.Begin(one[0])
		if next(sure, one) != 4 || !sure.More(0.5) || sure.More(0.49) {
			t.Error("confidence does not stop below its threshold")
		}
	}
}

// world is what a policy meets in simulation: acceptance by position and costs
// by number of tokens, in nanoseconds, both changing as they like.
type world struct {
	accept func(loop, position int) float64
	draft  func(k int) float64
	verify func(k int) float64
	feed   float64 // per token that the drafter lags behind
	length int     // tokens of a sequence
	prompt int
	noise  float64 // relative, of every measurement; besides, the clock runs on now and then while nothing is done
	begun  func()  // at every sequence; may be nil
	known  bool    // the policy has measured the costs before
}

// run lets a policy decode for so many loops and returns tokens and the time
// that they cost, which is not what the policy measures where there is noise.
func (w world) run(p spec.Policy, loops int, seed uint64) (tokens int, spent float64, ks map[int]int) {
	r := rand.New(rand.NewPCG(seed, 9))
	ks = map[int]int{}
	lag, left := 0, 0
	measured := func(x float64) time.Duration {
		spent += x
		if w.noise == 0 {
			return time.Duration(x)
		}
		x *= math.Exp(w.noise * r.NormFloat64())
		for t := r.ExpFloat64() * 3e7; t < x; t += r.ExpFloat64() * 3e7 {
			x += w.noise * r.ExpFloat64() * 1e8
		}
		return time.Duration(x)
	}
	var round spec.Round
	lane := &spec.Lane{}
	if costs := p.Costs(); costs != nil && !w.known {
		before := spent
		for range 3 {
			for _, rows := range costs.Target.Rows(false) {
				costs.Target.Measured(rows, measured(w.verify(rows-1)))
			}
			for _, rows := range costs.Draft.Rows(true) {
				costs.Draft.Measured(rows, measured(w.draft(4)/4+w.feed*float64(rows-1)))
			}
		}
		costs.Ready()
		spent = before
	}
	for loop := range loops {
		if left <= 0 {
			left, lag = w.length, w.prompt
			if w.begun != nil {
				w.begun()
			}
			lane.Lag = lag
			if p.Begin(lane) {
				measured(w.feed * float64(lag))
				lag = 0
			}
		}
		lane.Room, lane.Lag = left-1, lag
		k := min(next(p, []*spec.Lane{lane}), lane.Room)
		ks[k]++
		if k > 0 {
			round.Draft = measured(w.draft(k) + w.feed*float64(lag))
			lag = 0
		}
		round.Score = measured(w.verify(k))
		lane.Drafted, lane.Accepted = k, 0
		for lane.Accepted < k && r.Float64() < w.accept(loop, lane.Accepted) {
			lane.Accepted++
		}
		lane.Emitted = lane.Accepted + 1
		if k == 0 {
			lag++
		}
		left -= lane.Emitted
		tokens += lane.Emitted
		p.Observe([]*spec.Lane{lane}, round)
		round = spec.Round{}
	}
	return tokens, spent, ks
}

// speed is tokens per unit of time.
func (w world) speed(p spec.Policy, loops int) float64 {
	tokens, spent, _ := w.run(p, loops, 1)
	return float64(tokens) / spent
}

func constant(a float64) func(int, int) float64 { return func(int, int) float64 { return a } }

func linear(first, more float64) func(int) float64 {
	return func(k int) float64 { return first + more*float64(k) }
}

// TestAutoIsNearTheBest simulates auto beside every fixed lookahead, under
// pairs of models from excellent to hopeless.
func TestAutoIsNearTheBest(t *testing.T) {
	const most, loops = 8, 6000
	ms := 1e6
	for _, c := range []struct {
		name string
		w    world
	}{
		{"a good draft", world{accept: constant(0.8), draft: linear(0, 0.2*ms), verify: linear(2.2*ms, 0.08*ms), feed: 0.02 * ms}},
		{"a perfect draft", world{accept: constant(1), draft: linear(0, 0.2*ms), verify: linear(2.2*ms, 0.08*ms), feed: 0.02 * ms}},
		{"a poor draft", world{accept: constant(0.3), draft: linear(0, 0.2*ms), verify: linear(2.2*ms, 0.08*ms), feed: 0.02 * ms}},
		{"acceptance that falls", world{accept: func(_, t int) float64 { return 0.9 * math.Pow(0.7, float64(t)) }, draft: linear(0, 0.2*ms), verify: linear(2.2*ms, 0.08*ms), feed: 0.02 * ms}},
		{"scoring that costs", world{accept: constant(0.8), draft: linear(0, 0.2*ms), verify: linear(2.2*ms, 1.4*ms), feed: 0.02 * ms}},
		{"a step at five tokens", world{accept: constant(0.85), draft: linear(0, 0.1*ms), verify: func(k int) float64 {
			if k > 3 {
				return 4.5 * ms
			}
			return 2.2 * ms
		}, feed: 0.02 * ms}},
		{"one token alone is cheap", world{accept: constant(0.9), draft: linear(0.1*ms, 0.14*ms), verify: func(k int) float64 {
			if k == 0 {
				return 1.1 * ms
			}
			return (1.5 + 0.1*float64(k)) * ms
		}, feed: 0.01 * ms}},
		{"useless and cheap", world{accept: constant(0.001), draft: linear(0, 0.1*ms), verify: linear(2.2*ms, 0.08*ms), feed: 0.02 * ms}},
		{"useless and free", world{accept: constant(0), draft: linear(0, 0), verify: linear(2.2*ms, 0.4*ms)}},
		{"slower than the target", world{accept: constant(0.9), draft: linear(0, 5*ms), verify: linear(2.2*ms, 0.08*ms), feed: 0.3 * ms}},
		{"ten times slower", world{accept: constant(0.5), draft: linear(0, 22*ms), verify: linear(2.2*ms, 0.08*ms), feed: 0.9 * ms}},
		{"on the brink", world{accept: constant(0.5), draft: linear(0, 0.95*ms), verify: linear(2.2*ms, 0.1*ms), feed: 0.1 * ms}},
	} {
		for _, noise := range []float64{0, 0.15} {
			t.Run(fmt.Sprintf("%s/noise %v", c.name, noise), func(t *testing.T) {
				w := c.w
				w.noise, w.length, w.prompt = noise, 120, 150
				best, at, none := 0.0, 0, 0.0
				for k := 0; k <= most; k++ {
					v := w.speed(spec.Lookahead{}.Policy(k, 1, false), loops)
					if k == 0 {
						// No drafter, hence nothing to feed.
						still := w
						still.feed = 0
						v = still.speed(spec.Lookahead{}.Policy(0, 1, false), loops)
						none = v
					}
					if v > best {
						best, at = v, k
					}
				}
				auto := w.speed(spec.NewAuto(1, 0, most), loops)
				_, _, ks := w.run(spec.NewAuto(1, 0, most), loops, 1)
				t.Logf("auto %.4f of the best (K = %d), %.4f of none; K chosen %v", auto/best, at, auto/none, ks)
				ofBest, ofNone := 0.97, 0.98
				if noise > 0 { // on a machine whose clock says little
					ofBest, ofNone = 0.96, 0.98
				}
				if auto < ofBest*best || auto < ofNone*none {
					t.Errorf("auto reaches %.4f of the best, K = %d, and %.4f of no draft", auto/best, at, auto/none)
				}
			})
		}
	}
}

// TestAutoIsQuick: a job of a few hundred loops and short sequences is decoded
// near the best lookahead too, what it takes to find it included.
func TestAutoIsQuick(t *testing.T) {
	const ms = 1e6
	for _, alpha := range []float64{0.96, 0.8, 0.6} {
		for _, noise := range []float64{0, 0.15} {
			w := world{accept: constant(alpha), draft: linear(0, 0.2*ms), verify: linear(2.2*ms, 0.08*ms), feed: 0.02 * ms, length: 47, prompt: 150, noise: noise}
			best := 0.0
			for k := range 9 {
				best = max(best, w.speed(spec.Lookahead{}.Policy(k, 1, false), 400))
			}
			if auto := w.speed(spec.NewAuto(1, 0, 8), 400); auto < 0.92*best {
				t.Errorf("alpha %v, noise %v: auto reaches %.3f of the best", alpha, noise, auto/best)
			}
		}
	}
}

// TestAutoFollowsChanges: a draft that turns useless is dropped at little loss,
// and one that recovers is taken up again.
func TestAutoFollowsChanges(t *testing.T) {
	const ms = 1e6
	w := world{
		draft: linear(0, 0.2*ms), verify: linear(2.2*ms, 0.08*ms), feed: 0.02 * ms,
		length: 120, prompt: 150, noise: 0.1,
		accept: func(loop, _ int) float64 {
			if loop/3000%2 == 0 {
				return 0
			}
			return 0.85
		},
	}
	still := w
	still.feed = 0
	policy, none := spec.NewAuto(1, 0, 8), still.speed(spec.Lookahead{}.Policy(0, 1, false), 30000)
	for phase := range 8 { // each state of the draft for two of them
		first := phase * 1500
		shifted := w
		shifted.known = phase > 0
		shifted.accept = func(loop, t int) float64 { return w.accept(first+loop, t) }
		tokens, spent, ks := shifted.run(policy, 1500, uint64(phase))
		speed := float64(tokens) / spent / none
		t.Logf("phase %d: %.3f of no draft, K chosen %v", phase, speed, ks)
		if want := []float64{0.98, 0.98, 1.5, 2, 0.88, 0.98, 1.5, 2}[phase]; speed < want {
			t.Errorf("phase %d: %.3f of no draft, want %v", phase, speed, want)
		}
	}
}

// TestAutoTellsSequencesApart: where the draft suits every other sequence, no
// lookahead is right for all.
func TestAutoTellsSequencesApart(t *testing.T) {
	const ms = 1e6
	w := world{draft: linear(0, 0.4*ms), verify: linear(2.2*ms, 0.1*ms), length: 400}
	sequence := -1
	w.begun = func() { sequence++ }
	w.accept = func(int, int) float64 {
		return []float64{0.95, 0.05}[sequence%2]
	}
	best := 0.0
	for k := range 9 {
		sequence = -1
		best = max(best, w.speed(spec.Lookahead{}.Policy(k, 1, false), 5000))
	}
	sequence = -1
	if auto := w.speed(spec.NewAuto(1, 0, 8), 5000); auto < 1.1*best {
		t.Errorf("auto reaches %.3f of the best fixed lookahead", auto/best)
	} else {
		t.Logf("auto reaches %.3f of the best fixed lookahead", auto/best)
	}
}

// TestAutoSpares: with a draft that never pays, next to nothing is drafted and
// no prompt is fed to it; with one that pays, prompts are fed before the loops.
func TestAutoSpares(t *testing.T) {
	const ms = 1e6
	useless := world{accept: constant(0), draft: linear(0, 1*ms), verify: linear(2*ms, 0.1*ms), feed: 0.1 * ms, length: 100, prompt: 200}
	p := spec.NewAuto(1, 0, 4)
	_, _, ks := useless.run(p, 5000, 1)
	if drafted := 5000 - ks[0]; drafted > 50 || drafted < 3 {
		t.Errorf("drafted in %d of 5000 loops", drafted)
	}
	if p.Begin(&spec.Lane{Lag: 200}) {
		t.Error("a useless draft is fed the prompt")
	}
	useful := useless
	useful.accept = constant(0.9)
	p = spec.NewAuto(1, 0, 4)
	useful.run(p, 2000, 1)
	if !p.Begin(&spec.Lane{Lag: 200}) {
		t.Error("a useful draft is not fed the prompt")
	}
	full := &spec.Lane{}
	p.Begin(full)
	if k := next(p, []*spec.Lane{full}); k != 0 {
		t.Errorf("%d tokens are drafted where there is room for none", k)
	}
}

// TestAutoNextIsPure: what Next answers is settled by what was observed, and
// never exceeds room or the maximum.
func TestAutoNextIsPure(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	a, b := spec.NewAuto(3, 0, 6), spec.NewAuto(3, 0, 6)
	for _, p := range []*spec.Auto{a, b} {
		for _, rows := range []int{1, 2, 21} {
			p.Costs().Target.Measured(rows, time.Duration(1000+50*rows))
			p.Costs().Draft.Measured(rows, time.Duration(20+5*rows))
		}
		p.Costs().Ready()
	}
	lanes := [2][]*spec.Lane{{{}, {}, {}}, {{}, {}, {}}}
	for i := range 3 {
		a.Begin(lanes[0][i])
		b.Begin(lanes[1][i])
	}
	for range 3000 {
		n, lag := 1+r.IntN(3), r.IntN(100)
		if r.IntN(50) == 0 {
			lanes[0][n-1].Lag, lanes[1][n-1].Lag = lag, lag
			if a.Begin(lanes[0][n-1]) != b.Begin(lanes[1][n-1]) {
				t.Fatal("two policies that saw the same begin differently")
			}
		}
		for i := range n {
			lag, left := r.IntN(40), r.IntN(12)
			for _, side := range lanes {
				side[i].Lag, side[i].Room = lag, left
			}
		}
		beside := r.IntN(2) * r.IntN(100)
		a.Next(lanes[0][:n], beside)
		b.Next(lanes[1][:n], beside)
		round := spec.Round{Beside: beside, Draft: time.Duration(r.IntN(1e4)), Score: time.Duration(r.IntN(1e5))}
		for i := range n {
			k := lanes[0][i].K
			if k != lanes[1][i].K {
				t.Fatal("two policies that saw the same choose differently")
			}
			if most := min(lanes[0][i].Room, 6); k < 0 || k > most {
				t.Fatalf("%d tokens of at most %d", k, most)
			}
			accepted := r.IntN(k + 1)
			for _, side := range lanes {
				side[i].Drafted, side[i].Accepted, side[i].Emitted = k, accepted, accepted+1
			}
		}
		a.Observe(lanes[0][:n], round)
		b.Observe(lanes[1][:n], round)
		if a.Width(3) != b.Width(3) {
			t.Fatal("two policies that saw the same are of different width")
		}
	}
}

// TestAutoChoosesLanesAndLookahead holds the choice of both against a search of
// the grid, under costs like those of a processor that memory bounds at first
// and arithmetic later.
func TestAutoChoosesLanesAndLookahead(t *testing.T) {
	const most, width = 8, 16
	for _, alpha := range []float64{0, 0.3, 0.6, 0.8, 0.95} {
		for _, dear := range []float64{0.05, 0.5, 2} { // what scoring one more token costs
			verify := func(n, k int) float64 { return 20 + math.Max(0, dear*float64(n*(k+1))-4) + 0.1*float64(n*(k+1)) }
			draft := func(n, k int) float64 { return float64(k) * (0.2 + 0.08*float64(n)) }
			p := spec.NewAuto(width, 0, most)
			for _, rows := range p.Costs().Target.Rows(false) {
				p.Costs().Target.Measured(rows, time.Duration(1e6*verify(rows, 0)))
			}
			for _, rows := range p.Costs().Draft.Rows(false) {
				p.Costs().Draft.Measured(rows, time.Duration(1e6*draft(rows, 1)))
			}
			p.Costs().Ready()
			r := rand.New(rand.NewPCG(1, 1))
			lanes := make([]*spec.Lane, width)
			for i := range lanes {
				lanes[i] = &spec.Lane{}
				p.Begin(lanes[i])
			}
			var tokens, spent float64
			for loop := range 3000 {
				n := p.Width(width)
				for _, l := range lanes[:n] {
					l.Room = 100
				}
				p.Next(lanes[:n], 0)
				if loop%50 == 49 { // sequences end
					for _, l := range lanes {
						k := l.K
						p.Begin(l)
						l.K = k
					}
				}
				rows, drafting := 0, 0.0
				for step := range most {
					if n := count(lanes[:n], step); n > 0 {
						drafting += draft(n, 1)
					}
				}
				for _, l := range lanes[:n] {
					l.Drafted, l.Accepted = l.K, 0
					for l.Accepted < l.K && r.Float64() < alpha {
						l.Accepted++
					}
					l.Emitted = l.Accepted + 1
					tokens += float64(l.Emitted)
					rows += l.K + 1
				}
				scoring := verify(rows, 0)
				spent += drafting + scoring
				p.Observe(lanes[:n], spec.Round{Draft: time.Duration(1e6 * drafting), Score: time.Duration(1e6 * scoring)})
			}
			best, at := 0.0, [2]int{}
			for n := 1; n <= width; n++ {
				e, reached := 0.0, 1.0
				for k := range most + 1 {
					e, reached = e+reached, reached*alpha
					if rate := float64(n) * e / (draft(n, k) + verify(n, k)); rate > best {
						best, at = rate, [2]int{n, k}
					}
				}
			}
			if got := tokens / spent; got < 0.95*best {
				t.Errorf("alpha %v, %v a token: %.3f of the best cell, lanes and K %v; now %d lanes", alpha, dear, got/best, at, p.Width(width))
			}
		}
	}
}

// count is how many lanes take part in a step of drafting.
func count(lanes []*spec.Lane, step int) (n int) {
	for _, l := range lanes {
		if l.K > step {
			n++
		}
	}
	return n
}

func BenchmarkAutoNext(b *testing.B) {
	p := spec.NewAuto(1, 0, 8)
	w := world{accept: constant(0.8), draft: linear(0, 2e5), verify: linear(2e6, 1e5), length: 1 << 30}
	w.run(p, 1000, 1)
	b.ReportAllocs()
	lanes := []*spec.Lane{{Room: 100, Accepted: 2, Emitted: 3}}
	p.Begin(lanes[0])
	for b.Loop() {
		lanes[0].Drafted = next(p, lanes)
		p.Observe(lanes, spec.Round{Draft: 1000, Score: 10000})
	}
}
