package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
)

// requestsOf are n sequences of all lengths, some with a common beginning.
func requestsOf(vocab, n int) []Request {
	r := rand.New(rand.NewPCG(7, 7))
	stem := make([]int32, 150)
	for i := range stem {
		stem[i] = r.Int32N(int32(vocab))
	}
	requests := make([]Request, n)
	for i := range requests {
		prompt := slices.Clone(stem[:[]int{1, 2, 9, 130, 150}[r.IntN(5)]])
		for range r.IntN(12) {
			prompt = append(prompt, r.Int32N(int32(vocab)))
		}
		requests[i] = Request{Prompt: prompt, Coins: spec.Coins{Row: uint64(i), Seed: 5}, Limit: 1 + r.IntN(40)}
	}
	return requests
}

// TestCompanyChangesNothing decodes the same sequences one after the other and
// in lanes, with every way of drafting: what each of them does is the same, loop
// by loop.
func TestCompanyChangesNothing(t *testing.T) {
	tok, eos := enginetest.Letters(t, "abcd")
	const vocab, context = 5, 180
	for _, d := range drafters {
		for _, lookahead := range []spec.Lookahead{{}, {Kind: spec.ConfidenceLookahead, Threshold: 0.3}} {
			for _, s := range []spec.Sampling{{Temperature: 1, PresencePenalty: 0.3}, {}} {
				var want string
				for _, lanes := range []int{1, 2, 5, 30} {
					pair := Pair{Target: enginetest.New(t, vocab, enginetest.Hashed(vocab, 1)), Tokenizer: tok, EOS: []int32{eos}}
					pair.Target.(*enginetest.Model).Length = context
					if d.model {
						draft := enginetest.New(t, vocab, similar(vocab, 1, 0.5))
						draft.Length = context - 10
						pair.Draft = draft
					}
					if d.law != nil {
						pair.Law = d.law(t, vocab)
					}
					e, err := New(t.Context(), pair, Settings{K: 4, Lookahead: lookahead, Sampling: s, Lanes: lanes})
					if err != nil {
						t.Fatal(err)
					}
					got, most := "", 0
					for _, r := range decodeAll(t, e, requestsOf(vocab, 24)...) {
						for i := range r.loops {
							l := &r.loops[i]
							most = max(most, l.Lanes)
							l.Lanes, l.Draft, l.Score, l.Sample = 0, 0, 0, 0
							got += fmt.Sprintf("%+v %+v\n", *l, *l.Outcome)
							l.Outcome = nil
						}
						got += fmt.Sprintf("%v %s %q\n", r.tokens, r.reason, r.text)
					}
					e.Close()
					got = addresses.ReplaceAllString(got, "")
					if lanes == 1 {
						want = got
					}
					if got != want {
						t.Fatalf("%s/%s/%v: %d lanes decode otherwise than one", d.name, lookahead.Kind, s.Temperature, lanes)
					}
					if most < map[int]int{1: 1, 2: 2, 5: 4, 30: 12}[lanes] { // many end early
						t.Errorf("%s: of %d lanes %d are used", d.name, lanes, most)
					}
				}
			}
		}
	}
}

// TestLawInCompany computes the exact law of one sequence's completions while
// others, whose coins are fixed, share its lanes and a policy chooses by
// everything that all of them show.
func TestLawInCompany(t *testing.T) {
	tok, _ := enginetest.Letters(t, "ab")
	const vocab, limit = 2, 4
	prompt := []int32{0, 1, 0}
	q, p := remembered(enginetest.Hashed(vocab, 5)), remembered(enginetest.Hashed(vocab, 6))
	for name, policy := range map[string]func() spec.Policy{
		"fixed":  nil,
		"lively": func() spec.Policy { return &lively{most: 3, seen: 1 << 21} },
	} {
		got := spectest.Law(func(u *spectest.Coins) string {
			time := &enginetest.Clock{}
			target, draft := enginetest.New(t, vocab, q), enginetest.New(t, vocab, p)
			target.Clock, target.Cost, target.Note = time, costing(10, 1), u.Note
			draft.Clock, draft.Cost, draft.Note = time, costing(1, 1), u.Note
			e, err := newAt(t.Context(), Pair{Target: target, Draft: draft, Tokenizer: tok}, Settings{K: 2, Lanes: 2, Sampling: spec.Sampling{Temperature: 1}}, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if policy != nil {
				e.policy = policy()
			}
			all, err := e.DrawAll(t.Context(), []Request{
				{Prompt: []int32{1, 1}, Coins: spec.Coins{Row: 1}, Limit: 3},
				{Prompt: prompt, Coins: u, Limit: limit},
				{Prompt: []int32{0, 1}, Coins: spec.Coins{Row: 2}, Limit: 5},
			})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(all[1])
		})
		t.Log(name, len(got))
		sameLaw(t, got, targetsLaw(t, enginetest.Hashed(vocab, 5), vocab, spec.Sampling{Temperature: 1}, -1, prompt, limit))
	}
}

// TestSamplesShareOnePrefill: the samples of a prompt cost one prefill, whether
// they follow one another or run side by side, and prompts that begin alike
// share their beginning.
func TestSamplesShareOnePrefill(t *testing.T) {
	tok, _ := enginetest.Letters(t, "ab")
	const vocab, length = 3, 256
	prompt := make([]int32, length)
	other := append(slices.Clone(prompt[:200]), slices.Repeat([]int32{1}, 56)...)
	for _, lanes := range []int{1, 4, 16} {
		target, draft := enginetest.New(t, vocab, enginetest.Hashed(vocab, 1)), enginetest.New(t, vocab, enginetest.Hashed(vocab, 2))
		e, err := New(t.Context(), Pair{Target: target, Draft: draft, Tokenizer: tok}, Settings{K: 4, Lanes: lanes, Sampling: spec.Sampling{Temperature: 1}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		prefilled := 0
		var requests []Request
		for i := range 20 {
			r := Request{Prompt: prompt, Coins: spec.Coins{Row: uint64(i)}, Limit: 1}
			if i >= 16 {
				r.Prompt = other
			}
			requests = append(requests, r)
		}
		var scored int
		for i := range requests {
			requests[i].Loop = func(*Loop) error { scored++; return nil } // a loop with room for none
		}
		if _, err := e.DrawAll(t.Context(), requests); err != nil {
			t.Fatal(err)
		}
		prefilled = target.Fed - scored
		if want := length - 1 + 56; prefilled > want || draft.Fed > want {
			t.Errorf("%d lanes: %d and %d tokens are prefilled, want %d", lanes, prefilled, draft.Fed, want)
		}
	}
}

// TestLongPromptsHoldNobodyUp: between the chunks of a long prompt the others go
// on.
func TestLongPromptsHoldNobodyUp(t *testing.T) {
	tok, _ := enginetest.Letters(t, "ab")
	const vocab = 3
	target := enginetest.New(t, vocab, enginetest.Hashed(vocab, 1))
	e, err := New(t.Context(), Pair{Target: target, Tokenizer: tok}, Settings{Lanes: 2, Sampling: spec.Sampling{Temperature: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	loops, fed, longest := 0, 0, 0
	admit := func(length, limit int) {
		if err := e.Admit(Request{Prompt: make([]int32, length), Coins: spec.Coins{Row: uint64(length)}, Limit: limit, Loop: func(l *Loop) error {
			if length == 2 {
				loops++
				longest, fed = max(longest, target.Fed-fed), target.Fed
			}
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
	}
	admit(2, 200)
	for range 5 {
		if err := e.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	admit(2000, 5)
	for e.Active() > 0 {
		if err := e.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if loops != 200 || longest > DefaultPassTokens {
		t.Errorf("%d loops; between two of them %d tokens are fed", loops, longest)
	}
}

// TestOneBadSequence: numbers that are none fail the sequence that they belong
// to; its company goes on as if it had not been there.
func TestOneBadSequence(t *testing.T) {
	tok, _ := enginetest.Letters(t, "abc")
	const vocab = 4
	for _, where := range []string{"target", "draft"} {
		poison := func(good func([]int32) []float32) func([]int32) []float32 {
			return func(prefix []int32) []float32 {
				l := slices.Clone(good(prefix))
				if prefix[0] == 3 && len(prefix) > 6 {
					l[1] = float32(math.NaN())
				}
				return l
			}
		}
		q, p := enginetest.Hashed(vocab, 1), enginetest.Hashed(vocab, 2)
		if where == "target" {
			q = poison(q)
		} else {
			p = poison(p)
		}
		var want [][]int32
		for _, company := range []bool{false, true} {
			e, err := New(t.Context(), Pair{Target: enginetest.New(t, vocab, q), Draft: enginetest.New(t, vocab, p), Tokenizer: tok}, Settings{K: 3, Lanes: 3, Sampling: spec.Sampling{Temperature: 1}})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			var got [][]int32
			var failed error
			add := func(first int32) {
				if err := e.Admit(Request{Prompt: []int32{first, 0}, Coins: spec.Coins{Row: uint64(first)}, Limit: 20, Done: func(s *Sequence) error {
					if first == 3 {
						failed = s.Err
					} else {
						got = append(got, slices.Clone(s.Tokens))
					}
					return nil
				}}); err != nil {
					t.Fatal(err)
				}
			}
			add(1)
			if company {
				add(3)
			}
			add(2)
			for e.Active() > 0 {
				if err := e.Step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if company == (failed == nil) {
				t.Errorf("%s: the bad sequence ends with %v", where, failed)
			}
			slices.SortFunc(got, slices.Compare)
			if want == nil {
				want = got
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: in bad company %v, else %v", where, got, want)
			}
		}
	}
}

// addresses are what %+v prints of pointers.
var addresses = regexp.MustCompile("0x[0-9a-f]+")
