package engine

import (
	"math"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/spec"
)

// withdrawing is a drafter that drops what it drew where its law gave that
// little: K chosen after seeing the draw.
type withdrawing struct{ drafter }

func (w withdrawing) draw(d *proposal) error {
	err := w.drafter.draw(d)
	if d.least < 0.5 {
		d.tokens = d.tokens[:len(d.tokens)-1]
	}
	return err
}

// TestChoosingAfterTheDrawIsBiased guards the instrument, and shows what
// policies must not do: the same threshold is lossless where the token is kept
// (confidence) and biased where it is withdrawn.
func TestChoosingAfterTheDrawIsBiased(t *testing.T) {
	c := trial{
		vocab: 2, limit: 3, prompt: []int32{0, 1, 0}, model: true,
		settings: Settings{K: 2, Sampling: spec.Sampling{Temperature: 1}},
		change:   func(e *Engine) { e.lanes[0].drafter = withdrawing{e.lanes[0].drafter} },
	}
	if d := distance(c.lawOf(t), c.want(t)); d < 0.01 {
		t.Errorf("withdrawn drafts pass for the target to within %g", d)
	}
	c.change, c.settings.Lookahead = nil, spec.Lookahead{Kind: spec.ConfidenceLookahead, Threshold: 0.5}
	if d := distance(c.lawOf(t), c.want(t)); d > 1e-9 {
		t.Errorf("kept drafts are biased by %g", d)
	}
}

// TestConfidenceStops: every drafted token but the last of a loop that fell
// short has at least the threshold's probability, also where greedy decoding
// makes it certain.
func TestConfidenceStops(t *testing.T) {
	tok, eos := enginetest.Letters(t, "abcdefgh")
	const vocab, k, x = 9, 5, 0.3
	for _, temperature := range []float64{1, 0} {
		draft := enginetest.New(t, vocab, enginetest.Hashed(vocab, 6))
		r := decodeSettings(t, Pair{Target: enginetest.New(t, vocab, enginetest.Hashed(vocab, 5)), Draft: draft, Tokenizer: tok, EOS: []int32{eos}},
			Settings{K: k, Lookahead: spec.Lookahead{Kind: spec.ConfidenceLookahead, Threshold: x}, Sampling: spec.Sampling{Temperature: temperature}}, 400)
		chain, err := spec.NewChain(spec.Sampling{Temperature: 1}, vocab, nil)
		if err != nil {
			t.Fatal(err)
		}
		short, full, at := 0, 0, 0
		var p spec.Dist
		for _, l := range r.loops {
			prefix := append([]int32{0}, r.tokens[:at]...)
			for i, id := range l.Drafted {
				if err := chain.Standardize(draft.Logits(prefix), prefix, &p); err != nil {
					t.Fatal(err)
				}
				sure, last := p.Prob(id) >= x, i == len(l.Drafted)-1
				if !sure && !last || sure && last && len(l.Drafted) < k && id != eos && at+k < 400 {
					t.Errorf("temperature %v: loop at %d drafts %v: token %d has probability %.3f", temperature, l.Position, l.Drafted, i, p.Prob(id))
				}
				prefix = append(prefix, id)
			}
			if len(l.Drafted) < k {
				short++
			} else {
				full++
			}
			if l.K != k || len(l.P) != len(l.Drafted) {
				t.Errorf("K %d, %d drafted, %d of them verified", l.K, len(l.Drafted), len(l.P))
			}
			at += l.Emitted
		}
		if short == 0 || full == 0 && temperature == 1 {
			t.Errorf("temperature %v: %d loops fell short, %d did not", temperature, short, full)
		}
	}
}

// decodeSettings decodes until limit from the prompt 0, ends of sequences
// ignored.
func decodeSettings(t testing.TB, pair Pair, s Settings, limit int) ran {
	t.Helper()
	e, err := New(t.Context(), pair, s)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return continueWith(t, e, []int32{0}, spec.Coins{Seed: 3}, limit)
}

func continueWith(t testing.TB, e *Engine, prompt []int32, coins spec.Uniforms, limit int) ran {
	t.Helper()
	e.pair.EOS = nil
	return decodeAll(t, e, Request{Prompt: prompt, Coins: coins, Limit: limit})[0]
}

// similar gives the logits of a hashed model, bent by a little of another's.
func similar(vocab int, seed uint64, bend float32) func([]int32) []float32 {
	a, b := enginetest.Hashed(vocab, seed), enginetest.Hashed(vocab, seed+1)
	return func(prefix []int32) []float32 {
		l, more := a(prefix), b(prefix)
		for i := range l {
			l[i] += bend * more[i]
		}
		return l
	}
}

// TestAutoInTheLoop runs auto under a clock that passes with what the models
// are fed: it drafts where that pays, does without where it does not, and then
// spares the draft the prompts too.
func TestAutoInTheLoop(t *testing.T) {
	tok, _ := enginetest.Letters(t, "abcdefgh")
	const vocab, limit = 8, 120
	for _, c := range []struct {
		name  string
		draft func([]int32) []float32
		cost  func(int) time.Duration // of the draft; the target takes 10 + 1 a token
		least float64                 // drafted tokens a loop
		most  float64
	}{
		{"good and cheap", similar(vocab, 5, 0.2), costing(0, 1), 2.5, 8},
		{"good and dear", similar(vocab, 5, 0.2), costing(9, 1), 0, 0.1},
		{"bad and cheap", enginetest.Hashed(vocab, 77), costing(1, 1), 0, 3},
		{"slower than the target", similar(vocab, 5, 0.2), costing(40, 1), 0, 0.05},
	} {
		t.Run(c.name, func(t *testing.T) {
			time := &enginetest.Clock{}
			target, draft := enginetest.New(t, vocab, enginetest.Hashed(vocab, 5)), enginetest.New(t, vocab, c.draft)
			target.Clock, target.Cost = time, costing(10, 1)
			draft.Clock, draft.Cost = time, c.cost
			e, err := newAt(t.Context(), Pair{Target: target, Draft: draft, Tokenizer: tok}, Settings{K: 8, Lookahead: spec.Lookahead{Kind: spec.AutoLookahead}, Sampling: spec.Sampling{Temperature: 1}}, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			draft.Fed = 0 // for measuring
			loops, drafted, asked := 0, 0, 0
			for sample := range uint32(20) {
				r := continueWith(t, e, append(make([]int32, 50), int32(sample%vocab)), spec.Coins{Sample: sample}, limit)
				if len(r.tokens) != limit {
					t.Fatalf("%d tokens", len(r.tokens))
				}
				for _, l := range r.loops {
					if len(l.Drafted) > l.K || l.K > 8 {
						t.Fatalf("asked for %d, drafted %d", l.K, len(l.Drafted))
					}
					if sample >= 5 { // it has found its way
						loops, drafted, asked = loops+1, drafted+len(l.Drafted), asked+l.K
					}
				}
			}
			if mean := float64(drafted) / float64(loops); mean < c.least || mean > c.most || asked != drafted {
				t.Errorf("%.2f drafted a loop, want %v to %v; asked for %d, drafted %d", mean, c.least, c.most, asked, drafted)
			}
			if fed := float64(draft.Fed) / 20; c.most < 1 && fed > 40 {
				t.Errorf("a draft that is of no use is fed %.0f tokens a sequence", fed)
			}
		})
	}
}

// waking drafts in bursts, with long pauses in which the draft falls behind.
type waking struct{ loops, every, lag int }

func (w *waking) Begin(*spec.Lane) bool { return false }
func (w *waking) Next(lanes []*spec.Lane, _ int) {
	w.loops++
	for _, l := range lanes {
		if w.lag = max(w.lag, l.Lag); w.loops%w.every < 3 {
			l.K = 2
		}
	}
}
func (w *waking) Width(most int) int               { return most }
func (w *waking) Costs() *spec.Costs               { return nil }
func (w *waking) More(float64) bool                { return true }
func (w *waking) Observe([]*spec.Lane, spec.Round) {}

// TestDraftCatchesUp: a draft that was left behind is fed what it lacks once,
// in passes no longer than the prefill's, and drafts as if it had never been.
func TestDraftCatchesUp(t *testing.T) {
	tok, _ := enginetest.Letters(t, "ab")
	const vocab = 3
	for _, every := range []int{4, 10, 400} {
		for _, nested := range []bool{false, true} {
			longest := 0
			target := enginetest.New(t, vocab, enginetest.Hashed(vocab, 1))
			draft := enginetest.New(t, vocab, enginetest.Hashed(vocab, 2))
			draft.Clock, draft.Cost = &enginetest.Clock{}, func(tokens int) time.Duration { longest = max(longest, tokens); return 0 }
			pair := Pair{Target: target, Draft: draft, Tokenizer: tok}
			if nested {
				pair.Law = spec.Uniform{Vocab: vocab}
			}
			e, err := New(t.Context(), pair, Settings{K: 2, Sampling: spec.Sampling{Temperature: 1}})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			policy := &waking{every: every}
			e.policy = policy
			r := continueWith(t, e, make([]int32, 300), spec.Coins{}, 900)
			loops := 0 // that drafted
			for _, l := range r.loops {
				if len(l.Drafted) > 0 {
					loops++
				}
			}
			// Beyond the sequence itself, a loop feeds at most its drafts, an inner
			// loop its own besides.
			if draft.Fed > 300+900+5*loops || loops < 5 {
				t.Errorf("every %d: fed %d tokens in %d loops", every, draft.Fed, loops)
			}
			if longest > DefaultPassTokens+4 || every == 400 && longest < DefaultPassTokens {
				t.Errorf("every %d: the longest pass feeds %d tokens", every, longest)
			}
			if every == 400 && policy.lag < 290 {
				t.Errorf("the policy was told of %d tokens to catch up on", policy.lag)
			}
		}
	}
}

// TestAlphaOfEveryDrafter measures alpha through the loop: the mean overlap and
// the count of accepted tokens agree, a better drafter has a higher one, and an
// inner drafter leaves the draft model's as it is.
func TestAlphaOfEveryDrafter(t *testing.T) {
	tok, _ := enginetest.Letters(t, "abcdefgh")
	const vocab = 8
	// The target has habits that a table can learn: it looks at two tokens.
	q := func(prefix []int32) []float32 { return enginetest.Hashed(vocab, 5)(prefix[max(0, len(prefix)-2):]) }
	p := func(prefix []int32) []float32 { return similar(vocab, 5, 0.3)(prefix[max(0, len(prefix)-2):]) }
	trainer, err := spec.NewNGramTrainer(3, vocab)
	if err != nil {
		t.Fatal(err)
	}
	if err := trainer.Add(decodeSettings(t, Pair{Target: enginetest.New(t, vocab, q), Tokenizer: tok}, Settings{Sampling: spec.Sampling{Temperature: 1}}, 3000).tokens); err != nil {
		t.Fatal(err)
	}
	table := trainer.Table(spec.Digest{})
	alpha := map[string]float64{}
	for _, d := range []struct {
		name  string
		model bool
		law   spec.Drafter
	}{
		{"model", true, nil},
		{"ngram", false, table.Drafter()},
		{"lookup", false, spec.Lookup{Vocab: vocab, N: 4}},
		{"uniform", false, spec.Uniform{Vocab: vocab}},
		{"model+ngram", true, table.Drafter()},
		{"model+lookup", true, spec.Lookup{Vocab: vocab, N: 4}},
		{"model+uniform", true, spec.Uniform{Vocab: vocab}},
	} {
		draft := enginetest.New(t, vocab, p)
		pair := Pair{Target: enginetest.New(t, vocab, q), Law: d.law, Tokenizer: tok}
		if d.model {
			pair.Draft = draft
		}
		r := decodeSettings(t, pair, Settings{K: 4, Sampling: spec.Sampling{Temperature: 1}}, 3000)
		overlap, accepted, n, drafted := 0.0, 0.0, 0.0, 0
		for _, l := range r.loops {
			drafted += len(l.Drafted)
			for i := range l.Coins {
				overlap += l.Overlap[i]
				n++
			}
			accepted += float64(l.Accepted)
		}
		alpha[d.name] = overlap / n
		t.Logf("%-14s alpha %.3f, accepted of examined %.3f, %d drafted in %d passes of the draft", d.name, overlap/n, accepted/n, drafted, draft.Passes)
		if se := math.Sqrt(0.25 / n); math.Abs(accepted/n-overlap/n) > 4*se {
			t.Errorf("%s: alpha %.3f by overlap, %.3f by count", d.name, overlap/n, accepted/n)
		}
		if d.model && d.law != nil && draft.Passes >= drafted {
			t.Errorf("%s: %d passes of the draft for %d drafted tokens", d.name, draft.Passes, drafted)
		}
		if d.model && math.Abs(overlap/n-alpha["model"]) > 0.03 {
			t.Errorf("%s: alpha %.3f, the model's alone is %.3f", d.name, overlap/n, alpha["model"])
		}
	}
	if !(alpha["model"] > alpha["ngram"] && alpha["ngram"] > alpha["uniform"] && alpha["lookup"] > 0) {
		t.Errorf("alphas %v", alpha)
	}
}
