package replay

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/pipeline/verify"
	"github.com/draftmill/draftmill/pipeline/verify/verifytest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func rule(t testing.TB, name string) spec.Rule {
	t.Helper()
	r, err := spec.ParseRule(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What is at hand for a replay.
const (
	targetAlone = false
	withDraft   = true
)

// held replays a job of verifytest.
func held(t testing.TB, folder *storage.Job, draft bool) (*Counts, error) {
	t.Helper()
	var job pipeline.Job
	if err := json.Unmarshal(folder.Spec(), &job); err != nil {
		t.Fatal(err)
	}
	pair := verifytest.Pair(t, &job, pipeline.SpS)
	if !draft {
		pair.Draft, pair.Law = nil, nil
	}
	_, n, err := Job(t.Context(), folder, &verifytest.Prompts{}, Options{Pair: pair, Tie: DefaultTie})
	return n, err
}

// TestJobsHold: what the engine writes is what the models say, without a tie,
// whatever the rule and what drafts.
func TestJobsHold(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*pipeline.Job)
		alone  bool // the target alone draws every token of both modes
		nested bool // and even the draft model does not draw what is drafted
	}{
		"rejection":      {func(*pipeline.Job) {}, false, false},
		"greedy":         {func(j *pipeline.Job) { j.Sampling = spec.Sampling{} }, true, false},
		"untruncated":    {func(j *pipeline.Job) { j.Sampling = spec.Sampling{Temperature: 1.5} }, false, false},
		"top-k":          {func(j *pipeline.Job) { j.Sampling = spec.Sampling{Temperature: 2, TopK: 3} }, false, false},
		"penalties":      {func(j *pipeline.Job) { j.Sampling.RepetitionPenalty, j.Sampling.MinNewTokens = 1.3, 3 }, false, false},
		"coupled":        {func(j *pipeline.Job) { j.Rule = rule(t, "coupled") }, true, false},
		"coupled auto":   {func(j *pipeline.Job) { j.Rule, j.Lookahead = rule(t, "coupled"), "auto" }, true, false},
		"coupled greedy": {func(j *pipeline.Job) { j.Rule, j.Sampling = rule(t, "coupled"), spec.Sampling{} }, true, false},
		"coupled nested": {func(j *pipeline.Job) {
			j.Rule, j.Drafter = rule(t, "coupled"), &pipeline.Drafter{Kind: pipeline.DrafterUniform}
		}, true, false},
		"match":          {func(j *pipeline.Job) { j.Rule = rule(t, "match") }, true, false},
		"lenient":        {func(j *pipeline.Job) { j.Rule = rule(t, "lenient:0.4") }, false, false},
		"capped":         {func(j *pipeline.Job) { j.Rule = rule(t, "capped:0.6") }, false, false},
		"lenient greedy": {func(j *pipeline.Job) { j.Rule, j.Sampling = rule(t, "lenient:0.4"), spec.Sampling{} }, false, false},
		"nested":         {func(j *pipeline.Job) { j.Drafter = &pipeline.Drafter{Kind: pipeline.DrafterUniform} }, false, true},
		"look-up": {func(j *pipeline.Job) {
			j.Draft, j.Drafter = nil, &pipeline.Drafter{Kind: pipeline.DrafterLookup, N: 2}
		}, false, false},
		"context": {func(j *pipeline.Job) { j.Context = 20 }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			job := verifytest.Job()
			c.change(&job)
			folder := verifytest.Decoded(t, job, -1)
			for _, draft := range []bool{targetAlone, withDraft} {
				n, err := held(t, folder, draft)
				if err != nil {
					t.Fatalf("draft %v: %v", draft, err)
				}
				if n.Drafts != draft || len(n.Ties) > 0 {
					t.Errorf("draft %v: %+v", draft, n)
				}
				ars, sps := n.Modes[0], n.Modes[1]
				if want := c.alone || draft && !c.nested; (sps.Believed == 0) != want || ars.Believed != 0 {
					t.Errorf("draft %v: %+v", draft, n.Modes)
				}
				for _, m := range n.Modes {
					if m.Completions != int64(len(verifytest.Texts)*job.Samples) || m.Errors < 3 || m.Tokens == 0 || m.Drawn+m.Believed != m.Tokens || m.Ties != 0 {
						t.Errorf("draft %v: %+v", draft, m)
					}
				}
			}
		})
	}
}

// edit is a change of a log that keeps it consistent with itself.
type edit struct {
	name   string
	rule   string
	draft  bool // it takes what drafts to find it
	change func(t *testing.T, all verifytest.Content)
	want   string
}

// some returns a completion of a mode that did not fail and has so many tokens,
// and its loops.
func some(t *testing.T, all verifytest.Content, mode string, ok func(*storage.Completion, []*storage.Loop) bool) (*storage.Completion, []*storage.Loop) {
	t.Helper()
	for _, p := range all[mode] {
		for i := range p.Completions {
			c := &p.Completions[i]
			var loops []*storage.Loop
			for j := range p.Loops {
				if l := &p.Loops[j]; l.Row == c.Row && l.Sample == c.Sample {
					loops = append(loops, l)
				}
			}
			if c.FinishReason == storage.FinishLength && ok(c, loops) {
				return c, loops
			}
		}
	}
	t.Fatal("the test job has no such completion")
	return nil, nil
}

// text makes the completion's text that of its tokens.
func text(t *testing.T, c *storage.Completion) {
	job := verifytest.Job()
	pair := verifytest.Pair(t, &job, pipeline.ArS)
	end := engine.End(pair.Tokenizer, pair.EOS, job.Stop, len(c.Tokens), c.Tokens)
	if end.Tokens != len(c.Tokens) {
		t.Fatal("the edit ends the completion; choose another")
	}
	c.Completion = end.Text
}

// other is a letter that makes none of the stop sequences.
func other(x int32) int32 {
	if x == 7 {
		return 6
	}
	return 7
}

// TestEdits: a log is changed so that its own arithmetic holds still and every
// digest is made anew: verify finds nothing, the replay does.
func TestEdits(t *testing.T) {
	lastOf := func(kind string) func(*storage.Completion, []*storage.Loop) bool {
		return func(c *storage.Completion, loops []*storage.Loop) bool {
			return slices.ContainsFunc(loops, func(l *storage.Loop) bool { return whole(c, l) && l.Kind == kind })
		}
	}
	token := func(mode, kind string) func(*testing.T, verifytest.Content) {
		return func(t *testing.T, all verifytest.Content) {
			c, loops := some(t, all, mode, lastOf(kind))
			l := loops[slices.IndexFunc(loops, func(l *storage.Loop) bool { return whole(c, l) && l.Kind == kind })]
			at := int(l.Position-c.PromptTokens) + int(l.Accepted)
			l.Token = other(l.Token)
			if int(l.Accepted) < len(l.Drafted) && l.Drafted[l.Accepted] == l.Token {
				l.Token = 5
			}
			c.Tokens[at] = l.Token
			text(t, c)
		}
	}
	accepted := func(t *testing.T, all verifytest.Content) {
		ok := func(c *storage.Completion, l *storage.Loop) bool { return whole(c, l) && l.Accepted > 0 }
		c, loops := some(t, all, "sps", func(c *storage.Completion, loops []*storage.Loop) bool {
			return slices.ContainsFunc(loops, func(l *storage.Loop) bool { return ok(c, l) })
		})
		l := loops[slices.IndexFunc(loops, func(l *storage.Loop) bool { return ok(c, l) })]
		l.Drafted[0] = other(l.Drafted[0])
		c.Tokens[l.Position-c.PromptTokens] = l.Drafted[0]
		// A coin of the noise is the token's own.
		coins := spec.Coins{Seed: 11, Row: uint64(l.Row), Sample: uint32(l.Sample)}
		if len(l.Chance) > 0 {
			l.Coins[0] = rule(t, "coupled").Coin(coins, int(l.Position), l.Drafted[0])
		}
		text(t, c)
	}
	for _, e := range []edit{
		{"a token of ars", "", targetAlone, token("ars", storage.KindBonus), "the target draws"},
		{"a bonus token", "", targetAlone, token("sps", storage.KindBonus), "the target draws"},
		{"a recovered token", "", withDraft, token("sps", storage.KindRecovered), "the target draws"},
		{"a recovered token, coupled", "coupled", targetAlone, token("sps", storage.KindRecovered), "the target draws"},
		{"a recovered token, match", "match", targetAlone, token("sps", storage.KindRecovered), "the target draws"},
		{"an accepted token", "", targetAlone, accepted, "its q is"},
		{"an accepted token, coupled", "coupled", targetAlone, accepted, "the target draws"},
		{"a drafted token that was rejected, with its p and q", "coupled", withDraft, func(t *testing.T, all verifytest.Content) {
			_, loops := some(t, all, "sps", lastOf(storage.KindRecovered))
			l := loops[slices.IndexFunc(loops, func(l *storage.Loop) bool { return l.Kind == storage.KindRecovered })]
			l.P[l.Accepted] = math.Min(1, l.P[l.Accepted]*1.1)
			l.Chance[l.Accepted] = 0
			l.Overlap[l.Accepted] = min(l.Overlap[l.Accepted], 1-math.Abs(l.P[l.Accepted]-l.Q[l.Accepted]))
		}, "its p is"},
		{"a faked error", "", targetAlone, func(t *testing.T, all verifytest.Content) {
			for _, p := range all["ars"] {
				for i := range p.Completions {
					c := &p.Completions[i]
					if c.FinishReason != storage.FinishLength {
						continue
					}
					c.FinishReason, c.Error, c.Tokens, c.Completion = storage.FinishError, "the prompt is empty", nil, ""
					c.CompletionTokens, c.Loops, c.DraftNS, c.ScoreNS, c.SampleNS = 0, 0, 0, 0, 0
					row, sample := c.Row, c.Sample
					p.Loops = slices.DeleteFunc(p.Loops, func(l storage.Loop) bool { return l.Row == row && l.Sample == sample })
					return
				}
			}
		}, "it is said to have failed"},
		{"an error's words", "", targetAlone, func(t *testing.T, all verifytest.Content) {
			for _, m := range all {
				for _, p := range m {
					for i := range p.Completions {
						if c := &p.Completions[i]; c.Error == "the prompt is null" {
							c.Error = "the prompt is empty"
							return
						}
					}
				}
			}
		}, "its error is"},
	} {
		t.Run(e.name, func(t *testing.T) {
			job := verifytest.Job()
			job.Rule, job.ShardRows = rule(t, e.rule), len(verifytest.Texts)
			folder := verifytest.Decoded(t, job, -1)
			was := verifytest.Load(t, folder)
			all := was.Clone()
			e.change(t, all)
			again := verifytest.Rewritten(t, folder, was, all)
			if _, err := verify.Job(again, verify.Options{}); err != nil {
				t.Fatalf("the edit is not consistent: %v", err)
			}
			if e.draft == targetAlone {
				_, err := held(t, again, targetAlone)
				wantFailure(t, err, e.want)
			}
			_, err := held(t, again, withDraft)
			wantFailure(t, err, e.want)
		})
	}
}

// whole reports whether the loop is not the last of its completion.
func whole(c *storage.Completion, l *storage.Loop) bool {
	return int(l.Position-c.PromptTokens)+int(l.Accepted)+1 < len(c.Tokens)
}

func wantFailure(t *testing.T, err error, want string) {
	t.Helper()
	var f *verify.Failure
	if !errors.As(err, &f) || !strings.Contains(err.Error(), want) {
		t.Errorf("the replay says %v; want %q", err, want)
	}
}

// TestText: a text that is not that of its tokens is found by the tokenizer, with
// no model.
func TestText(t *testing.T) {
	job := verifytest.Job()
	folder := verifytest.Decoded(t, job, -1)
	was := verifytest.Load(t, folder)
	all := was.Clone()
	c, _ := some(t, all, "sps", func(c *storage.Completion, _ []*storage.Loop) bool { return true })
	c.Completion = "h" + c.Completion[1:]
	if c.Completion == was["sps"][0].Completions[0].Completion {
		t.Fatal("the edit changes nothing")
	}
	again := verifytest.Rewritten(t, folder, was, all)
	if _, err := verify.Job(again, verify.Options{}); err != nil {
		t.Fatal(err)
	}
	pair := verifytest.Pair(t, &job, pipeline.ArS)
	_, err := verify.Job(again, verify.Options{Tokenizer: pair.Tokenizer, EOS: pair.EOS})
	wantFailure(t, err, "its text differs")
}

// TestRowRemoved: the last row is taken out of every table, and plan and digests
// are made anew.
func TestRowRemoved(t *testing.T) {
	job := verifytest.Job()
	job.ShardRows = len(verifytest.Texts) - 1 // the last row is a shard of its own
	folder := verifytest.Decoded(t, job, -1)
	for _, mode := range []string{"ars", "sps"} {
		for _, name := range []string{"completions/mode=" + mode + "/part-00001.parquet", "loops/mode=" + mode + "/part-00001.parquet", "_shards/mode=" + mode + "/part-00001.json"} {
			if err := os.Remove(filepath.Join(folder.Dir(), name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := filepath.Join(folder.Dir(), "_plan.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	short := strings.Replace(strings.Replace(string(data), `"rows": 11`, `"rows": 10`, 1), `"shards": 2`, `"shards": 1`, 1)
	if err := os.WriteFile(path, []byte(short), 0o600); err != nil || short == string(data) {
		t.Fatalf("%v: %s", err, data)
	}
	again, err := storage.OpenJob(folder.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(folder.Dir(), "manifest.json")); err != nil {
		t.Fatal(err)
	}
	if done, err := again.Finalize(t.Context()); err != nil || !done {
		t.Fatal(err)
	}
	if _, err := verify.Job(again, verify.Options{}); err != nil {
		t.Fatal(err)
	}
	_, err = held(t, again, targetAlone)
	wantFailure(t, err, "it plans 10 rows, the dataset gives 11")
}

// TestTies: models that are off by less than a tie are forgiven, and counted; by
// more they are not.
func TestTies(t *testing.T) {
	for _, name := range []string{"coupled", "match", "rejection"} {
		for _, sampling := range []spec.Sampling{{}, {Temperature: 0.9, TopP: 0.9}} {
			job := verifytest.Job()
			job.Rule, job.Sampling, job.Samples = rule(t, name), sampling, 8
			folder := verifytest.Decoded(t, job, -1)
			pair := verifytest.Pair(t, &job, pipeline.SpS)
			_, n, err := Job(t.Context(), folder, &verifytest.Prompts{}, Options{Pair: shaken(pair, 0.03), Tie: 0.3})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if !sampling.Greedy() && n.Modes[0].Ties+n.Modes[1].Ties == 0 || n.Modes[0].Ties > n.Modes[0].Tokens/5 {
				t.Errorf("%s: %+v", name, n)
			}
			if _, _, err = Job(t.Context(), folder, &verifytest.Prompts{}, Options{Pair: shaken(pair, 2), Tie: 0.3}); err == nil {
				t.Errorf("%s: other models are not noticed", name)
			}
		}
	}
}

// shaking adds to every logit a number of its own, up to by.
type shaking struct {
	engine.Decoder
	by float32
}

func shaken(p engine.Pair, by float32) engine.Pair {
	p.Target, p.Draft = shaking{p.Target, by}, shaking{p.Draft, by}
	return p
}

func (s shaking) Forward(ctx context.Context, spans []engine.Span) ([]float32, error) {
	logits, err := s.Decoder.Forward(ctx, spans)
	for i := range logits {
		logits[i] += s.by * float32(math.Sin(float64(i)*12.9898+float64(logits[i])*78.233))
	}
	return logits, err
}

// TestLikelihoods against the softmax of each row, fed one token a pass.
func TestLikelihoods(t *testing.T) {
	job := verifytest.Job()
	job.Sampling = spec.Sampling{Temperature: 0.7, TopK: 4}
	folder := verifytest.Decoded(t, job, -1)
	var all []storage.Completion
	for _, p := range verifytest.Load(t, folder)["sps"] {
		all = append(all, p.Completions...)
	}
	all = slices.DeleteFunc(all, func(c storage.Completion) bool { return strings.Contains(c.Error, "prompt") || c.Row == 4 })
	slices.SortStableFunc(all, func(a, b storage.Completion) int { return int(a.Row - b.Row) })
	pair := verifytest.Pair(t, &job, pipeline.ArS)
	scores, err := Likelihoods(t.Context(), &job, &verifytest.Prompts{}, pair, all, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(scores) != len(all) || len(scores) < 10 {
		t.Fatalf("%d scores of %d completions", len(scores), len(all))
	}
	logits := pair.Target.(*enginetest.Model).Logits
	for i, c := range all {
		prefix, err := pair.Tokenizer.Encode(verifytest.Texts[c.Row])
		if err != nil {
			t.Fatal(err)
		}
		want := 1.0
		for _, x := range c.Tokens {
			row, sum := logits(prefix), 0.0
			for _, l := range row {
				sum += math.Exp(float64(l))
			}
			want *= math.Pow(math.Exp(float64(row[x]))/sum, 1/float64(len(c.Tokens)))
			prefix = append(prefix, x)
		}
		if s := scores[i]; s.Row != c.Row || s.Sample != c.Sample || math.Abs(s.Score-want) > 1e-9 {
			t.Errorf("%+v, want %v", s, want)
		}
	}
	if _, err := Likelihoods(t.Context(), &job, &verifytest.Prompts{}, pair, []storage.Completion{{Row: 99, Tokens: []int32{1}}}, nil); err == nil {
		t.Error("a completion of no row is not noticed")
	}
}
