package sampling

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
)

// pairT are a target and a draft on a device, loaded once.
type pairT struct {
	t             *testing.T
	options       ort.Options
	target, draft *ort.Model
	tokenizer     *tokenize.Tokenizer
}

func newPairT(t *testing.T, o ort.Options, dir string) *pairT {
	t.Helper()
	p := &pairT{t: t, options: o}
	for _, m := range []struct {
		name string
		to   **ort.Model
	}{{"target", &p.target}, {"draft", &p.draft}} {
		b, err := ort.OpenBundle("../../../testdata/" + dir + "/" + m.name)
		if err == nil {
			*m.to, err = ort.Load(b, o)
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.tokenizer, err = tokenize.Load(b.Tokenizer); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := (*m.to).Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return p
}

// decoding is what is decoded, and how.
type decoding struct {
	settings   engine.Settings
	candidates int // of the sampler's nucleus; 0: its default
	here       bool
	sequences  int
	tokens     int
	eos        []int32
}

// decoded are loops, of each sequence, and the waits of each step in which there were
// some.
type decoded struct {
	loops [][]engine.Loop
	waits []int
	reran int
}

// decode decodes some sequences, which begin as lanes become free.
func (p *pairT) decode(d decoding) (out decoded) {
	t := p.t
	t.Helper()
	target, err := p.target.NewDecoder(0)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	draft, err := p.draft.NewDecoder(0)
	if err != nil {
		t.Fatal(err)
	}
	defer draft.Close()
	pair := engine.Pair{Target: target, Draft: draft, Tokenizer: p.tokenizer, EOS: d.eos}
	if d.settings.K == 0 {
		pair.Draft = nil
	}
	if e := p.target.Bundle().Encoder; e != nil {
		pair.Encoder = &engine.Encoder{Start: e.Start, Most: e.Most}
	}
	if !d.here {
		o := Options(d.settings.Sampling, d.settings.Rule, d.settings.Lookahead, target.Vocab())
		o.Candidates = d.candidates
		s, err := ort.NewPairSampler(p.options, o, target, draft)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		pair.Remote = s
		defer func() { out.reran = s.Reran() }()
	}
	e, err := engine.New(t.Context(), pair, d.settings)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	out.loops = make([][]engine.Loop, d.sequences)
	n := 0
	for next := 0; next < d.sequences || e.Active() > 0; {
		for ; next < d.sequences && e.Free() > 0; next++ {
			i := next
			prompt := []int32{}
			for j := range 3 + 2*i {
				prompt = append(prompt, int32(7+(5*i+11*j)%90))
			}
			err := e.Admit(engine.Request{
				Prompt: pair.Prompt(prompt), Limit: d.tokens, Coins: spec.Coins{Seed: 5, Row: uint64(i)},
				Loop: func(l *engine.Loop) error {
					n++
					kept := *l.Outcome
					for _, list := range []*[]float64{&kept.P, &kept.Q, &kept.Overlap, &kept.Coins, &kept.Below, &kept.Chance, &kept.Margins} {
						*list = append([]float64{}, *list...)
					}
					out.loops[i] = append(out.loops[i], engine.Loop{
						Position: l.Position, K: l.K, Lanes: l.Lanes, Drafted: append([]int32{}, l.Drafted...), Outcome: &kept, Emitted: l.Emitted, Scored: l.Scored,
					})
					return nil
				},
				Done: func(s *engine.Sequence) error { return s.Err },
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		before, waits := n, ort.Waits()
		if err := e.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n > before {
			out.waits = append(out.waits, int(ort.Waits()-waits))
		}
	}
	return out
}

// TestOneWait: a loop whose draft steps are not waited for is, to the bit, the loop in
// which the host has seen each token before the next was drafted: with several lanes,
// prompts that ride along, ends of sequence inside of drafts, and rows that are drawn
// from again. It waits once where the other waits K + 1 times. On CUDA a row's last bits
// depend on the rows beside it, and behind an end there are more of them: loops are held
// against the host's by the tests of package app, and waits are counted here.
func TestOneWait(t *testing.T) {
	eachDevice(t, func(t *testing.T, o ort.Options) {
		pair := newPairT(t, o, "demo")
		rules := []string{"rejection", "rejection", "lenient:0.5", "coupled", "match"}
		sampling := []spec.Sampling{
			{Temperature: 0.8, TopP: 0.9}, {Temperature: 1}, {Temperature: 0.8, TopK: 20}, {Temperature: 1.2, MinP: 0.05}, {Temperature: 0.7, TopP: 0.95, TopK: 50, MinP: 0.01},
		}
		ends, cut := 0, []int32{8, 13, 40, 60, 101}
		for k := 1; k <= 5; k++ {
			if o.Device == "webgpu" && k != 2 { // in software a pass takes a second
				continue
			}
			t.Run(fmt.Sprint("K=", k), func(t *testing.T) {
				rule, err := spec.ParseRule(rules[k-1])
				if err != nil {
					t.Fatal(err)
				}
				d := decoding{settings: engine.Settings{K: k, Lanes: 3, Sampling: sampling[k-1], Rule: rule, PassTokens: 24}, sequences: 5, tokens: 18, eos: cut}
				switch {
				case o.Device == "webgpu":
					d.sequences, d.tokens = 2, 4
				case !rule.Replays(): // the noise of a vocabulary takes its time on a CPU
					d.sequences, d.tokens = 2, 10
				}
				if k == 4 {
					d.settings.Rule = ruleT(t, "coupled")
				}
				got := pair.decode(d)
				d.settings.Lookahead = spec.Lookahead{Kind: spec.ConfidenceLookahead, Threshold: never}
				want := pair.decode(d)
				if o.Device != "cuda" {
					equal(t, got, want)
				}
				for i := range got.waits {
					if i < len(want.waits) && (want.waits[i] > k+1 || want.waits[i] < 1) {
						t.Errorf("loop %d, step by step: %d waits", i, want.waits[i])
					}
					if got.waits[i] != 1 {
						t.Errorf("loop %d: %d waits", i, got.waits[i])
					}
				}
				if slices.Max(want.waits) != k+1 {
					t.Errorf("waits step by step: %v", want.waits)
				}
				for _, loops := range got.loops {
					for _, l := range loops {
						if i := slices.IndexFunc(l.Drafted, func(x int32) bool { return slices.Contains(cut, x) }); i >= 0 && len(l.Drafted) < l.K {
							ends++
						}
					}
				}
			})
		}
		if ends == 0 && o.Device != "webgpu" {
			t.Error("no sequence ended inside of a draft")
		}
	})
}

// never is a confidence that every token has.
const never = 1e-30

// TestOneWaitCrossed: so it is with encoder-decoder models, in lanes and as they were
// exported.
func TestOneWaitCrossed(t *testing.T) {
	eachDevice(t, func(t *testing.T, o ort.Options) {
		if o.Device != "cpu" {
			return // which such models run on alone
		}
		for _, o.AsExported = range []bool{false, true} {
			pair := newPairT(t, o, "translate")
			d := decoding{settings: engine.Settings{K: 3, Lanes: 3, Sampling: spec.Sampling{Temperature: 1}, PassTokens: 24}, sequences: 5, tokens: 12, eos: []int32{8, 40}}
			got := pair.decode(d)
			d.settings.Lookahead = spec.Lookahead{Kind: spec.ConfidenceLookahead, Threshold: never}
			equal(t, got, pair.decode(d))
		}
	})
}

// equal compares decoded loops, to the bit.
func equal(t *testing.T, got, want decoded) {
	t.Helper()
	for i := range want.loops {
		a, b := got.loops[i], want.loops[i]
		for j := range min(len(a), len(b)) {
			if !reflect.DeepEqual(plain(a[j]), plain(b[j])) {
				t.Errorf("sequence %d, loop %d:\n got %+v\nwant %+v", i, j, plain(a[j]), plain(b[j]))
				break
			}
		}
		if len(a) != len(b) {
			t.Errorf("sequence %d: %d loops, want %d", i, len(a), len(b))
		}
	}
}

// plain is what can be compared of a loop.
func plain(l engine.Loop) string {
	return fmt.Sprintf("%+v %+v", l.Outcome, struct {
		position, k, lanes, emitted, scored int
		drafted                             []int32
	}{l.Position, l.K, l.Lanes, l.Emitted, l.Scored, l.Drafted})
}

// TestWaits counts the waits of a loop in the other cases, the host's sampler among
// them.
func TestWaits(t *testing.T) {
	eachDevice(t, func(t *testing.T, o ort.Options) {
		if o.Device == "webgpu" {
			return // the case of TestOneWait is enough where a pass takes a second
		}
		pair := newPairT(t, o, "demo")
		const k = 3
		for _, c := range []struct {
			name        string
			here        bool
			settings    engine.Settings
			candidates  int
			least, most int // a loop
		}{
			{"greedy", false, engine.Settings{K: k}, 0, 1, 1},
			{"nothing drafted", false, engine.Settings{Sampling: spec.Sampling{Temperature: 1}}, 0, 1, 1},
			{"penalties", false, engine.Settings{K: k, Sampling: spec.Sampling{Temperature: 1, RepetitionPenalty: 1.2}}, 0, k + 1, k + 1},
			// All rows are wide: those of each step are drawn from twice, and the target's too.
			{"wide", false, engine.Settings{K: k, Sampling: spec.Sampling{Temperature: 1, TopP: 0.99}}, 1, 2*k + 2, 2*k + 3},
			{"the host's", true, engine.Settings{K: k, Sampling: spec.Sampling{Temperature: 1}}, 0, k + 1, k + 1},
			{"the host's, greedy", true, engine.Settings{K: k}, 0, k + 1, k + 1},
		} {
			t.Run(c.name, func(t *testing.T) {
				c.settings.Lanes = 4
				d := decoding{settings: c.settings, candidates: c.candidates, here: c.here, sequences: 4, tokens: 4 * (k + 1)}
				got := pair.decode(d)
				full := 0
				for i, n := range got.waits {
					asked := false
					for _, loops := range got.loops {
						asked = asked || i < len(loops) && len(loops[i].Drafted) == c.settings.K
					}
					if !asked { // towards the end there is less to draft
						continue
					}
					if full++; n < c.least || n > c.most {
						t.Errorf("loop %d: %d waits, want %d to %d", i, n, c.least, c.most)
					}
				}
				if full < 3 {
					t.Errorf("%d loops of %v", full, got.waits)
				}
				if (got.reran > 0) != (c.candidates > 0) {
					t.Errorf("%d rows were computed again", got.reran)
				}
			})
		}
	})
}

// TestWideLoops: loops with rows whose nucleus is wide are those of a sampler that sorts
// whole rows, whether they are found while drafting, afterwards, or in the target's
// rows.
func TestWideLoops(t *testing.T) {
	eachDevice(t, func(t *testing.T, o ort.Options) {
		if o.Device != "cpu" {
			return // see TestOneWait
		}
		pair := newPairT(t, o, "demo")
		for _, candidates := range []int{2, 20} {
			d := decoding{settings: engine.Settings{K: 3, Lanes: 3, Sampling: spec.Sampling{Temperature: 0.9, TopP: 0.8}, PassTokens: 24}, sequences: 5, tokens: 16, eos: []int32{8, 40}}
			want := pair.decode(d)
			d.candidates = candidates
			got := pair.decode(d)
			equal(t, got, want)
			if got.reran == 0 || want.reran != 0 {
				t.Errorf("%d candidates: %d rows were computed again, and %d of whole rows", candidates, got.reran, want.reran)
			}
			t.Logf("%d candidates: waits %v", candidates, got.waits)
		}
	})
}
