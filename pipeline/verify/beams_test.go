package verify

import (
	"slices"
	"testing"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/verify/verifytest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// beamJob is the test job as a beam search.
func beamJob() pipeline.Job {
	job := oneShard()
	job.Sampling, job.Stop, job.Samples = spec.Sampling{}, nil, 2
	job.Beams = &spec.Beams{Width: 3, DraftWidth: 4, LengthPenalty: 1}
	return job
}

// TestBeamJobsHold, of one mode or two, with one lane or what a worker has.
func TestBeamJobsHold(t *testing.T) {
	for name, change := range map[string]func(*pipeline.Job){
		"both":      func(*pipeline.Job) {},
		"shards":    func(j *pipeline.Job) { j.ShardRows = 3 },
		"all beams": func(j *pipeline.Job) { j.Samples = 3 },
		"stops":     func(j *pipeline.Job) { j.Samples, j.Stop = 3, []string{"a", "b", "fd"} },
		"early":     func(j *pipeline.Job) { j.Beams.EarlyStopping, j.K = spec.StopEarly, 2 },
		"penalties": func(j *pipeline.Job) { j.Sampling.RepetitionPenalty, j.Sampling.MinNewTokens = 1.3, 3 },
		"plain": func(j *pipeline.Job) {
			j.Modes, j.Draft, j.K, j.Beams.DraftWidth = []pipeline.Mode{pipeline.ArS}, nil, 0, 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := beamJob()
			change(&job)
			folder := verifytest.Decoded(t, job, -1)
			counts, err := Job(folder, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !counts.Complete || counts.Rule != "beams of 3" {
				t.Errorf("%+v", counts)
			}
			stopped := false
			for _, m := range verifytest.Load(t, folder) {
				for _, p := range m {
					stopped = stopped || slices.ContainsFunc(p.Completions, func(c storage.Completion) bool { return c.FinishReason == storage.FinishStop })
				}
			}
			if stopped != (name == "stops") {
				t.Errorf("ended by a stop text: %v", stopped)
			}
			for _, m := range counts.Modes {
				if m.Completions != int64(len(verifytest.Texts)*job.Samples) || m.Errors < 3 || m.Tokens == 0 || m.Loops == 0 || (m.Accepted > 0) != (m.Mode == pipeline.SpS) {
					t.Errorf("%+v", m)
				}
			}
		})
	}
}

// TestTamperedBeams changes one thing of a search's log or of what it found.
func TestTamperedBeams(t *testing.T) {
	folder := verifytest.Decoded(t, beamJob(), -1)
	was := verifytest.Load(t, folder)
	several := func(l *storage.Loop) bool { return l.Accepted >= 2 }
	rejected := func(l *storage.Loop) bool {
		return int(l.Accepted) < len(l.Drafted) && len(l.Overlap) > int(l.Accepted)
	}
	for name, c := range map[string]struct {
		of     func(*storage.Loop) bool
		change func(*storage.Loop)
		want   string
	}{
		"one more accepted":       {rejected, func(l *storage.Loop) { l.Accepted++; l.Emitted++ }, "steps are accepted"},
		"one less accepted":       {several, func(l *storage.Loop) { l.Accepted--; l.Emitted-- }, "steps are accepted"},
		"a share that accepts":    {rejected, func(l *storage.Loop) { l.Overlap[l.Accepted] = 1 }, "steps are accepted"},
		"a share above one":       {several, func(l *storage.Loop) { l.Overlap[0] = 2 }, "shares"},
		"a share missing":         {several, func(l *storage.Loop) { l.Overlap = l.Overlap[:1] }, "steps are accepted"},
		"a step that was not":     {several, func(l *storage.Loop) { l.Emitted++ }, "steps after"},
		"kind":                    {rejected, func(l *storage.Loop) { l.Kind = storage.KindBonus }, "is called bonus"},
		"position":                {several, func(l *storage.Loop) { l.Position++ }, "position is"},
		"k":                       {several, func(l *storage.Loop) { l.K++ }, "k is 5"},
		"nothing scored":          {several, func(l *storage.Loop) { l.Scored = 0 }, "beams are scored"},
		"a coin":                  {several, func(l *storage.Loop) { l.Coins = []float64{0.5} }, "coins"},
		"another loop":            {several, func(l *storage.Loop) { l.Loop++ }, "follows loop"},
		"loops of another sample": {several, func(l *storage.Loop) { l.Sample = 1; l.Loop = 0 }, "row "},
	} {
		t.Run(name, func(t *testing.T) {
			all := was.Clone()
			c.change(find(t, all, c.of))
			wantFailure(t, verifytest.Rewritten(t, folder, was, all), name, c.want)
		})
	}
	second := func(c *storage.Completion) bool { return c.Sample == 1 && len(c.Tokens) > 3 }
	best := func(c *storage.Completion) bool { return c.Sample == 0 && len(c.Tokens) > 3 }
	score := func(c *storage.Completion, x float64) {
		sum := 0.0
		c.LogProbs[0] += x
		for _, l := range c.LogProbs {
			sum += l
		}
		sum /= float64(len(c.LogProbs))
		c.Score = &sum
	}
	for name, c := range map[string]struct {
		of     func(*storage.Completion) bool
		change func(*storage.Completion)
		want   string
	}{
		"a score":             {best, func(c *storage.Completion) { *c.Score += 0.01 }, "its log-probabilities give"},
		"a log-probability":   {best, func(c *storage.Completion) { c.LogProbs[1] /= 2 }, "its log-probabilities give"},
		"no score":            {best, func(c *storage.Completion) { c.Score, c.LogProbs = nil, nil }, "with 0 log-probabilities"},
		"a better second":     {second, func(c *storage.Completion) { score(c, 100) }, "and that of sample 0 is"},
		"a worse second":      {second, func(c *storage.Completion) { score(c, -1) }, "the modes have found different sequences"},
		"loops of the second": {second, func(c *storage.Completion) { c.Loops = 1 }, "loops is 1"},
		"tokens":              {best, func(c *storage.Completion) { c.CompletionTokens++ }, "completion_tokens is"},
	} {
		t.Run(name, func(t *testing.T) {
			all := was.Clone()
			c.change(completion(t, all, "sps", c.of))
			wantFailure(t, verifytest.Rewritten(t, folder, was, all), name, c.want, "row ")
		})
	}
	t.Run("the best twice", func(t *testing.T) {
		all := was.Clone()
		for _, mode := range []string{"ars", "sps"} {
			for _, p := range all[mode] {
				for i := range p.Completions {
					if c := &p.Completions[i]; best(c) {
						next := &p.Completions[i+1]
						next.Tokens, next.LogProbs, next.Score, next.Completion = slices.Clone(c.Tokens), slices.Clone(c.LogProbs), c.Score, c.Completion
						next.FinishReason, next.CompletionTokens = c.FinishReason, c.CompletionTokens
						break
					}
				}
			}
		}
		wantFailure(t, verifytest.Rewritten(t, folder, was, all), "the best twice", "it is sample 0 again")
	})
}

// A score in a job that draws is none.
func TestScoreOfADraw(t *testing.T) {
	folder := verifytest.Decoded(t, oneShard(), -1)
	was := verifytest.Load(t, folder)
	all := was.Clone()
	c := completion(t, all, "sps", func(c *storage.Completion) bool { return len(c.Tokens) > 0 })
	c.Score = new(float64)
	wantFailure(t, verifytest.Rewritten(t, folder, was, all), "a score", "in a job that draws")
}
