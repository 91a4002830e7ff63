package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/spec"
)

// searched is what an engine's search returned for one request.
type searched struct {
	found []Sequence
	loops []Loop
}

// searchAll searches for several prompts together.
func searchAll(t *testing.T, e *Engine, prompts [][]int32, limit, beams int, stop ...string) []searched {
	t.Helper()
	all := make([]searched, len(prompts))
	for next := 0; next < len(prompts) || e.Active() > 0; {
		for ; next < len(prompts) && e.Free() > 0; next++ {
			to := &all[next]
			if err := e.Admit(Request{
				Prompt: prompts[next], Limit: limit, Beams: beams, Stop: stop,
				Loop: func(l *Loop) error {
					kept, out := *l, *l.Outcome
					out.Overlap, out.P, out.Q = slices.Clone(l.Overlap), slices.Clone(l.P), slices.Clone(l.Q)
					kept.Drafted, kept.Outcome = slices.Clone(l.Drafted), &out
					to.loops = append(to.loops, kept)
					return nil
				},
				Done: func(s *Sequence) error {
					to.found = append(to.found, *s)
					return nil
				},
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// reference is the search without an engine: every row from the model's whole prefix.
func reference(t *testing.T, pair Pair, logits func([]int32) []float32, set Settings, prompt []int32, limit int, stop ...string) *spec.Search {
	t.Helper()
	chain, err := spec.NewChain(set.Sampling, pair.Target.Vocab(), pair.EOS)
	if err != nil {
		t.Fatal(err)
	}
	visible := prompt[pair.Input(prompt):]
	if err := chain.Begin(visible); err != nil {
		t.Fatal(err)
	}
	s := spec.NewSearch(*set.Beams, pair.EOS, limit)
	s.Stops = func(b *spec.Beam) bool {
		text := pair.Tokenizer.Decode(b.AppendTokens(nil), true)
		return slices.ContainsFunc(stop, func(x string) bool { return strings.Contains(text, x) })
	}
	for !s.Over() {
		rows := make([][]float32, len(s.Running))
		for i, b := range s.Running {
			rows[i] = make([]float32, pair.Target.Vocab())
			if err := chain.LogProbs(logits(b.AppendTokens(slices.Clip(prompt))), b.AppendTokens(slices.Clip(visible)), rows[i]); err != nil {
				t.Fatal(err)
			}
		}
		s.Step(rows)
	}
	return s
}

// like mixes a model's logits with another's, so that one drafts well for the other.
func like(target func([]int32) []float32, vocab int, seed uint64, share float32) func([]int32) []float32 {
	other := enginetest.Hashed(vocab, seed)
	return func(prefix []int32) []float32 {
		a, b := target(prefix), other(prefix)
		for i := range a {
			a[i] += share * b[i]
		}
		return a
	}
}

// A search by an engine is the search by definition, to the bit: with and without
// drafts, in any number of lanes, with too little memory, for prompts that begin
// alike, and behind an encoder's input.
func TestBeamsOfAnEngine(t *testing.T) {
	tok, eos := enginetest.Letters(t, "abcdefghijklmnop")
	vocab := int(eos) + 1
	accepted, putBacks, cut, stopped := 0, 0, 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		logits := enginetest.Hashed(vocab, seed)
		scale := func(f func([]int32) []float32) func([]int32) []float32 {
			return func(prefix []int32) []float32 {
				row := f(prefix)
				for i := range row {
					row[i] *= 2
				}
				return row
			}
		}
		target := enginetest.New(t, vocab, scale(logits))
		draft := enginetest.New(t, vocab, like(scale(logits), vocab, seed+1000, r.Float32()))
		b := spec.Beams{Width: 1 + r.IntN(4), LengthPenalty: float64(r.IntN(3)), EarlyStopping: []string{"", spec.StopEarly, spec.StopNever}[r.IntN(3)]}
		b.DraftWidth = b.Width + r.IntN(4)
		set := Settings{K: r.IntN(5), Beams: &b, Lanes: 1 + r.IntN(3), PassTokens: 20}
		if seed%4 == 0 {
			set.Sampling = spec.Sampling{RepetitionPenalty: 1.2, NoRepeatNGramSize: 3, MinNewTokens: 2}
		}
		pair := Pair{Target: target, Draft: draft, Tokenizer: tok, EOS: []int32{eos}}
		prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
		prompts := [][]int32{prompt, append(slices.Clone(prompt[:6]), 1), prompt, {3}, {4, 4, 4}}
		if seed%3 == 0 {
			pair.Encoder = &Encoder{Start: []int32{0, 1}[:1+r.IntN(2)], Most: 500}
			b.Forced = len(pair.Encoder.Start) - 1
			target.Input, draft.Input = 4, 4
			for i := range prompts {
				prompts[i] = pair.Prompt([]int32{int32(i), 5, 6, 7})
			}
		}
		if seed%5 == 0 {
			target.Blocks = 8*b.Width + r.IntN(8) // enough for each search alone
			draft.Blocks = 12 + r.IntN(30)
		}
		var stop []string
		if seed%7 < 3 {
			stop = []string{"b", "hc", "fa"}[seed%7:]
		}
		const limit = 16
		e, err := New(t.Context(), pair, set)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range searchAll(t, e, prompts, limit, b.Width, stop...) {
			name := fmt.Sprintf("seed %d, prompt %d, %+v, K %d, %d lanes, stop %q", seed, i, b, set.K, set.Lanes, stop)
			want := reference(t, pair, target.Logits, set, prompts[i], limit, stop...)
			if len(got.found) != len(want.Found) {
				t.Fatalf("%s: %d found, want %d", name, len(got.found), len(want.Found))
			}
			for j, f := range want.Found {
				g := got.found[j]
				if g.Err != nil || g.Beam != j || !slices.Equal(g.Tokens, f.AppendTokens(nil)) || g.Score != f.Score || !slices.Equal(g.Logs, f.Logs()) || (g.Reason == FinishEOS || g.Reason == FinishStop) != f.Ended {
					t.Fatalf("%s: %d: %+v, want %v with %v", name, j, g, f.AppendTokens(nil), f.Score)
				}
				text, at := tok.Decode(g.Tokens, true), 0
				for _, x := range stop {
					if at = strings.Index(text, x); at >= 0 {
						break
					}
				}
				if (g.Reason == FinishStop) != (len(stop) > 0 && at >= 0) || g.Reason == FinishStop && (g.Text+g.Stop != text || !slices.Contains(stop, g.Stop)) {
					t.Fatalf("%s: %d: text %q, stop %q, reason %s; its tokens are %q", name, j, g.Text, g.Stop, g.Reason, text)
				}
				if g.Reason == FinishStop {
					stopped++
				}
			}
			at := len(prompts[i])
			for n, l := range got.loops {
				accepted += l.Accepted
				if len(l.Drafted) < min(set.K, limit-(at-len(prompts[i]))-1) {
					cut++ // for want of memory
				}
				if l.Position != at || l.Emitted != l.Accepted+1 || l.Accepted > len(l.Drafted) || len(l.Drafted) > set.K || l.Scored > b.Width+set.K*b.DraftWidth && target.Blocks == 0 {
					t.Fatalf("%s: loop %d: %+v %+v", name, n, l, l.Outcome)
				}
				at += l.Emitted
			}
			if at != len(prompts[i])+want.Steps() {
				t.Fatalf("%s: loops end at %d after %d steps", name, at, want.Steps())
			}
		}
		putBacks += e.putBacks
		e.Close()
		if len(target.Slots)+len(draft.Slots) > 0 || target.Used()+draft.Used() > 0 {
			t.Fatalf("seed %d: slots %v and %v are left", seed, target.Slots, draft.Slots)
		}
	}
	if accepted == 0 || putBacks == 0 || cut == 0 || stopped == 0 {
		t.Errorf("%d steps were accepted, %d searches put back, %d loops drafted less for want of memory, %d sequences stopped; none of these was tried otherwise", accepted, putBacks, cut, stopped)
	}
}

// No token of a tree is fed twice: what the target is fed is the prompt and each
// beam that it is asked about, once.
func TestBeamsAreFedOnce(t *testing.T) {
	tok, eos := enginetest.Letters(t, "abcdefgh")
	vocab := int(eos) + 1
	for _, k := range []int{0, 1, 3} {
		target := enginetest.New(t, vocab, enginetest.Hashed(vocab, 5))
		draft := enginetest.New(t, vocab, like(target.Logits, vocab, 6, 0.3))
		seen, now := map[string]int{}, map[string]bool{}
		target.Before = func() { clear(now) }
		target.Note = func(of ...any) {
			name := fmt.Sprint(of[1])
			if now[name] {
				t.Errorf("K %d: %s is scored twice in one pass", k, name)
			}
			now[name] = true
			seen[name]++
		}
		e, err := New(t.Context(), Pair{Target: target, Draft: draft, Tokenizer: tok, EOS: []int32{eos}}, Settings{K: k, Beams: &spec.Beams{Width: 3, DraftWidth: 4, LengthPenalty: 1}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		prompt := []int32{1, 2, 3, 4, 5}
		got := searchAll(t, e, [][]int32{prompt}, 20, 1)[0]
		fed, twice := len(prompt)-1, 0
		for _, l := range got.loops {
			fed += l.Scored
		}
		for _, n := range seen {
			if n > 1 {
				twice += n - 1
			}
		}
		// Behind a rejected step the next loop may draft again what was scored.
		if target.Fed != fed || target.Passes != len(got.loops)+1 || twice > 0 && k < 2 {
			t.Errorf("K %d: %d tokens in %d passes, of which %d are in %d loops; %d scored twice", k, target.Fed, target.Passes, fed, len(got.loops), twice)
		}
	}
}

func TestBeamsThatCannotBe(t *testing.T) {
	tok, eos := enginetest.Letters(t, "abcdefgh")
	vocab := int(eos) + 1
	model := enginetest.New(t, vocab, enginetest.Hashed(vocab, 5))
	pair := Pair{Target: model, Draft: model, Tokenizer: tok, EOS: []int32{eos}}
	law := pair
	law.Draft, law.Law = nil, spec.Uniform{Vocab: vocab}
	for _, c := range []struct {
		pair Pair
		set  Settings
	}{
		{law, Settings{K: 2, Beams: &spec.Beams{Width: 2}}},
		{pair, Settings{K: 2, Beams: &spec.Beams{Width: 5}}},
		{pair, Settings{K: 2, Beams: &spec.Beams{Width: 0}}},
		{pair, Settings{K: 2, Lanes: 2, AutoLanes: true, Beams: &spec.Beams{Width: 2}}},
		{pair, Settings{K: 2, Lookahead: spec.Lookahead{Kind: spec.AutoLookahead}, Beams: &spec.Beams{Width: 2}}},
	} {
		if e, err := New(t.Context(), c.pair, c.set); err == nil {
			e.Close()
			t.Errorf("%+v is taken", c.set)
		}
	}
}

// A row of logits that are no numbers fails its search, and no other.
func TestBeamsFail(t *testing.T) {
	tok, eos := enginetest.Letters(t, "abcdefgh")
	vocab := int(eos) + 1
	logits := enginetest.Hashed(vocab, 5)
	target := enginetest.New(t, vocab, func(prefix []int32) []float32 {
		row := logits(prefix)
		if prefix[0] == 7 && len(prefix) > 5 {
			row[2] = float32(math.NaN())
		}
		return row
	})
	e, err := New(t.Context(), Pair{Target: target, Draft: enginetest.New(t, vocab, logits), Tokenizer: tok, EOS: []int32{eos}}, Settings{K: 2, Lanes: 2, Beams: &spec.Beams{Width: 2, DraftWidth: 3}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	all := searchAll(t, e, [][]int32{{7, 1}, {1, 7}}, 9, 2)
	if len(all[0].found) != 2 || all[0].found[0].Err == nil || all[0].found[1].Err == nil || len(all[1].found) != 2 || all[1].found[0].Err != nil {
		t.Errorf("%+v", all)
	}
	// A pass that fails ends the step, and the engine goes on with others.
	target.Fail = context.DeadlineExceeded
	if err := e.Admit(Request{Prompt: []int32{1, 2}, Limit: 5}); err != nil {
		t.Fatal(err)
	}
	var failed error
	for e.Active() > 0 && failed == nil {
		failed = e.Step(t.Context())
	}
	if failed == nil {
		t.Error("the step of a pass that failed succeeds")
	}
	target.Fail = nil
	if again := searchAll(t, e, [][]int32{{1, 7}}, 9, 2); !slices.Equal(again[0].found[0].Tokens, all[1].found[0].Tokens) {
		t.Errorf("%v, before it was %v", again[0].found[0].Tokens, all[1].found[0].Tokens)
	}
}
