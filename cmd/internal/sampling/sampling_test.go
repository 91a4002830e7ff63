package sampling

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/library"
	"github.com/draftmill/draftmill/pipeline/engine/remote"
	"github.com/draftmill/draftmill/spec"
)

// devices are those that the tests run on; a build tag adds one.
var devices = []string{"cpu"}

// eachDevice runs a test on every device.
func eachDevice(t *testing.T, f func(t *testing.T, o ort.Options)) {
	for _, device := range devices {
		path, err := library.FindFor(device, "")
		if err == nil {
			err = ort.Init(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Run(device, func(t *testing.T) { f(t, ort.Options{Device: device, Threads: 1}) })
	}
}

// device is a sampler whose logits the test makes up.
type device struct {
	*remote.Device
	host *host
	rule spec.Rule
	wait bool // for what steps draw
}

// host is its sampler: the rows are the host's, and not a model's.
type host struct {
	*ort.Sampler
	logits  ort.HostRows
	weights [][]float32
	drawn   []remote.Drawn
}

func (h *host) Draft(step int, rows []remote.Row, wait bool) ([]remote.Drawn, error) {
	return h.Sampler.Draw(h.logits, rows, step, wait)
}

func (h *host) Draw(rows []remote.Row) (drawn []remote.Drawn, err error) {
	h.drawn, h.weights, err = h.Weights(h.logits, rows)
	return h.drawn, err
}

func (h *host) Verify(rows []remote.Row, drafted []remote.Drafted, whole bool) ([]remote.Drawn, []remote.Verified, error) {
	return h.Sampler.Verify(h.logits, rows, drafted, whole)
}

func ruleT(t testing.TB, name string) spec.Rule {
	t.Helper()
	r, err := spec.ParseRule(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func deviceT(t testing.TB, o ort.Options, s spec.Sampling, rule string, vocab, candidates int) *device {
	t.Helper()
	r := ruleT(t, rule).For(s)
	options := Options(s, r, spec.Lookahead{}, vocab)
	options.Candidates, options.Racers = candidates, candidates
	return deviceOf(t, o, s, r, options)
}

func deviceOf(t testing.TB, o ort.Options, s spec.Sampling, r spec.Rule, options graph.SamplerOptions) *device {
	t.Helper()
	sampler, err := ort.NewSampler(o, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sampler.Close(); err != nil {
			t.Error(err)
		}
	})
	h := &host{Sampler: sampler}
	return &device{remote.New(h, s, r, nil), h, r, true}
}

// Row is a place, and the logits there.
type Row struct {
	Logits []float32
	Chain  *spec.Chain
	Tokens []int32
	Coins  spec.Uniforms
	At     int
}

// Draft and Draw answer with one error for all rows.
func (d *device) Draft(step int, rows []Row) ([]remote.Place, error) {
	return d.draw(rows, func(places []remote.Place) error { return d.Device.Draft(step, places, d.wait) })
}

func (d *device) Draw(rows []Row) ([]remote.Place, error) { return d.draw(rows, d.Device.Draw) }

func (d *device) draw(rows []Row, draw func([]remote.Place) error) ([]remote.Place, error) {
	d.host.logits = nil
	var places []remote.Place
	for _, r := range rows {
		d.host.logits = append(d.host.logits, r.Logits...)
		places = append(places, remote.Place{Chain: r.Chain, Tokens: r.Tokens, Coins: r.Coins, At: r.At})
	}
	err := draw(places)
	for i := range places {
		if err == nil {
			err = places[i].Err
		}
	}
	return places, err
}

// Loop is one sequence's part of a verification, and the target's K+1 rows.
type Loop struct {
	remote.Loop
	Logits []float32
}

// Verify verifies loops that drafted in company: step t was that of the loops that
// drafted more than t, in their order.
func (d *device) Verify(loops []Loop) error {
	d.host.logits = nil
	all := make([]remote.Loop, len(loops))
	for i := range loops {
		l := loops[i].Loop
		d.host.logits = append(d.host.logits, loops[i].Logits...)
		l.Start, l.Rows = len(l.Tokens)-len(l.Drafted), nil
		for t := range l.Drafted {
			n := 0
			for _, o := range loops[:i] {
				if len(o.Drafted) > t {
					n++
				}
			}
			l.Rows = append(l.Rows, n)
		}
		all[i] = l
	}
	ok, err := d.Device.Verify(all)
	if err == nil && !ok {
		err = errAgain
	}
	for i := range all {
		loops[i].Drafted = all[i].Drafted
		if err == nil {
			err = all[i].Err
		}
	}
	return err
}

// errAgain says that a loop is to be drafted again.
var errAgain = errors.New("a token has to be drawn from a whole row")

// randomRow draws logits of the shapes that models have, with ties and with
// impossible tokens.
func randomRow(r *rand.Rand, vocab int) []float32 {
	row := make([]float32, vocab)
	spread := []float64{0.3, 1, 3, 10}[r.IntN(4)]
	ties := r.IntN(4) == 0
	for i := range row {
		row[i] = float32(r.NormFloat64() * spread)
		if ties {
			row[i] = float32(r.IntN(5)) * float32(spread)
		}
		if r.IntN(20) == 0 {
			row[i] = float32(math.Inf(-1))
		}
	}
	row[r.IntN(vocab)] = float32(spread)
	return row
}

func randomSampling(r *rand.Rand, vocab int) spec.Sampling {
	s := spec.Sampling{Temperature: []float64{0, 0.3, 0.8, 1, 1.6}[r.IntN(5)]}
	if r.IntN(3) == 0 {
		s.TopK = 1 + r.IntN(min(60, vocab))
	}
	if r.IntN(2) == 0 {
		s.TopP = []float64{1e-3, 0.3, 0.9, 0.95, 0.999}[r.IntN(5)]
	}
	if r.IntN(4) == 0 {
		s.MinP = []float64{1e-4, 0.02, 0.3, 1}[r.IntN(4)]
	}
	if r.IntN(2) == 0 {
		s.RepetitionPenalty, s.FrequencyPenalty, s.PresencePenalty = 1.3, 0.2, 0.1
		s.LogitBias = map[int32]float64{int32(r.IntN(vocab)): 1.5}
		s.NoRepeatNGramSize = 2
		s.MinNewTokens = 100
		s.ForbiddenTokens = []int32{int32(r.IntN(vocab))}
	}
	return s
}

// near is how far a device's probabilities may be from spec's.
const near = 1e-5

// alike reports whether weights are the law d, to near.
func alike(weights []float32, d *spec.Dist) bool {
	var sum float64
	for _, w := range weights {
		sum += float64(w)
	}
	for x, w := range weights {
		if math.Abs(float64(w)/sum-d.Prob(int32(x))) > near {
			return false
		}
	}
	return true
}

// nudged are settings whose boundaries lie a little to both sides.
func nudged(s spec.Sampling) []spec.Sampling {
	all := []spec.Sampling{s}
	for _, step := range []float64{-1e-5, 1e-5} {
		n := s
		if s.TopP > 0 {
			n.TopP = min(s.TopP*(1+step), 1)
		}
		n.MinP = min(s.MinP*(1+step), 1)
		all = append(all, n)
	}
	return all
}

func chainT(t testing.TB, s spec.Sampling, vocab int, prompt []int32) *spec.Chain {
	t.Helper()
	c, err := spec.NewChain(s, vocab, []int32{0})
	if err == nil {
		err = c.Begin(prompt)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStandardize: the device's laws are spec's, for random logits and settings,
// vocabularies of whole and of broken blocks, and sequences that penalties see.
func TestStandardize(t *testing.T) {
	eachDevice(t, func(t *testing.T, o ort.Options) {
		r := rand.New(rand.NewPCG(1, 2))
		nudges := 0
		for n := range cases(o, 40) {
			vocab := []int{2, 7, 256, 300, 1000, 2048}[r.IntN(6)]
			s := randomSampling(r, vocab)
			d := deviceT(t, o, s, "rejection", vocab, 0)
			var rows []Row
			for range 1 + r.IntN(3) {
				tokens := make([]int32, 2+r.IntN(20))
				for i := range tokens {
					tokens[i] = int32(r.IntN(vocab))
				}
				rows = append(rows, Row{Logits: randomRow(r, vocab), Chain: chainT(t, s, vocab, tokens[:1]), Tokens: tokens, Coins: spec.Coins{Seed: uint64(n)}, At: len(tokens)})
			}
			drawn, err := d.Draw(rows)
			if err != nil {
				for _, row := range rows { // bans may leave nothing
					var dist spec.Dist
					if want := row.Chain.Standardize(row.Logits, row.Tokens, &dist); want != nil && errors.Is(err, want) {
						err = nil
					}
				}
				if err != nil {
					t.Fatalf("%+v: %v", s, err)
				}
				continue
			}
			for i, row := range rows {
				ok := false
				for at, s := range nudged(s) {
					var dist spec.Dist
					if err := chainT(t, s, vocab, row.Tokens[:1]).Standardize(row.Logits, row.Tokens, &dist); err != nil {
						t.Fatal(err)
					}
					u, x := row.Coins.Uniform(spec.BonusCoin, row.At), drawn[i].Token
					below, p := dist.Below(x), dist.Prob(x)
					if alike(d.host.weights[i], &dist) && below-near <= u && u <= below+p+near && math.Abs(p-drawn[i].Prob) <= near {
						if ok = true; at > 0 {
							nudges++
						}
						break
					}
				}
				if !ok {
					t.Errorf("case %d, row %d of a vocabulary of %d under %+v: another law or token, %+v", n, i, vocab, s, drawn[i])
				}
			}
		}
		if nudges > 3 {
			t.Errorf("%d rows are spec's only with a boundary moved", nudges)
		}
	})
}

// cases is how many cases a test takes: fewer where the device is software.
func cases(o ort.Options, n int) int {
	if o.Device == "webgpu" {
		return n / 5
	}
	return n
}

// TestVerify: numbers and decisions are those of spec.Verify, for loops of
// different lookaheads verified together.
func TestVerify(t *testing.T) {
	eachDevice(t, func(t *testing.T, o ort.Options) {
		for _, rule := range []string{"rejection", "match", "coupled", "lenient:0.5", "capped:0.7"} {
			t.Run(rule, func(t *testing.T) {
				r := rand.New(rand.NewPCG(3, 4))
				for n := range cases(o, 15) {
					verifyCase(t, o, rule, r, n)
				}
			})
		}
	})
}

func verifyCase(t *testing.T, o ort.Options, rule string, r *rand.Rand, n int) {
	vocab := []int{5, 256, 700}[r.IntN(3)]
	s := randomSampling(r, vocab)
	s.NoRepeatNGramSize, s.ForbiddenTokens, s.LogitBias = 0, nil, nil // so that something is possible
	s.TopP, s.MinP = 0, min(s.MinP, 1e-4)                             // so that no boundary is near
	d := deviceT(t, o, s, rule, vocab, 0)
	var loops []Loop
	var want []spec.Outcome
	type lane struct {
		q [][]float32
		k int
		p []spec.Dist
	}
	var lanes []lane
	for i := range 1 + r.IntN(3) {
		prompt := []int32{int32(r.IntN(vocab)), int32(r.IntN(vocab))}
		loops = append(loops, Loop{Loop: remote.Loop{Chain: chainT(t, s, vocab, prompt), Tokens: prompt, Coins: spec.Coins{Seed: uint64(n), Row: uint64(i)}, Out: new(spec.Outcome)}})
		lanes = append(lanes, lane{k: r.IntN(4), p: make([]spec.Dist, 4)})
	}
	for t0 := range 3 { // the draft's steps
		var rows []Row
		var of []int
		for i := range loops {
			if l := &loops[i]; t0 < lanes[i].k {
				logits := randomRow(r, vocab)
				lanes[i].q = append(lanes[i].q, mixed(r, logits))
				if err := l.Chain.Standardize(logits, l.Tokens, &lanes[i].p[t0]); err != nil {
					t.Fatal(err)
				}
				rows = append(rows, Row{Logits: logits, Chain: l.Chain, Tokens: l.Tokens, Coins: l.Coins, At: len(l.Tokens)})
				of = append(of, i)
			}
		}
		if len(rows) == 0 {
			continue
		}
		drawn, err := d.Draft(t0, rows)
		if err != nil {
			t.Fatal(err)
		}
		for j, i := range of {
			loops[i].Tokens = append(slices.Clone(loops[i].Tokens), drawn[j].Token)
			loops[i].Drafted = append(loops[i].Drafted, drawn[j].Token)
		}
	}
	some := false
	for i := range loops {
		l := &loops[i]
		lanes[i].q = append(lanes[i].q, randomRow(r, vocab))
		q := make([]spec.Dist, len(l.Drafted)+1)
		start := len(l.Tokens) - len(l.Drafted)
		for j, row := range lanes[i].q {
			l.Logits = append(l.Logits, row...)
			if err := l.Chain.Standardize(lanes[i].q[j], l.Tokens[:start+j], &q[j]); err != nil {
				t.Fatal(err)
			}
		}
		var out spec.Outcome
		if err := spec.Verify(d.rule, l.Drafted, lanes[i].p[:len(l.Drafted)], q, l.Coins, start, &out); err != nil {
			t.Fatal(err)
		}
		want = append(want, out)
		some = some || len(l.Drafted) > 0
	}
	if err := d.Verify(loops); err != nil {
		t.Fatal(err)
	}
	for i := range loops {
		got := loops[i].Out
		same := got.Accepted == want[i].Accepted && got.Token == want[i].Token && got.Kind == want[i].Kind
		for _, c := range []struct {
			what      string
			got, want []float64
			tolerance float64
		}{
			{"p", got.P, want[i].P, near}, {"q", got.Q, want[i].Q, near}, {"overlap", got.Overlap, want[i].Overlap, near},
			{"below", got.Below, want[i].Below, near}, {"chance", got.Chance, want[i].Chance, 1e-3},
			{"coins", got.Coins, want[i].Coins, 0}, {"margins", got.Margins, want[i].Margins, 1e-4},
		} {
			same = same && len(c.got) == len(c.want)
			for j := range min(len(c.got), len(c.want)) {
				if d := math.Abs(c.got[j] - c.want[j]); d > c.tolerance*max(1, math.Abs(c.want[j])) {
					same = false
				}
			}
		}
		if !same {
			t.Errorf("case %d, loop %d, %s under %+v:\n got %+v\nwant %+v", n, i, rule, s, *got, want[i])
		}
	}
}

// mixed is near to a row, so that something is accepted.
func mixed(r *rand.Rand, row []float32) []float32 {
	out := slices.Clone(row)
	for i := range out {
		out[i] += float32(r.NormFloat64() * 0.4)
	}
	return out
}

// TestWide: a nucleus wider than the candidates is found all the same.
func TestWide(t *testing.T) {
	eachDevice(t, func(t *testing.T, o ort.Options) {
		const vocab = 1000
		s := spec.Sampling{Temperature: 1, TopP: 0.95}
		d := deviceT(t, o, s, "rejection", vocab, 64)
		r := rand.New(rand.NewPCG(5, 6))
		narrow, wide := make([]float32, vocab), make([]float32, vocab)
		for i := range narrow {
			narrow[i], wide[i] = float32(r.NormFloat64()*8), float32(r.NormFloat64()*0.1)
		}
		for i, logits := range [][]float32{narrow, wide} {
			row := Row{Logits: logits, Chain: chainT(t, s, vocab, nil), Coins: spec.Coins{}, At: i}
			if _, err := d.Draw([]Row{row}); err != nil {
				t.Fatal(err)
			}
			var dist spec.Dist
			if err := row.Chain.Standardize(logits, nil, &dist); err != nil {
				t.Fatal(err)
			}
			if !alike(d.host.weights[0], &dist) {
				t.Errorf("row %d is another law", i)
			}
			if d.host.Reran() != i {
				t.Errorf("%d rows were computed again after row %d", d.host.Reran(), i)
			}
		}
	})
}

// TestConfidence: at temperature zero a token's probability is what its model's logits
// say, before penalties, where a lookahead looks at it, and 1 elsewhere.
func TestConfidence(t *testing.T) {
	eachDevice(t, func(t *testing.T, o ort.Options) {
		const vocab = 300
		s := spec.Sampling{RepetitionPenalty: 1.5, ForbiddenTokens: []int32{4}}
		r := rand.New(rand.NewPCG(3, 9))
		for _, lookahead := range []spec.Lookahead{{}, {Kind: spec.ConfidenceLookahead, Threshold: 0.5}} {
			d := deviceOf(t, o, s, spec.Rejection, Options(s, spec.Rejection, lookahead, vocab))
			for range cases(o, 20) {
				row := Row{Logits: randomRow(r, vocab), Tokens: []int32{int32(r.IntN(vocab)), 7}, Coins: spec.Coins{}}
				row.Chain = chainT(t, s, vocab, row.Tokens[:1])
				drawn, err := d.Draw([]Row{row})
				if err != nil {
					t.Fatal(err)
				}
				var sum float64
				for _, l := range row.Logits {
					sum += math.Exp(float64(l))
				}
				want := 1.
				if lookahead.Kind != "" {
					want = math.Exp(float64(row.Logits[drawn[0].Token])) / sum
				}
				if math.Abs(drawn[0].Prob-want) > near {
					t.Errorf("%+v: probability %v, want %v", lookahead, drawn[0].Prob, want)
				}
			}
		}
	})
}

// TestNoDistribution: hostile rows are named, and do not spoil others.
func TestNoDistribution(t *testing.T) {
	eachDevice(t, func(t *testing.T, o ort.Options) {
		inf, nan := float32(math.Inf(1)), float32(math.NaN())
		for _, c := range []struct {
			name     string
			sampling spec.Sampling
			row      []float32
			want     error
		}{
			{"nan", spec.Sampling{Temperature: 1}, []float32{0, nan, 1}, spec.ErrNotANumber},
			{"infinite", spec.Sampling{Temperature: 1, TopP: 0.9}, []float32{0, inf, 1}, spec.ErrNotANumber},
			{"greedy", spec.Sampling{}, []float32{0, nan, 1}, spec.ErrNotANumber},
			{"none", spec.Sampling{Temperature: 1}, []float32{-inf, -inf, -inf}, spec.ErrNoMass},
			{"banned", spec.Sampling{Temperature: 1, ForbiddenTokens: []int32{0, 1, 2}}, []float32{0, 1, 2}, spec.ErrNoMass},
			{"a ban hides none", spec.Sampling{Temperature: 1, ForbiddenTokens: []int32{1}}, []float32{0, nan, 2}, spec.ErrNotANumber},
		} {
			t.Run(c.name, func(t *testing.T) {
				d := deviceT(t, o, c.sampling, "rejection", 3, 0)
				row := Row{Logits: c.row, Chain: chainT(t, c.sampling, 3, nil), Coins: spec.Coins{}}
				drawn, err := d.Draw([]Row{row, {Logits: []float32{1, 2, 3}, Chain: row.Chain, Coins: row.Coins}})
				if !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if c.name != "banned" && (len(drawn) != 2 || drawn[1].Err != nil || drawn[1].Token < 0 || drawn[1].Token > 2) {
					t.Errorf("the row beside it: %+v", drawn)
				}
			})
		}
	})
}

// TestOptions: what is no sampler is refused.
func TestOptions(t *testing.T) {
	for _, o := range []graph.SamplerOptions{
		{}, {Vocab: 1 << 24}, {Vocab: 8, Temperature: math.NaN()}, {Vocab: 8, TopP: 1.5}, {Vocab: 8, TopK: -1},
	} {
		if o.Logits = graph.Float32; o.Vocab == 8 {
			o.Logits = graph.Float16
		}
		if _, err := graph.NewSampler(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	for vocab, want := range map[int]int{151936: 151936, 128256: 128256, 32000: 32000, 50257: 50432, 3: 256} {
		if got := (graph.SamplerOptions{Vocab: vocab}).Stride(); got != want {
			t.Errorf("a row of %d tokens takes %d places, want %d", vocab, got, want)
		}
	}
}
