package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/library"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/pipeline/report"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

const (
	root    = "../../.."
	repeats = 7
)

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// submit runs the demo job with bin/submit's code and returns its summary.
func submit(b *testing.B, bin string, args ...string) *report.Summary {
	b.Helper()
	cmd := exec.Command(bin, append([]string{"--config", "configs/demo.yaml", "--json", "--out", b.TempDir()}, args...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	var s report.Summary
	if err := json.Unmarshal(out, &s); err != nil {
		b.Fatal(err)
	}
	return &s
}

func build(b *testing.B) string {
	b.Helper()
	bin := filepath.Join(b.TempDir(), "submit")
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/submit")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build submit: %v\n%s", err, out)
	}
	return bin
}

// BenchmarkSpeedup is SpS over ArS in mean token time on the demo, as the demo
// runs it, beside what theory predicts from the measured alpha and c.
func BenchmarkSpeedup(b *testing.B) {
	bin := build(b)
	for b.Loop() {
		figures := map[string][]float64{}
		for range repeats {
			s := submit(b, bin)
			for name, v := range map[string]*float64{"speedup": s.Speedup, "alpha": s.Alpha, "c": s.C, "theory": s.TheorySpeedup, "of-theory": s.OfTheory} {
				figures[name] = append(figures[name], *v)
			}
		}
		for name, v := range figures {
			b.ReportMetric(median(v), name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkGreedy counts the demo's completions that are the same tokens in
// both modes, and the widest margin at which two of them part.
func BenchmarkGreedy(b *testing.B) {
	bin := build(b)
	for b.Loop() {
		s := submit(b, bin, "--temperature", "0", "--job", "greedy")
		widest := 0.0
		for _, d := range s.Greedy.Divergences {
			if d.Margin != nil {
				widest = max(widest, *d.Margin)
			}
		}
		b.ReportMetric(float64(s.Greedy.Same), "same")
		b.ReportMetric(float64(len(s.Greedy.Divergences)), "different")
		b.ReportMetric(widest, "widest-margin")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkEngine is ArS tokens/s through the whole system (queue, worker,
// tokenizer, sampling, log, Parquet, commit) over those of a bare loop of ONNX
// Runtime runs on the same session: the same passes with nothing between them.
// As the two are measured one after the other on a machine that may be shared,
// the share of the system's own time that it spent in those passes is reported
// beside it.
func BenchmarkEngine(b *testing.B) {
	lib, err := library.Find("")
	if err == nil {
		err = ort.Init(lib)
	}
	if err != nil {
		b.Fatal(err)
	}
	bundle, err := ort.OpenBundle(filepath.Join(root, "testdata/demo/target"))
	if err != nil {
		b.Fatal(err)
	}
	model, err := ort.Load(bundle, ort.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer model.Close()
	tok, err := tokenize.Load(bundle.Tokenizer)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var ratios, shares []float64
		for range repeats {
			system, done := system(b, model, tok)
			var inside int64
			for _, c := range done {
				inside += c.PrefillNS + c.ScoreNS
			}
			shares = append(shares, time.Duration(inside).Seconds()/system.Seconds())
			ratios = append(ratios, bare(b, model, done).Seconds()/system.Seconds())
		}
		b.ReportMetric(median(ratios), "system/bare")
		b.ReportMetric(median(shares), "in-runs/wall")
	}
	b.ReportMetric(0, "ns/op")
}

// system runs the demo dataset in mode ars through queue, worker and storage,
// and returns the time from the first shard taken to the job's completion.
func system(b *testing.B, model *ort.Model, tok *tokenize.Tokenizer) (time.Duration, []storage.Completion) {
	b.Helper()
	ctx := b.Context()
	check := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	place := pipeline.Place{Out: b.TempDir()}
	job := pipeline.Job{
		Name: "bench", Modes: []pipeline.Mode{pipeline.ArS}, ShardRows: 8, Samples: 1, MaxNewTokens: 160,
		Sampling: spec.Sampling{Temperature: 0.8}, Seed: 1,
	}
	text, err := job.Spec()
	check(err)
	folder, err := storage.CreateJob(place.Out, job.Name, text)
	check(err)
	data, err := storage.OpenDataset(filepath.Join(root, "testdata/demo/minieval.parquet"), storage.Columns{})
	check(err)
	defer data.Close()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	server, err := queue.Embed(b.TempDir(), queue.EmbedOptions{Logger: log})
	check(err)
	defer server.Close()
	q, err := server.Connect(ctx, queue.Options{Logger: log})
	check(err)
	defer q.Close()
	submitter := pipeline.Submitter{Job: job, Place: place, Folder: folder, Publisher: q}
	_, err = submitter.Publish(ctx, data, func(pipeline.Mode, int, bool) {})
	check(err)
	source, err := q.Source(ctx)
	check(err)
	defer source.Close()

	drain, stop := context.WithCancel(ctx)
	defer stop()
	w := pipeline.Worker{
		Name: "bench", Source: source, MaxAttempts: 1, Log: log,
		Report: func(p pipeline.Progress) {
			if p.Shards > 0 && folder.Done() {
				stop()
			}
		},
		Open: func(context.Context, *pipeline.Job, pipeline.Place, pipeline.Mode) (engine.Pair, func(), error) {
			d, err := model.NewDecoder(0)
			if err != nil {
				return engine.Pair{}, nil, err
			}
			return engine.Pair{Target: d, Tokenizer: tok, EOS: model.Bundle().EOS}, func() { check(d.Close()) }, nil
		},
	}
	began := time.Now()
	check(w.Run(ctx, drain))
	took := time.Since(began)
	var done []storage.Completion
	check(folder.ReadCompletions("ars", func(c storage.Completion) error {
		if c.FinishReason == storage.FinishError {
			return errors.New(c.Error)
		}
		done = append(done, c)
		return nil
	}))
	return took, done
}

// bare is how long the passes of these completions take with nothing between
// them: each prompt in the prefill's chunks, then one token at a time. Times
// are measured on the bound session at every prompt's own sizes, and for the
// single tokens at the middle of every completion.
func bare(b *testing.B, model *ort.Model, done []storage.Completion) time.Duration {
	b.Helper()
	run := func(past, s, n int) time.Duration {
		t, err := model.BarePass(1, past, s, n)
		if err != nil {
			b.Fatal(fmt.Errorf("bare run of %d tokens after %d: %w", s, past, err))
		}
		return t
	}
	const chunk = 128 // of the prefill, see engine/cache.go
	var sum time.Duration
	for _, c := range done {
		prompt := int(c.PromptTokens)
		for past := 0; past < prompt-1; past += chunk {
			sum += run(past, min(chunk, prompt-1-past), 2)
		}
		sum += time.Duration(c.CompletionTokens) * run(prompt+int(c.CompletionTokens)/2, 1, 20)
	}
	return sum
}
