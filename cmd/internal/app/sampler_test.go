package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
)

// samplerDevices are those that the tests run on; a build tag says others.
var samplerDevices = []string{"cpu"}

// demoJob is a job of the demo pair, in both modes.
func demoJob(t *testing.T, models *Models) (pipeline.Job, pipeline.Place) {
	t.Helper()
	const demo = "../../../testdata/demo/"
	place := pipeline.Place{Target: demo + "target", Draft: demo + "draft"}
	job := pipeline.Job{Name: "demo", Modes: []pipeline.Mode{pipeline.ArS, pipeline.SpS}, K: 3, Draft: &pipeline.Model{}, Context: 64, Samples: 1}
	for _, m := range []struct {
		dir string
		of  *pipeline.Model
	}{{place.Target, &job.Target}, {place.Draft, job.Draft}} {
		bundle, err := models.Describe(m.dir)
		if err != nil {
			t.Fatal(err)
		}
		m.of.Digest = bundle.Digest
	}
	return job, place
}

// decided are the loops of one sequence.
type decided struct {
	loops []spec.Outcome
	tried [][]int32
	err   error
}

// TestSamplerOnDevice: a job draws the same tokens on the device as on the host, with
// the same numbers in its log to the rounding of float32. Where a decision differs the
// coin has to lie that near to its edge; what the sequence does behind it is another
// draw from the same law.
func TestSamplerOnDevice(t *testing.T) {
	for _, device := range samplerDevices {
		cases := []draws{
			{"nucleus", spec.Sampling{Temperature: 1, TopP: 0.9}, "rejection", ""},
			{"greedy", spec.Sampling{}, "rejection", ""},
			{"penalties", spec.Sampling{Temperature: 0.8, TopK: 40, RepetitionPenalty: 1.2, PresencePenalty: 0.3, MinNewTokens: 3, LogitBias: map[int32]float64{7: 2}}, "rejection", ""},
			{"lenient", spec.Sampling{Temperature: 1.2}, "lenient:0.5", ""},
			{"lenient greedy", spec.Sampling{}, "lenient:0.5", ""},
			{"capped", spec.Sampling{Temperature: 0.7, MinP: 0.01}, "capped:0.8", ""},
			{"coupled", spec.Sampling{Temperature: 1, TopP: 0.95}, "coupled", ""},
			{"match", spec.Sampling{Temperature: 0.9, RepetitionPenalty: 1.2}, "match", ""},
			{"coupled greedy", spec.Sampling{}, "coupled", ""},
			{"confidence", spec.Sampling{RepetitionPenalty: 1.2}, "rejection", "confidence:0.6"},
		}
		sequences, tokens, near := 8, 16, 2e-5
		if device == "cuda" { // a row's logits are not the same in another pass
			near = 1e-2
		}
		modes := []pipeline.Mode{pipeline.ArS, pipeline.SpS}
		if device == "webgpu" { // in software a pass takes a second, and a kernel's first use several
			cases, modes, sequences, tokens, near = []draws{cases[2], cases[6]}, modes[1:], 2, 3, 1e-3
		}
		all := map[string]*Models{}
		for _, place := range []string{configs.SamplerHost, configs.SamplerDevice} {
			cfg := configs.Config{ORT: configs.ORT{Threads: 1, Device: device, Sampler: place}, Lanes: "4"}
			all[place] = NewModels(cfg, slog.New(slog.DiscardHandler))
			defer all[place].Close()
		}
		for _, c := range cases {
			t.Run(device+"/"+c.name, func(t *testing.T) {
				rule, err := spec.ParseRule(c.rule)
				if err != nil {
					t.Fatal(err)
				}
				for _, mode := range modes {
					host := sampled(t, all[configs.SamplerHost], mode, c, rule, sequences, tokens)
					there := sampled(t, all[configs.SamplerDevice], mode, c, rule, sequences, tokens)
					ties, loops, short := 0, 0, 0
					for i := range host {
						n, tie := same(t, &host[i], &there[i], rule.For(c.sampling), near)
						if loops += n; tie {
							ties++
						}
						for _, drafted := range host[i].tried {
							if len(drafted) == 1 {
								short++
							}
						}
					}
					t.Logf("%s: %d loops alike, %d of %d sequences part at a tie", mode, loops, ties, sequences)
					if c.lookahead != "" && mode == pipeline.SpS && (short == 0 || short == loops) {
						t.Errorf("%d of %d loops draft one token: the lookahead decides nothing", short, loops)
					}
					if ties > 1 {
						t.Errorf("%s: %d ties", mode, ties)
					}
				}
			})
		}
	}
}

// draws are settings that tokens are drawn with.
type draws struct {
	name      string
	sampling  spec.Sampling
	rule      string
	lookahead string
}

// sampled decodes the sequences and returns their loops.
func sampled(t *testing.T, models *Models, mode pipeline.Mode, c draws, rule spec.Rule, sequences, tokens int) []decided {
	t.Helper()
	job, place := demoJob(t, models)
	job.Sampling, job.Rule, job.Lookahead = c.sampling, rule, c.lookahead
	pair, release, err := models.Open(pipeline.Place{}, 0)(t.Context(), &job, place, mode)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if (pair.Remote != nil) != (models.cfg.ORT.Sampler == configs.SamplerDevice) {
		t.Fatalf("the sampler is on the device: %v, the setting says %s", pair.Remote != nil, models.cfg.ORT.Sampler)
	}
	settings, err := job.Settings(mode)
	if err != nil {
		t.Fatal(err)
	}
	settings.Lanes = 4
	e, err := engine.New(context.Background(), pair, settings)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	all := make([]decided, sequences)
	requests := make([]engine.Request, sequences)
	for i := range requests {
		prompt := []int32{}
		for j := range 3 + i {
			prompt = append(prompt, int32(7+(5*i+11*j)%90))
		}
		requests[i] = engine.Request{
			Prompt: prompt, Limit: tokens, Coins: spec.Coins{Seed: 5, Row: uint64(i)},
			Loop: func(l *engine.Loop) error {
				out := *l.Outcome
				for _, list := range []*[]float64{&out.P, &out.Q, &out.Overlap, &out.Coins, &out.Below, &out.Chance, &out.Margins} {
					*list = slices.Clone(*list)
				}
				all[i].loops, all[i].tried = append(all[i].loops, out), append(all[i].tried, slices.Clone(l.Drafted))
				return nil
			},
			Done: func(s *engine.Sequence) error { all[i].err = s.Err; return nil },
		}
	}
	if _, err := e.DrawAll(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	return all
}

// same compares two sequences up to where they part, and reports whether they do.
func same(t *testing.T, a, b *decided, rule spec.Rule, near float64) (loops int, tie bool) {
	t.Helper()
	if a.err != nil || b.err != nil {
		t.Errorf("errors %v, %v", a.err, b.err)
	}
	for i := range min(len(a.loops), len(b.loops)) {
		x, y := &a.loops[i], &b.loops[i]
		if !slices.Equal(a.tried[i], b.tried[i]) {
			return i, true // the draft's draw; a margin is not logged of it
		}
		for _, c := range []struct {
			what      string
			got, want []float64
			by        float64
		}{{"p", y.P, x.P, near}, {"q", y.Q, x.Q, near}, {"overlap", y.Overlap, x.Overlap, near}, {"margin", y.Margins, x.Margins, 100 * near}, {"below", y.Below, x.Below, near}, {"chance", y.Chance, x.Chance, 100 * near}} {
			for j := range min(len(c.got), len(c.want)) {
				if math.Abs(c.got[j]-c.want[j]) > c.by*max(1, math.Abs(c.want[j])) {
					t.Errorf("loop %d: %s is %v, want %v", i, c.what, c.got, c.want)
					break
				}
			}
		}
		if x.Accepted != y.Accepted {
			at := min(x.Accepted, y.Accepted)
			gap := math.Abs(x.Coins[at]*rule.Factor()*x.P[at] - x.Q[at])
			switch {
			case len(x.Chance) > 0: // coupled
				gap = x.Margins[at]
			case len(x.Below) > 0: // match
				gap = min(math.Abs(x.Coins[at]-x.Below[at]), math.Abs(x.Coins[at]-x.Below[at]-x.Q[at]))
			}
			if gap > near {
				t.Errorf("loop %d: %d drafted tokens are accepted, want %d; the coin is %g from its edge", i, y.Accepted, x.Accepted, gap)
			}
			return i, true
		}
		if x.Token != y.Token {
			if n := len(x.Margins); n > 0 && x.Margins[n-1] > 100*near {
				t.Errorf("loop %d: token %d, want %d, with a margin of %v", i, y.Token, x.Token, x.Margins[n-1])
			}
			return i, true
		}
	}
	if len(a.loops) != len(b.loops) {
		t.Errorf("%d loops, want %d", len(b.loops), len(a.loops))
	}
	return len(a.loops), false
}

// TestSamplerFallsBack: what cannot be drawn on a device is drawn on the host, and a
// line says why, once.
func TestSamplerFallsBack(t *testing.T) {
	for _, c := range []struct {
		name, says string
		change     func(*pipeline.Job, *configs.Config)
	}{
		{"beams", "(beams)", func(j *pipeline.Job, _ *configs.Config) { j.Beams = &spec.Beams{Width: 2, DraftWidth: 4} }},
		{"drafter", "(drafter)", func(j *pipeline.Job, _ *configs.Config) {
			j.Draft, j.Drafter = nil, &pipeline.Drafter{Kind: "lookup", N: 2}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			cfg := configs.Config{ORT: configs.ORT{Threads: 1, Device: "cpu", Sampler: configs.SamplerDevice}, Lanes: "1"}
			models := NewModels(cfg, slog.New(slog.NewTextHandler(&log, nil)))
			defer models.Close()
			job, place := demoJob(t, models)
			c.change(&job, &cfg)
			for range 2 {
				pair, release, err := models.Open(pipeline.Place{}, 0)(t.Context(), &job, place, pipeline.SpS)
				if err != nil {
					t.Fatal(err)
				}
				release()
				if pair.Remote != nil {
					t.Error("it is drawn for on the device")
				}
			}
			if n := strings.Count(log.String(), "ort.sampler"); n != 1 || !strings.Contains(log.String(), c.says) {
				t.Error(fmt.Sprintf("%d lines:\n", n), log.String())
			}
		})
	}
}
