package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

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

// models are what an engine under test decodes with.
type models struct{ target, draft *enginetest.Model }

func testEngine(t testing.TB, mode Mode) (*engine.Engine, models) {
	tok, eos := enginetest.Letters(t, "ab")
	m := models{target: enginetest.New(t, 3, enginetest.Hashed(3, 1))}
	pair := engine.Pair{Target: m.target, Tokenizer: tok, EOS: []int32{eos}}
	if mode == SpS {
		m.draft = enginetest.New(t, 3, enginetest.Hashed(3, 2))
		pair.Draft = m.draft
	}
	e, err := engine.New(t.Context(), pair, engine.Settings{K: 3, Sampling: spec.Sampling{Temperature: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return e, m
}

// TestReplayIsByteEqual decodes a shard twice, the second time with an engine
// that has other rows behind it and in another order of rows.
func TestReplayIsByteEqual(t *testing.T) {
	rows := []storage.ShardRow{{Row: 4, ID: "x", Prompt: []byte("abba")}, {Row: 5, ID: "y", Prompt: []byte("bb")}, {Row: 6, ID: "z", Prompt: []byte("bb")}}
	for _, mode := range []Mode{ArS, SpS} {
		var want, again shardLog
		e, _ := testEngine(t, mode)
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

// TestLatencyHoldsAllTimes: a row's time on the clock is never less than what was
// spent on it, also where it had the worker to itself.
func TestLatencyHoldsAllTimes(t *testing.T) {
	rows := []storage.ShardRow{{Row: 0, Prompt: bytes.Repeat([]byte("abba"), 2000)}, {Row: 1, Prompt: []byte("bb")}, {Row: 2, Null: true}}
	for _, mode := range []Mode{ArS, SpS} {
		e, _ := testEngine(t, mode)
		defer e.Close()
		var log shardLog
		if err := decodeShard(t.Context(), e, newShardRun(testTask(mode, rows...), "w", &log, nil)); err != nil {
			t.Fatal(err)
		}
		for _, c := range log.completions {
			if c.TotalNS != c.PrefillNS+c.DecodeNS || c.LatencyNS < c.TotalNS {
				t.Errorf("%s row %d sample %d: %d ns of prompt and %d of loops make %d, within %d", mode, c.Row, c.Sample, c.PrefillNS, c.DecodeNS, c.TotalNS, c.LatencyNS)
			}
			if parts := c.DraftNS + c.ScoreNS + c.SampleNS; parts > c.DecodeNS {
				t.Errorf("%s row %d: the parts of its loops, %d ns, are more than %d", mode, c.Row, parts, c.DecodeNS)
			}
		}
	}
}

// TestRowsThatCannotBeDecoded: each becomes a row with an error, and the rest
// of the shard is as it would have been without it.
func TestRowsThatCannotBeDecoded(t *testing.T) {
	for _, mode := range []Mode{ArS, SpS} {
		e, m := testEngine(t, mode)
		defer e.Close()
		m.target.Length = 40
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
	e, m := testEngine(t, SpS)
	defer e.Close()
	good := enginetest.Hashed(3, 1)
	target := m.target
	target.Logits = func(prefix []int32) []float32 {
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
	target.Fail = errors.New("device lost")
	if err := decodeShard(t.Context(), e, newShardRun(testTask(SpS, rows...), "w", &log, nil)); !errors.Is(err, target.Fail) {
		t.Errorf("error %v, want %v", err, target.Fail)
	}
	target.Fail = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := decodeShard(ctx, e, newShardRun(testTask(SpS, rows...), "w", &log, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

// TestEveryDrafterReplays: under fixed and confidence a shard is the same
// again, whatever the engine decoded before.
func TestEveryDrafterReplays(t *testing.T) {
	tok, eos := enginetest.Letters(t, "ab")
	rows := []storage.ShardRow{{Row: 4, Prompt: []byte("abba")}, {Row: 5, Prompt: []byte("bb")}, {Row: 6, Prompt: []byte("bb")}}
	table := func() spec.Drafter {
		trainer, err := spec.NewNGramTrainer(3, 3)
		if err != nil {
			t.Fatal(err)
		}
		if err := trainer.Add([]int32{0, 1, 1, 0, 2, 1, 0, 0, 1, 0, 1, 2}); err != nil {
			t.Fatal(err)
		}
		return trainer.Table(spec.Digest{}).Drafter()
	}()
	for _, d := range []struct {
		name  string
		model bool
		law   spec.Drafter
	}{
		{"model", true, nil},
		{"ngram", false, table},
		{"lookup", false, spec.Lookup{Vocab: 3, N: 3}},
		{"uniform", false, spec.Uniform{Vocab: 3}},
		{"model+ngram", true, table},
		{"model+lookup", true, spec.Lookup{Vocab: 3, N: 3}},
		{"model+uniform", true, spec.Uniform{Vocab: 3}},
	} {
		for _, lookahead := range []spec.Lookahead{{}, {Kind: spec.ConfidenceLookahead, Threshold: 0.4}} {
			pair := engine.Pair{Target: enginetest.New(t, 3, enginetest.Hashed(3, 1)), Law: d.law, Tokenizer: tok, EOS: []int32{eos}}
			if d.model {
				pair.Draft = enginetest.New(t, 3, enginetest.Hashed(3, 2))
			}
			e, err := engine.New(t.Context(), pair, engine.Settings{K: 3, Lookahead: lookahead, Sampling: spec.Sampling{Temperature: 1}})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			var logs [2]shardLog
			for i, order := range [][]int{{0, 1, 2}, {2, 0, 1}} {
				for _, row := range order {
					if err := decodeShard(t.Context(), e, newShardRun(testTask(SpS, rows[row]), "w", &logs[i], nil)); err != nil {
						t.Fatal(err)
					}
				}
				slices.SortStableFunc(logs[i].completions, func(a, b storage.Completion) int { return int(a.Row - b.Row) })
				slices.SortStableFunc(logs[i].loops, func(a, b storage.Loop) int { return int(a.Row - b.Row) })
			}
			if a, b := logs[0].timeless(), logs[1].timeless(); a != b {
				t.Errorf("%s/%s: a second run differs:\n%s\n%s", d.name, lookahead.Kind, a, b)
			}
		}
	}
}
