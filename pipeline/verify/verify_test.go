package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/verify/verifytest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestJobsHold: what the pipeline writes replays, and the job of these tests
// has every kind of row in it.
func TestJobsHold(t *testing.T) {
	for name, change := range map[string]func(*pipeline.Job){
		"sampled": func(*pipeline.Job) {},
		"greedy":  func(j *pipeline.Job) { j.Sampling = spec.Sampling{} },
		"one":     func(j *pipeline.Job) { j.MaxNewTokens, j.K = 1, 1 },
		"top-k":   func(j *pipeline.Job) { j.Sampling = spec.Sampling{Temperature: 2, TopK: 3} },
		"sps":     func(j *pipeline.Job) { j.Modes = j.Modes[1:] },

		"match":          func(j *pipeline.Job) { j.Rule = rule("match") },
		"lenient":        func(j *pipeline.Job) { j.Rule = rule("lenient:0.4") },
		"capped":         func(j *pipeline.Job) { j.Rule = rule("capped:0.6") },
		"lenient greedy": func(j *pipeline.Job) { j.Rule, j.Sampling = rule("lenient:0.4"), spec.Sampling{} },
		"match greedy":   func(j *pipeline.Job) { j.Rule, j.Sampling = rule("match"), spec.Sampling{} },
		"auto":           func(j *pipeline.Job) { j.Lookahead = "auto" },
		"confidence":     func(j *pipeline.Job) { j.Lookahead = "confidence:0.3" },
		"uniform greedy": func(j *pipeline.Job) {
			j.Draft, j.Drafter, j.Sampling = nil, &pipeline.Drafter{Kind: pipeline.DrafterUniform}, spec.Sampling{}
		},
		"look-up": func(j *pipeline.Job) {
			j.Draft, j.Drafter = nil, &pipeline.Drafter{Kind: pipeline.DrafterLookup, N: 2}
		},
		"hierarchy": func(j *pipeline.Job) { j.Drafter = &pipeline.Drafter{Kind: pipeline.DrafterUniform} },
		"context":   func(j *pipeline.Job) { j.Context = 20 },
		"penalties": func(j *pipeline.Job) { j.Sampling.RepetitionPenalty, j.Sampling.MinNewTokens = 1.3, 3 },
	} {
		t.Run(name, func(t *testing.T) {
			job := verifytest.Job()
			change(&job)
			folder := verifytest.Decoded(t, job, -1)
			counts, err := Job(folder, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !counts.Complete || counts.Rows != int64(len(verifytest.Texts)) || counts.Shards != 3*len(job.Modes) || counts.Files != 2*counts.Shards {
				t.Errorf("%+v", counts)
			}
			for i, m := range counts.Modes {
				if m.Mode != job.Modes[i] || m.Completions != int64(len(verifytest.Texts)*job.Samples) || m.Errors < 3 || m.Tokens == 0 || m.Loops == 0 {
					t.Errorf("%+v", m)
				}
				if spec := m.Mode == pipeline.SpS && job.MaxNewTokens > 1; spec != (m.Examined > 0) || m.Accepted > m.Examined || m.Examined > m.Drafted {
					t.Errorf("%+v", m)
				}
			}
		})
	}
	reasons, kinds := map[string]int{}, map[string]int{}
	context := 0
	for mode, shards := range verifytest.Load(t, verifytest.Decoded(t, verifytest.Job(), -1)) {
		for _, p := range shards {
			for _, c := range p.Completions {
				reasons[c.FinishReason]++
				if c.FinishReason == storage.FinishLength && len(c.Tokens) < 16 {
					context++
				}
			}
			for _, l := range p.Loops {
				kinds[fmt.Sprint(mode, " ", l.Kind, " ", l.Accepted > 0, " ", int(l.Emitted) <= int(l.Accepted))]++
			}
		}
	}
	for _, r := range []string{storage.FinishEOS, storage.FinishStop, storage.FinishLength, storage.FinishError} {
		if reasons[r] < 2 {
			t.Errorf("the test job lacks completions that end by %s: %v", r, reasons)
		}
	}
	if context == 0 || len(kinds) < 6 {
		t.Errorf("the test job lacks loops of some kind: %v, %d cut by the context", kinds, context)
	}
}

func rule(name string) spec.Rule {
	r, err := spec.ParseRule(name)
	if err != nil {
		panic(err)
	}
	return r
}

// TestPartialJobs: what is committed is replayed; what is not is not missing.
func TestPartialJobs(t *testing.T) {
	for shards := range 3 {
		folder := verifytest.Decoded(t, verifytest.Job(), shards)
		counts, err := Job(folder, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if counts.Complete || counts.Shards != 2*shards {
			t.Errorf("%d shards: %+v", shards, counts)
		}
		if err := os.Remove(filepath.Join(folder.Dir(), "_plan.json")); err != nil {
			t.Fatal(err)
		}
		if again, err := Job(folder, Options{}); err != nil || again.Shards != counts.Shards {
			t.Errorf("%d shards without a plan: %+v, %v", shards, again, err)
		}
	}
}

// TestFlippedBits: any bit of any table is found, by name.
func TestFlippedBits(t *testing.T) {
	folder := verifytest.Decoded(t, oneShard(), -1)
	m, err := folder.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, f := range m.Files {
		path := filepath.Join(folder.Dir(), f.Path)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 25 {
			bad := slices.Clone(data)
			at, bit := r.IntN(len(bad)), r.IntN(8)
			bad[at] ^= 1 << bit
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			wantFailure(t, folder, fmt.Sprintf("bit %d of byte %d", bit, at), f.Path+": its sha256 is ")
		}
		if err := os.WriteFile(path, data[:len(data)-1], 0o600); err != nil {
			t.Fatal(err)
		}
		wantFailure(t, folder, "a byte short", f.Path+": it has")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Job(folder, Options{}); err != nil {
		t.Errorf("mended: %v", err)
	}
}

// wantFailure runs the replay, which must fail by naming all of these.
func wantFailure(t *testing.T, folder *storage.Job, what string, names ...string) {
	t.Helper()
	counts, err := Job(folder, Options{})
	var f *Failure
	if !errors.As(err, &f) {
		t.Errorf("%s: not found: %+v, %v", what, counts, err)
		return
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q does not name %q", what, err, name)
		}
	}
}

// oneShard is the test job in one shard, which is faster to write again.
func oneShard() pipeline.Job {
	job := verifytest.Job()
	job.ShardRows = len(verifytest.Texts)
	return job
}

// find returns the first loop of the SpS mode for which ok holds.
func find(t *testing.T, all verifytest.Content, ok func(*storage.Loop) bool) *storage.Loop {
	t.Helper()
	for _, p := range all["sps"] {
		for i := range p.Loops {
			if ok(&p.Loops[i]) {
				return &p.Loops[i]
			}
		}
	}
	t.Fatal("the test job has no such loop")
	return nil
}

// completion finds the first completion of a mode for which ok holds.
func completion(t *testing.T, all verifytest.Content, mode string, ok func(*storage.Completion) bool) *storage.Completion {
	t.Helper()
	for _, p := range all[mode] {
		for i := range p.Completions {
			if ok(&p.Completions[i]) {
				return &p.Completions[i]
			}
		}
	}
	t.Fatal("the test job has no such completion")
	return nil
}

// TestTamperedLoops changes one thing of the log, writes it as a job with fresh
// digests, and looks for the line that names it.
func TestTamperedLoops(t *testing.T) {
	folder := verifytest.Decoded(t, oneShard(), -1)
	was := verifytest.Load(t, folder)
	rejected := func(l *storage.Loop) bool { // at the last of its drafted tokens
		return l.Accepted+1 == int32(len(l.Drafted)) && l.Q[l.Accepted] > 0
	}
	several := func(l *storage.Loop) bool { return l.Accepted >= 2 && int(l.Emitted) > int(l.Accepted) }
	bonus := func(l *storage.Loop) bool {
		return l.Kind == storage.KindBonus && l.Accepted > 0 && int(l.Emitted) > int(l.Accepted)
	}
	follows := func(l *storage.Loop) bool { return l.Loop > 0 }
	for _, c := range []struct {
		name   string
		of     func(*storage.Loop) bool
		change func(*storage.Loop)
		want   string
	}{
		{"coin", rejected, func(l *storage.Loop) { l.Coins[l.Accepted] = math.Nextafter(l.Coins[l.Accepted], 1) }, "the seed gives"},
		{"first coin", several, func(l *storage.Loop) { l.Coins[0] /= 2 }, "drafted token 0: its coin"},
		{"coin missing", several, func(l *storage.Loop) { l.Coins = l.Coins[:1] }, "drafted token 1 was examined and has no coin"},
		{"coin of a token that was not examined", func(l *storage.Loop) bool { return int(l.Accepted) < len(l.Drafted)-1 }, func(l *storage.Loop) { l.Coins = append(l.Coins, 0.5) }, "examined tokens"},
		{"one more accepted", rejected, func(l *storage.Loop) { l.Accepted++ }, "accept"},
		{"one less accepted", several, func(l *storage.Loop) { l.Accepted-- }, "the coins, p and q accept"},
		{"q that would accept", rejected, func(l *storage.Loop) { l.Q[l.Accepted] = l.P[l.Accepted]; l.Overlap[l.Accepted] = 1 }, "the coins, p and q accept"},
		{"p that would accept", rejected, func(l *storage.Loop) {
			l.P[l.Accepted] = l.Q[l.Accepted] / 2
			l.Overlap[l.Accepted] = l.P[l.Accepted]
		}, "the coins, p and q accept"},
		{"q that would reject", several, func(l *storage.Loop) { l.Q[1], l.Overlap[1] = 0, 0 }, "the coins, p and q accept 1"},
		{"p of a token that cannot be drawn", several, func(l *storage.Loop) { l.P[0] = 0 }, "p is 0"},
		{"p above one", several, func(l *storage.Loop) { l.P[0] = 1.01 }, "p is 1.01"},
		{"negative q", rejected, func(l *storage.Loop) { l.Q[l.Accepted] = -0.1 }, "q is -0.1"},
		{"overlap above one", several, func(l *storage.Loop) { l.Overlap[1] = 1.5 }, "overlap is 1.5"},
		{"overlap below min(p, q)", several, func(l *storage.Loop) { l.Overlap[1] = min(l.P[1], l.Q[1]) * 0.9 }, "do not allow"},
		{"overlap above 1 - |p - q|", rejected, func(l *storage.Loop) { l.Overlap[l.Accepted] = 1 }, "do not allow"},
		{"overlap missing", several, func(l *storage.Loop) { l.Overlap = l.Overlap[:1] }, "overlaps"},
		{"accepted token", several, func(l *storage.Loop) { l.Drafted[1] = (l.Drafted[1] + 1) % 9 }, "the loop decided"},
		{"last token", bonus, func(l *storage.Loop) { l.Token = (l.Token + 1) % 9 }, "the loop decided"},
		{"rejected token recovered", rejected, func(l *storage.Loop) { l.Drafted[l.Accepted] = l.Token }, "was just rejected"},
		{"bonus called recovered", bonus, func(l *storage.Loop) { l.Kind = storage.KindRecovered }, "called recovered"},
		{"recovered called bonus", rejected, func(l *storage.Loop) { l.Kind = storage.KindBonus }, "called bonus"},
		{"no last token", bonus, func(l *storage.Loop) { l.Kind, l.Token = storage.KindNone, -1 }, "its last token is -1"},
		{"one token less", several, func(l *storage.Loop) { l.Emitted-- }, "loop"},
		{"one token more", several, func(l *storage.Loop) { l.Emitted++ }, "emitted"},
		{"no token", several, func(l *storage.Loop) { l.Emitted = 0 }, "0 of its"},
		{"position", follows, func(l *storage.Loop) { l.Position++ }, "position is"},
		{"number", follows, func(l *storage.Loop) { l.Loop++ }, "follows loop"},
		{"lookahead", follows, func(l *storage.Loop) { l.K++ }, "k is 5"},
		{"row", follows, func(l *storage.Loop) { l.Row = 999 }, "no such completion"},
		{"sample", follows, func(l *storage.Loop) { l.Sample = (l.Sample + 1) % 3 }, "loop"},
		{"row id", follows, func(l *storage.Loop) { l.RowID = "Test/x" }, "the row's id is"},
		{"draft time", several, func(l *storage.Loop) { l.DraftNS++ }, "draft_ns is"},
		{"score time", several, func(l *storage.Loop) { l.ScoreNS-- }, "score_ns is"},
		{"sample time", several, func(l *storage.Loop) { l.SampleNS += 10 }, "sample_ns is"},
		{"all shorter", func(l *storage.Loop) bool { return len(l.Drafted) > 2 && l.Accepted == 0 }, func(l *storage.Loop) {
			l.Drafted, l.P, l.Q, l.Overlap = l.Drafted[:1], l.P[:1], l.Q[:1], l.Overlap[:1]
		}, "drafted is"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := was.Clone()
			c.change(find(t, all, c.of))
			wantFailure(t, verifytest.Rewritten(t, folder, was, all), c.name, c.want, "/mode=sps/part-00000.parquet: row ", " sample ")
		})
	}
}

// TestTamperedOrder moves, drops and repeats loops and completions.
func TestTamperedOrder(t *testing.T) {
	folder := verifytest.Decoded(t, verifytest.Job(), -1)
	was := verifytest.Load(t, folder)
	for _, c := range []struct {
		name   string
		change func(verifytest.Content)
		want   string
	}{
		{"a loop dropped", func(all verifytest.Content) { p := all["sps"][1]; p.Loops = slices.Delete(p.Loops, 1, 2) }, "loop"},
		{"the last loop dropped", func(all verifytest.Content) { p := all["sps"][1]; p.Loops = p.Loops[:len(p.Loops)-1] }, "its loops add up to"},
		{"a loop repeated", func(all verifytest.Content) { p := all["ars"][0]; p.Loops = slices.Insert(p.Loops, 1, p.Loops[0]) }, "loop 0 follows loop 0"},
		{"two loops swapped", func(all verifytest.Content) { p := all["ars"][2]; p.Loops[0], p.Loops[1] = p.Loops[1], p.Loops[0] }, "follows loop -1"},
		{"modes swapped", func(all verifytest.Content) { all["ars"], all["sps"] = all["sps"], all["ars"] }, "in mode ars of this job it is 0"},
		{"a completion dropped", func(all verifytest.Content) { p := all["ars"][1]; p.Completions = p.Completions[1:] }, "row 4 sample 0 is missing"},
		{"a completion repeated", func(all verifytest.Content) { p := all["ars"][1]; p.Completions[2] = p.Completions[1] }, "it is there twice"},
		{"a row of another shard", func(all verifytest.Content) {
			all["ars"][0].Completions[0] = all["ars"][1].Completions[0]
		}, "the rows of this shard are 0 to 3"},
		{"another sample", func(all verifytest.Content) { all["ars"][0].Completions[0].Sample = 3 }, "3 samples a row"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := was.Clone()
			c.change(all)
			wantFailure(t, verifytest.Rewritten(t, folder, was, all), c.name, c.want)
		})
	}
}

func TestTamperedCompletions(t *testing.T) {
	folder := verifytest.Decoded(t, oneShard(), -1)
	was := verifytest.Load(t, folder)
	by := func(reason string) func(*storage.Completion) bool {
		return func(c *storage.Completion) bool { return c.FinishReason == reason && len(c.Tokens) > 3 }
	}
	any := func(c *storage.Completion) bool { return len(c.Tokens) > 3 }
	for _, c := range []struct {
		name   string
		of     func(*storage.Completion) bool
		change func(*storage.Completion)
		want   string
	}{
		{"a token", any, func(c *storage.Completion) { c.Tokens[2] = (c.Tokens[2] + 1) % 8 }, "the loop decided"},
		{"a token that is none", any, func(c *storage.Completion) { c.Tokens[2] = -3 }, "token 2 is -3"},
		{"a token less", by(storage.FinishStop), func(c *storage.Completion) { c.Tokens = c.Tokens[:len(c.Tokens)-1]; c.CompletionTokens-- }, "of a completion of"},
		{"a token more", by(storage.FinishStop), func(c *storage.Completion) { c.Tokens = append(c.Tokens, 0); c.CompletionTokens++ }, "completion_tokens is"},
		{"tokens", any, func(c *storage.Completion) { c.CompletionTokens++ }, "completion_tokens is"},
		{"loops", any, func(c *storage.Completion) { c.Loops-- }, "loops is"},
		{"drafted", any, func(c *storage.Completion) { c.Drafted++ }, "drafted is"},
		{"accepted", any, func(c *storage.Completion) { c.Accepted++ }, "accepted is"},
		{"prompt", any, func(c *storage.Completion) { c.PromptTokens++ }, "prompt"},
		{"seed", any, func(c *storage.Completion) { c.Seed++ }, "its seed is 12, the job's 11"},
		{"job", any, func(c *storage.Completion) { c.Job = "another" }, "it is of job another"},
		{"row id", any, func(c *storage.Completion) { c.RowID = "Test/x" }, `its id is "Test/x"`},
		{"eos called length", by(storage.FinishEOS), func(c *storage.Completion) { c.FinishReason = storage.FinishLength }, "with which"},
		{"length called eos", by(storage.FinishLength), func(c *storage.Completion) { c.FinishReason = storage.FinishEOS }, "ended with that token"},
		{"length called stop", by(storage.FinishLength), func(c *storage.Completion) { c.FinishReason = storage.FinishStop }, "with the stop sequence"},
		{"stop called length", by(storage.FinishStop), func(c *storage.Completion) { c.FinishReason, c.StopReason = storage.FinishLength, "" }, "ended by length after"},
		{"another stop", by(storage.FinishStop), func(c *storage.Completion) { c.StopReason = "zz" }, "the job does not stop at"},
		{"text past the stop", by(storage.FinishStop), func(c *storage.Completion) { c.Completion += c.StopReason }, "its text goes on"},
		{"a failure without a reason to fail", any, func(c *storage.Completion) { c.FinishReason, c.Error, c.Loops = storage.FinishError, "x", 0 }, "loops is 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := was.Clone()
			c.change(completion(t, all, "sps", c.of))
			wantFailure(t, verifytest.Rewritten(t, folder, was, all), c.name, c.want, "row ")
		})
	}
}

// TestAnotherSeed: under another seed no coin is right.
func TestAnotherSeed(t *testing.T) {
	folder := verifytest.Decoded(t, oneShard(), -1)
	was := verifytest.Load(t, folder)
	all := was.Clone()
	for _, p := range all["sps"] {
		for i := range p.Loops {
			l := &p.Loops[i]
			other := spec.Coins{Seed: 12, Row: uint64(l.Row), Sample: uint32(l.Sample)}
			for n := range l.Coins {
				l.Coins[n] = other.Uniform(spec.AcceptCoin, int(l.Position)+n)
			}
		}
	}
	wantFailure(t, verifytest.Rewritten(t, folder, was, all), "seed", "loop 0: drafted token 0: its coin is", "the seed gives")
}

// TestAnotherRule: a log holds under the rule that it was decided by, and no
// job can be passed off as decided by another. The coins of match are others
// than those of the rest.
func TestAnotherRule(t *testing.T) {
	for _, c := range []struct{ decided, claimed, want string }{
		{"lenient:0.3", "rejection", "drafted token"},
		{"capped:0.3", "rejection", "drafted token"},
		{"rejection", "lenient:0.1", "drafted token"},
		{"rejection", "match", "0 below"},
		{"match", "rejection", " below"},
	} {
		job := oneShard()
		job.Rule, job.Modes = rule(c.decided), job.Modes[1:]
		folder := verifytest.Decoded(t, job, -1)
		path := filepath.Join(folder.Dir(), "job.json")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file map[string]any
		if err := json.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		spec := file["spec"].(map[string]any)
		spec["rule"] = c.claimed
		delete(spec, "lossy")
		if rule(c.claimed).Lossy() {
			spec["lossy"] = rule(c.claimed).Bound()
		}
		if data, err = json.Marshal(file); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := storage.OpenJob(folder.Dir())
		if err != nil {
			t.Fatal(err)
		}
		wantFailure(t, again, c.decided+" called "+c.claimed, "manifest.json: its specification is not that of job.json")
		if done, err := again.Finalize(t.Context()); err != nil || !done { // which makes the manifest say so, too
			t.Fatalf("the job is not complete: %v", err)
		}
		wantFailure(t, again, c.decided+" called "+c.claimed, "loops/mode=sps/", c.want)
	}
}

// TestLossyIsSaid: a specification cannot keep quiet about a lossy rule.
func TestLossyIsSaid(t *testing.T) {
	for name, said := range map[string]string{"lenient:0.5": "", "rejection": `, "lossy": "LOSSY"`} {
		folder, err := storage.CreateJob(t.TempDir(), "quiet", fmt.Appendf(nil, `{"name": "quiet", "modes": ["sps"], "shard_rows": 1,
			"draft": {}, "k": 1, "samples": 1, "max_new_tokens": 1, "sampling": {"temperature": 1}, "rule": %q%s}`, name, said))
		if err != nil {
			t.Fatal(err)
		}
		wantFailure(t, folder, name, "job.json: its rule "+name)
	}
}

// TestTamperedMatch: the mass below a token decides with q under the rule match.
func TestTamperedMatch(t *testing.T) {
	job := oneShard()
	job.Rule = rule("match")
	folder := verifytest.Decoded(t, job, -1)
	was := verifytest.Load(t, folder)
	accepted := func(l *storage.Loop) bool { return l.Accepted > 0 && l.Q[0] < 0.9 }
	for _, c := range []struct {
		name   string
		change func(*storage.Loop)
		want   string
	}{
		{"below the coin", func(l *storage.Loop) { l.Below[0] = l.Coins[0] + 1e-9 }, "the coins, p and q accept 0"},
		{"above it", func(l *storage.Loop) { l.Q[0] = max(0, (l.Coins[0]-l.Below[0])*0.99) }, "drafted token"},
		{"too much", func(l *storage.Loop) { l.Below[0] = 1.1 }, "below is 1.1"},
		{"none", func(l *storage.Loop) { l.Below = nil }, "0 below"},
	} {
		all := was.Clone()
		c.change(find(t, all, accepted))
		wantFailure(t, verifytest.Rewritten(t, folder, was, all), c.name, c.want)
	}
}

// TestFilesAroundTheLog: manifests, plan, and files that should not be there.
func TestFilesAroundTheLog(t *testing.T) {
	folder := verifytest.Decoded(t, verifytest.Job(), -1)
	edit := func(old, new string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), old) {
				t.Fatalf("%s has no %s", path, old)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, file string
		change     func(*testing.T, string)
		want       string
	}{
		{"digest in the manifest", "manifest.json", edit(`"sha256": "`, `"sha256": "0`), "its shard did not commit this"},
		{"rows in the manifest", "manifest.json", edit(`"rows": 12,`, `"rows": 13,`), "its shard did not commit this"},
		{"manifest", "manifest.json", edit("{", ""), "manifest.json: "},
		{"plan", "_plan.json", edit(`"rows": 11`, `"rows": 12`), "job and plan are not those"},
		{"plan of fewer shards", "_plan.json", edit(`"shards": 3`, `"shards": 2`), "are 3 shards, not 2"},
		{"no plan", "_plan.json", remove, "marked complete and has no plan"},
		{"digest in a shard's manifest", "_shards/mode=sps/part-00001.json", edit(`"sha256": "`, `"sha256": "0`), "its shard did not commit this"},
		{"rows in a shard's manifest", "_shards/mode=sps/part-00001.json", edit(`"rows": 12,`, `"rows": 13,`), "its shard did not commit this"},
		{"shard's manifest gone", "_shards/mode=sps/part-00001.json", remove, "no shard has committed this file"},
		{"shard's manifest of another", "_shards/mode=sps/part-00001.json", edit(`"mode": "sps"`, `"mode": "ars"`), "it commits shard 1"},
		{"a table gone", "loops/mode=ars/part-00002.parquet", remove, "loops/mode=ars/part-00002.parquet: the file is missing"},
		{"one file too many", "loops/mode=ars/part-00099.parquet", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("PAR1"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "loops/mode=ars/part-00099.parquet: no shard has committed this file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), folder.Name())
			if err := os.CopyFS(copied, os.DirFS(folder.Dir())); err != nil {
				t.Fatal(err)
			}
			c.change(t, filepath.Join(copied, c.file))
			again, err := storage.OpenJob(copied)
			if err != nil {
				t.Fatal(err)
			}
			wantFailure(t, again, c.name, c.want)
		})
	}
}

// TestUnknownSettings: a specification that says more than this code knows is
// not replayed as if it did not.
func TestUnknownSettings(t *testing.T) {
	folder, err := storage.CreateJob(t.TempDir(), "later", []byte(`{"name": "later", "wormhole": true}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Job(folder, Options{}); err == nil || !strings.Contains(err.Error(), "wormhole") {
		t.Errorf("%v", err)
	}
}
