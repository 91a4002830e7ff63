package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/spec/spectest"
	"github.com/draftmill/draftmill/storage"
)

// TestDecodeHasTheTargetsLaw integrates over every coin of whole completions,
// through the production loop with its caches and roll-backs, and compares
// their law with the target's, exactly. End-of-sequence cuts some of them.
func TestDecodeHasTheTargetsLaw(t *testing.T) {
	tok, eos := letters(t, "ab")
	const vocab, limit = 3, 3
	prompt := []int32{0, 1}
	for name, s := range map[string]spec.Sampling{
		"plain":  {Temperature: 1},
		"top-p":  {Temperature: 0.8, TopP: 0.8},
		"greedy": {},
	} {
		for k := range 4 {
			t.Run(fmt.Sprintf("%s/k%d", name, k), func(t *testing.T) {
				q, p := hashed(vocab, 5), hashed(vocab, 6)
				law := spectest.Law(func(u *spectest.Coins) string {
					target, draft := newScripted(t, vocab, q), newScripted(t, vocab, p)
					target.note, draft.note = u.Note, u.Note
					pair := Pair{Target: target, Draft: draft, Tokenizer: tok, EOS: []int32{eos}}
					return fmt.Sprint(decodeOnce(t, pair, k, s, u, prompt, nil, limit).tokens)
				})
				sameLaw(t, law, targetsLaw(t, q, vocab, s, eos, prompt, limit))
			})
		}
	}
}

// TestWhereACompletionEnds has both models recite a text, so that every
// drafted token is accepted, and ends it inside an accepted run.
func TestWhereACompletionEnds(t *testing.T) {
	tok, eos := letters(t, "abcdefgh\n")
	ids := func(text string) []int32 {
		out, err := tok.EncodePlain(text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		recite []int32
		stop   []string
		limit  int
		k      int
		tokens int
		text   string
		reason string
		by     string
		last   int // tokens that the last loop kept
	}{
		{"eos inside the accepted run", append(ids("abc"), eos, 0, 0), nil, 100, 4, 4, "abc", storage.FinishEOS, "", 4},
		{"eos as the bonus token", append(ids("abcd"), eos), nil, 100, 4, 5, "abcd", storage.FinishEOS, "", 5},
		{"eos first", []int32{eos}, nil, 100, 4, 1, "", storage.FinishEOS, "", 1},
		{"stop inside the accepted run", ids("ab\ncdefgh"), []string{"\nc"}, 100, 4, 4, "ab", storage.FinishStop, "\nc", 4},
		{"stop across two loops", ids("abcd\n\nefgh"), []string{"\n\n"}, 100, 4, 6, "abcd", storage.FinishStop, "\n\n", 1},
		{"the earlier stop wins", ids("abcdef"), []string{"cd", "bcd"}, 100, 4, 4, "a", storage.FinishStop, "bcd", 4},
		{"the stop that is complete first", ids("abcdef"), []string{"b", "bc", "abc"}, 100, 0, 2, "a", storage.FinishStop, "b", 1},
		{"limit inside a loop", ids("abcdefgh"), nil, 6, 4, 6, "abcdef", storage.FinishLength, "", 1},
		{"limit of one", ids("abcdefgh"), nil, 1, 4, 1, "a", storage.FinishLength, "", 1},
		{"no lookahead", ids("abcdefgh"), []string{"gh"}, 100, 0, 8, "abcdef", storage.FinishStop, "gh", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			const vocab = 10
			prompt := ids("hh")
			pair := Pair{
				Target:    newScripted(t, vocab, reciting(vocab, len(prompt), c.recite)),
				Draft:     newScripted(t, vocab, reciting(vocab, len(prompt), c.recite)),
				Tokenizer: tok, EOS: []int32{eos},
			}
			r := decodeOnce(t, pair, c.k, spec.Sampling{Temperature: 1}, spec.Coins{}, prompt, c.stop, c.limit)
			if len(r.tokens) != c.tokens || r.text != c.text || r.reason != c.reason || r.stop != c.by {
				t.Errorf("%d tokens, %q, %s by %q; want %d, %q, %s by %q", len(r.tokens), r.text, r.reason, r.stop, c.tokens, c.text, c.reason, c.by)
			}
			emitted := 0
			for _, l := range r.loops {
				emitted += l.Emitted
			}
			if last := r.loops[len(r.loops)-1]; emitted != len(r.tokens) || last.Emitted != c.last {
				t.Errorf("loops keep %d of %d tokens, the last one %d; want %d", emitted, len(r.tokens), last.Emitted, c.last)
			}
		})
	}
}

// TestNothingIsFedTwice: a loop feeds the target its K+1 tokens and the draft
// one more than it drafts, and the samples of a prompt share its prefill.
func TestNothingIsFedTwice(t *testing.T) {
	tok, _ := letters(t, "ab")
	const vocab, k, limit = 3, 4, 50
	target, draft := newScripted(t, vocab, hashed(vocab, 1)), newScripted(t, vocab, hashed(vocab, 2))
	prompt := make([]int32, 300)
	e, err := NewEngine(t.Context(), Pair{Target: target, Draft: draft, Tokenizer: tok}, Settings{K: k, Sampling: spec.Sampling{Temperature: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for sample := range uint32(3) {
		target.fed, draft.fed = 0, 0
		scored, drafted := 0, 0
		if sample == 0 { // the prefill
			scored, drafted = len(prompt)-1, len(prompt)-1
		}
		if _, err := e.DrawAll(t.Context(), []Request{{Prompt: prompt, Coins: spec.Coins{Sample: sample}, Limit: limit, Loop: func(l *Loop) error {
			scored += max(2, len(l.Drafted)+1)
			if len(l.Drafted) > 0 {
				drafted += len(l.Drafted) + 1
			}
			return nil
		}}}); err != nil {
			t.Fatal(err)
		}
		if target.fed != scored || draft.fed != drafted {
			t.Errorf("sample %d: fed %d and %d tokens, want %d and %d", sample, target.fed, draft.fed, scored, drafted)
		}
	}
}

// TestContexts: the target's context ends a completion; a smaller one of the
// draft only ends the drafting.
func TestContexts(t *testing.T) {
	tok, _ := letters(t, "ab")
	const vocab = 3
	prompt := []int32{0, 1, 0, 1, 0}
	for _, c := range []struct{ target, draft, tokens int }{{12, 100, 7}, {30, 11, 25}, {30, 3, 25}, {6, 6, 1}} {
		target, draft := newScripted(t, vocab, hashed(vocab, 1)), newScripted(t, vocab, hashed(vocab, 2))
		target.context, draft.context = c.target, c.draft
		r := decodeOnce(t, Pair{Target: target, Draft: draft, Tokenizer: tok}, 4, spec.Sampling{Temperature: 1}, spec.Coins{}, prompt, nil, 1000)
		if len(r.tokens) != c.tokens || r.reason != storage.FinishLength {
			t.Errorf("contexts %d and %d: %d tokens, %s", c.target, c.draft, len(r.tokens), r.reason)
		}
	}
}

// TestOneTokenPrompt: there is nothing to prefill, and the draft's first step
// has one token to feed.
func TestOneTokenPrompt(t *testing.T) {
	tok, _ := letters(t, "ab")
	pair := Pair{Target: newScripted(t, 3, hashed(3, 1)), Draft: newScripted(t, 3, hashed(3, 2)), Tokenizer: tok}
	r := decodeOnce(t, pair, 3, spec.Sampling{Temperature: 1}, spec.Coins{}, []int32{1}, nil, 20)
	if len(r.tokens) != 20 {
		t.Errorf("%v", r)
	}
}

func TestEngineRefusesAnotherVocabulary(t *testing.T) {
	tok, _ := letters(t, "ab")
	target := newScripted(t, 3, hashed(3, 1))
	_, err := NewEngine(t.Context(), Pair{Target: target, Draft: newScripted(t, 4, hashed(4, 2)), Tokenizer: tok}, Settings{K: 3})
	if err == nil {
		t.Error("a draft of another vocabulary is taken")
	}
	if len(target.slots) != 0 {
		t.Error("the target's slot is not given back")
	}
}

// shardLog collects what decoding a shard writes.
type shardLog struct {
	completions []storage.Completion
	loops       []storage.Loop
}

func (l *shardLog) AddCompletion(c storage.Completion) error {
	l.completions = append(l.completions, c)
	return nil
}

func (l *shardLog) AddLoop(r storage.Loop) error {
	r.Drafted, r.P, r.Q = slices.Clone(r.Drafted), slices.Clone(r.P), slices.Clone(r.Q)
	r.Coins, r.Overlap = slices.Clone(r.Coins), slices.Clone(r.Overlap)
	l.loops = append(l.loops, r)
	return nil
}

// timeless drops what may differ from run to run.
func (l *shardLog) timeless() string {
	for i := range l.completions {
		c := &l.completions[i]
		c.PrefillNS, c.DecodeNS, c.DraftNS, c.ScoreNS, c.SampleNS, c.TotalNS, c.LatencyNS = 0, 0, 0, 0, 0, 0, 0
	}
	for i := range l.loops {
		r := &l.loops[i]
		r.DraftNS, r.ScoreNS, r.SampleNS = 0, 0, 0
	}
	return fmt.Sprintf("%+v %+v", l.completions, l.loops)
}

func testTask(mode Mode, rows ...storage.ShardRow) *task {
	return &task{mode: mode, rows: rows, job: Job{
		Name: "test", Modes: []Mode{ArS, SpS}, ShardRows: 10, Target: Model{}, Draft: &Model{}, K: 3,
		Sampling: spec.Sampling{Temperature: 1}, Seed: 7, Samples: 2, MaxNewTokens: 30, Stop: []string{"abab"},
	}}
}

func testEngine(t testing.TB, mode Mode) *Engine {
	tok, eos := letters(t, "ab")
	pair := Pair{Target: newScripted(t, 3, hashed(3, 1)), Tokenizer: tok, EOS: []int32{eos}}
	if mode == SpS {
		pair.Draft = newScripted(t, 3, hashed(3, 2))
	}
	e, err := NewEngine(t.Context(), pair, Settings{K: 3, Sampling: spec.Sampling{Temperature: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestReplayIsByteEqual decodes a shard twice, the second time with an engine
// that has other rows behind it and in another order of rows.
func TestReplayIsByteEqual(t *testing.T) {
	rows := []storage.ShardRow{{Row: 4, ID: "x", Prompt: []byte("abba")}, {Row: 5, ID: "y", Prompt: []byte("bb")}, {Row: 6, ID: "z", Prompt: []byte("bb")}}
	for _, mode := range []Mode{ArS, SpS} {
		var want, again shardLog
		e := testEngine(t, mode)
		defer e.Close()
		if err := decodeShard(t.Context(), e, newShardRun(testTask(mode, rows...), "w", &want, nil)); err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{2, 0, 1} {
			if err := decodeShard(t.Context(), e, newShardRun(testTask(mode, rows[i]), "w", &again, nil)); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortStableFunc(again.completions, func(a, b storage.Completion) int { return int(a.Row - b.Row) })
		slices.SortStableFunc(again.loops, func(a, b storage.Loop) int { return int(a.Row - b.Row) })
		if want.timeless() != again.timeless() {
			t.Errorf("%s: a second run differs:\n%s\n%s", mode, want.timeless(), again.timeless())
		}
		coin := map[string]string{} // the accept coins of every sequence's first loop
		for _, l := range want.loops {
			if l.Loop > 0 || mode == ArS {
				continue
			}
			id, coins := fmt.Sprint(l.Row, l.Sample), fmt.Sprint(l.Coins)
			if other, ok := coin[coins]; ok {
				t.Errorf("%s and %s share their coins %s", other, id, coins)
			}
			coin[coins] = id
		}
	}
}

// TestRowsThatCannotBeDecoded: each becomes a row with an error, and the rest
// of the shard is as it would have been without it.
func TestRowsThatCannotBeDecoded(t *testing.T) {
	for _, mode := range []Mode{ArS, SpS} {
		e := testEngine(t, mode)
		defer e.Close()
		e.pair.Target.(*scripted).context = 40
		long := make([]byte, 40)
		for i := range long {
			long[i] = 'a'
		}
		var log shardLog
		if err := decodeShard(t.Context(), e, newShardRun(testTask(mode,
			storage.ShardRow{Row: 0, Null: true},
			storage.ShardRow{Row: 1},
			storage.ShardRow{Row: 2, Prompt: []byte("a\xffb")},
			storage.ShardRow{Row: 3, Prompt: long},
			storage.ShardRow{Row: 4, Prompt: []byte("ab")},
		), "w", &log, nil)); err != nil {
			t.Fatal(err)
		}
		want := []string{"the prompt is null", "the prompt is empty", "the prompt is not valid UTF-8", "the prompt has 40 tokens and leaves no room in the target's context of 40", ""}
		for i, c := range log.completions {
			if c.Error != want[i/2] || (c.FinishReason == storage.FinishError) != (c.Error != "") {
				t.Errorf("row %d: error %q, finish reason %q", c.Row, c.Error, c.FinishReason)
			}
		}
		if len(log.completions) != 10 {
			t.Errorf("%d completions, want 10", len(log.completions))
		}
	}
}

// TestNumbersThatAreNone: NaN among the logits fails the row by name; a
// failing model fails the shard.
func TestNumbersThatAreNone(t *testing.T) {
	e := testEngine(t, SpS)
	defer e.Close()
	good := hashed(3, 1)
	target := e.pair.Target.(*scripted)
	target.logits = func(prefix []int32) []float32 {
		l := good(prefix)
		if prefix[0] == 1 && len(prefix) > 4 {
			l[2] = float32(math.NaN())
		}
		return l
	}
	var log shardLog
	rows := []storage.ShardRow{{Row: 0, Prompt: []byte("ba")}, {Row: 1, Prompt: []byte("ab")}}
	if err := decodeShard(t.Context(), e, newShardRun(testTask(SpS, rows...), "w", &log, nil)); err != nil {
		t.Fatal(err)
	}
	if c := log.completions[0]; c.FinishReason != storage.FinishError || c.Error == "" {
		t.Errorf("a row with NaN logits ends by %s: %q", c.FinishReason, c.Error)
	}
	if c := log.completions[2]; c.FinishReason == storage.FinishError {
		t.Errorf("the row after it fails too: %q", c.Error)
	}
	target.fail = errors.New("device lost")
	if err := decodeShard(t.Context(), e, newShardRun(testTask(SpS, rows...), "w", &log, nil)); !errors.Is(err, target.fail) {
		t.Errorf("error %v, want %v", err, target.fail)
	}
	target.fail = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := decodeShard(ctx, e, newShardRun(testTask(SpS, rows...), "w", &log, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
