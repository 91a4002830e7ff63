package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// pressed are set-ups in which cache blocks run short.
type pressed struct {
	draft     bool
	law       spec.Drafter
	lookahead spec.Lookahead
	lanes     int
	budget    int
	target    int // blocks
	drafts    int
	refuse    func() bool // of both models
}

const pressedVocab = 5

// open makes the engine and its models.
func (p pressed) open(t *testing.T) (*Engine, []*enginetest.Model) {
	t.Helper()
	tok, _ := enginetest.Letters(t, "abcd")
	target := enginetest.New(t, pressedVocab, enginetest.Hashed(pressedVocab, 1))
	models := []*enginetest.Model{target}
	pair := Pair{Target: target, Law: p.law, Tokenizer: tok}
	if p.draft {
		draft := enginetest.New(t, pressedVocab, similar(pressedVocab, 1, 0.5))
		draft.Blocks, draft.Refuse = p.drafts, p.refuse
		pair.Draft, models = draft, append(models, draft)
	}
	target.Blocks, target.Refuse = p.target, p.refuse
	e, err := New(t.Context(), pair, Settings{
		K: 4, Lookahead: p.lookahead, Sampling: spec.Sampling{Temperature: 1, PresencePenalty: 0.3}, Lanes: p.lanes, PassTokens: p.budget,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e, models
}

// decode returns what became of every request, loop by loop, and how often
// one was put back.
func (p pressed) decode(t *testing.T, requests []Request) (string, int) {
	t.Helper()
	e, models := p.open(t)
	var got strings.Builder
	for _, r := range decodeAll(t, e, requests...) {
		at := -1
		for i := range r.loops {
			l := &r.loops[i]
			if l.Position <= at {
				t.Fatalf("the loop at %d is told of after one at %d", l.Position, at)
			}
			at = l.Position
			l.Lanes, l.Draft, l.Score, l.Sample = 0, 0, 0, 0
			fmt.Fprintf(&got, "%d %d %v %+v\n", l.Position, l.K, l.Drafted, *l.Outcome)
		}
		fmt.Fprintf(&got, "%v %s %q\n", r.tokens, r.reason, r.text)
	}
	e.Close()
	for _, m := range models {
		if m.Used() != 0 || len(m.Slots) != 0 {
			t.Errorf("%d blocks and %d slots are left", m.Used(), len(m.Slots))
		}
	}
	return got.String(), e.putBacks
}

// crowd are sequences of all lengths up to 40 tokens, some with a common
// beginning and some samples of one prompt.
func crowd(n int) []Request {
	r := rand.New(rand.NewPCG(3, 3))
	stem := make([]int32, 18)
	for i := range stem {
		stem[i] = r.Int32N(4)
	}
	requests := make([]Request, n)
	for i := range requests {
		prompt := slices.Clone(stem[:[]int{1, 3, 9, 17, 18}[r.IntN(5)]])
		if i%3 > 0 {
			for range r.IntN(4) {
				prompt = append(prompt, r.Int32N(4))
			}
		}
		requests[i] = Request{Prompt: prompt, Coins: spec.Coins{Row: uint64(i), Seed: 5}, Limit: 1 + r.IntN(18)}
	}
	return requests
}

// TestLackOfBlocksChangesNothing decodes the same sequences in pools of every
// size from that of one sequence up: who waits and who is put back follows from
// the pool, and what comes out does not, loop by loop.
func TestLackOfBlocksChangesNothing(t *testing.T) {
	const n, most = 14, 12 // blocks of the longest sequence, with its loop
	for _, c := range []struct {
		name string
		pressed
	}{
		{"ars", pressed{}},
		{"model", pressed{draft: true}},
		{"model, confidence", pressed{draft: true, lookahead: spec.Lookahead{Kind: spec.ConfidenceLookahead, Threshold: 0.3}}},
		{"lookup", pressed{law: spec.Lookup{Vocab: pressedVocab, N: 3}}},
		{"model+lookup", pressed{draft: true, law: spec.Lookup{Vocab: pressedVocab, N: 3}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.lanes = 1
			want, alone := c.decode(t, crowd(n))
			putBacks := 0
			for _, lanes := range []int{3, n} {
				for _, budget := range []int{0, 5} {
					for blocks := most; blocks < 3*most; blocks += 3 {
						p := c.pressed
						p.lanes, p.budget, p.target, p.drafts = lanes, budget, blocks, max(most, blocks-blocks%5)
						got, again := p.decode(t, crowd(n))
						if got != want {
							t.Fatalf("%d lanes over %d blocks decode otherwise", lanes, blocks)
						}
						putBacks += again
					}
				}
			}
			if alone != 0 || putBacks < 20 {
				t.Errorf("sequences were put back %d times, alone %d times", putBacks, alone)
			}
		})
	}
}

// TestReserveFailsAtEveryMoment: each single refusal of blocks, of either model,
// changes nothing of what comes out.
func TestReserveFailsAtEveryMoment(t *testing.T) {
	for _, draft := range []bool{false, true} {
		p := pressed{draft: draft, lanes: 5}
		asked := 0
		p.refuse = func() bool { asked++; return false }
		want, _ := p.decode(t, crowd(8))
		moments := asked
		for moment := range moments {
			for _, times := range []int{1, 3} {
				asked = 0
				p.refuse = func() bool { asked++; return asked > moment && asked <= moment+times }
				if got, _ := p.decode(t, crowd(8)); got != want {
					t.Fatalf("draft %v: with %d refusals from moment %d of %d on, other tokens come out", draft, times, moment, moments)
				}
			}
		}
		if moments < 40 {
			t.Errorf("only %d moments", moments)
		}
	}
}

// TestTooLongForTheCache: a sequence that does not fit alone fails by name; the
// others go on.
func TestTooLongForTheCache(t *testing.T) {
	p := pressed{draft: true, lanes: 3, target: 6, drafts: 6}
	e, _ := p.open(t)
	defer e.Close()
	var failed, ended int
	requests := []Request{
		{Prompt: make([]int32, 5), Limit: 6}, {Prompt: make([]int32, 40), Limit: 5}, {Prompt: []int32{1, 2}, Limit: 60}, {Prompt: []int32{2}, Limit: 8},
	}
	for i := range requests {
		requests[i].Coins = spec.Coins{Row: uint64(i)}
		requests[i].Done = func(s *Sequence) error {
			if ended++; s.Err != nil {
				failed++
				if !strings.Contains(s.Err.Error(), "does not fit into the target's cache, which has room for 24") {
					t.Error(s.Err)
				}
			}
			return nil
		}
	}
	for next := 0; next < len(requests) || e.Active() > 0; {
		for ; next < len(requests) && e.Free() > 0; next++ {
			if err := e.Admit(requests[next]); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if failed == 0 || failed > 2 || ended != 4 {
		t.Errorf("%d of %d sequences failed", failed, ended)
	}
}

// TestDraftWithoutRoom: where the draft's cache is too small for a single
// sequence, decoding goes on without drafts.
func TestDraftWithoutRoom(t *testing.T) {
	p := pressed{draft: true, lanes: 2, drafts: 2}
	e, models := p.open(t)
	defer e.Close()
	for i, r := range decodeAll(t, e, Request{Prompt: []int32{1, 2}, Coins: spec.Coins{}, Limit: 30}, Request{Prompt: make([]int32, 30), Coins: spec.Coins{Row: 1}, Limit: 30}) {
		if len(r.tokens) == 0 {
			t.Errorf("sequence %d has no tokens", i)
		}
	}
	if models[1].Used() > 2 {
		t.Errorf("%d blocks are used", models[1].Used())
	}
}

// TestLawUnderPressure computes the exact distribution of one sequence's
// completions while others come and go, blocks are short, and every sequence has
// a lookahead of its own that follows from all that was seen.
func TestLawUnderPressure(t *testing.T) {
	tok, _ := enginetest.Letters(t, "ab")
	const vocab, limit = 2, 4
	prompt := []int32{0, 1, 0}
	q, p := remembered(enginetest.Hashed(vocab, 5)), remembered(enginetest.Hashed(vocab, 6))
	put, ragged := 0, 0
	got := spectest.Law(func(u *spectest.Coins) string {
		time := &enginetest.Clock{}
		target, draft := enginetest.New(t, vocab, q), enginetest.New(t, vocab, p)
		target.Clock, target.Cost, target.Note, target.Blocks = time, costing(10, 1), u.Note, 4
		draft.Clock, draft.Cost, draft.Note, draft.Blocks = time, costing(1, 1), u.Note, 4
		e, err := newAt(t.Context(), Pair{Target: target, Draft: draft, Tokenizer: tok}, Settings{K: 2, Lanes: 3, Sampling: spec.Sampling{Temperature: 1}}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		e.policy = &lively{most: 2, seen: 1 << 21}
		var ks [3]int
		count := func(i int) func(*Loop) error {
			return func(l *Loop) error {
				if ks[i] = l.K; l.Lanes > 1 && ks[0] != ks[1] {
					ragged++
				}
				return nil
			}
		}
		all, err := e.DrawAll(t.Context(), []Request{
			{Prompt: []int32{1, 1}, Coins: spec.Coins{Row: 1}, Limit: 3, Loop: count(0)},
			{Prompt: prompt, Coins: u, Limit: limit, Loop: count(1)},
			{Prompt: []int32{0, 1}, Coins: spec.Coins{Row: 2}, Limit: 5, Loop: count(2)},
		})
		if err != nil {
			t.Fatal(err)
		}
		put += e.putBacks
		return fmt.Sprint(all[1])
	})
	sameLaw(t, got, targetsLaw(t, enginetest.Hashed(vocab, 5), vocab, spec.Sampling{Temperature: 1}, -1, prompt, limit))
	if ragged == 0 {
		t.Error("all sequences had one lookahead")
	}
	if put == 0 {
		t.Error("no sequence was put back")
	}
}

// TestTimesAddUp: what all sequences were billed is the time that passed, and no
// sequence is billed for more than its time on the clock.
func TestTimesAddUp(t *testing.T) {
	tok, eos := enginetest.Letters(t, "abcd")
	for _, lanes := range []int{1, 4} {
		clock := &enginetest.Clock{}
		target, draft := enginetest.New(t, 5, enginetest.Hashed(5, 1)), enginetest.New(t, 5, similar(5, 1, 0.5))
		target.Clock, target.Cost = clock, costing(10, 1)
		draft.Clock, draft.Cost = clock, costing(3, 1)
		e, err := newAt(t.Context(), Pair{Target: target, Draft: draft, Tokenizer: tok, EOS: []int32{eos}}, Settings{K: 3, Lanes: lanes, Sampling: spec.Sampling{Temperature: 1}}, clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		began, loops := clock.Now(), time.Duration(0)
		var prefill, decode time.Duration
		requests := requestsOf(5, 12)
		for i := range requests {
			var parts time.Duration
			requests[i].Loop = func(l *Loop) error {
				clock.At = clock.At.Add(time.Millisecond) // writing the log
				parts += l.Draft + l.Score + l.Sample
				return nil
			}
			requests[i].Done = func(s *Sequence) error {
				if s.Prefill+s.Decode > s.Latency {
					t.Errorf("%d lanes: %v and %v are billed for %v on the clock", lanes, s.Prefill, s.Decode, s.Latency)
				}
				if parts > s.Decode {
					t.Errorf("%d lanes: the parts of the loops, %v, are more than %v", lanes, parts, s.Decode)
				}
				prefill, decode, loops = prefill+s.Prefill, decode+s.Decode, loops+parts
				return nil
			}
		}
		if _, err := e.DrawAll(t.Context(), requests); err != nil {
			t.Fatal(err)
		}
		if took := clock.Now().Sub(began); prefill+decode != took || loops == 0 || prefill == 0 {
			t.Errorf("%d lanes: %v of prompts and %v of loops do not make the %v that passed", lanes, prefill, decode, took)
		}
	}
}
