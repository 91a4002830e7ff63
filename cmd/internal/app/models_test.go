package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
)

// TestOneModelForEveryContext: jobs of several contexts share a process, and
// each gets decoders of its own size; a model is loaded once for each.
func TestOneModelForEveryContext(t *testing.T) {
	const demo = "../../../testdata/demo/"
	models := NewModels(configs.Config{ORT: configs.ORT{Threads: 1}, Lanes: "1"}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	defer models.Close()
	place := pipeline.Place{Target: demo + "target", Draft: demo + "draft"}
	job := pipeline.Job{Modes: []pipeline.Mode{pipeline.SpS}, K: 4, Draft: &pipeline.Model{}}
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
	open := models.Open(pipeline.Place{}, 0)
	for _, c := range []struct{ asked, want, loaded int }{{0, 1024, 1}, {64, 64, 2}, {1 << 20, 1024, 2}, {64, 64, 2}} {
		job.Context = c.asked
		pair, release, err := open(t.Context(), &job, place, pipeline.SpS)
		if err != nil {
			t.Fatal(err)
		}
		if pair.Target.Context() != c.want || pair.Draft.Context() != c.want {
			t.Errorf("asked for %d: the target holds %d tokens, the draft %d", c.asked, pair.Target.Context(), pair.Draft.Context())
		}
		release()
		for dir, e := range models.known {
			if len(e.loaded) != c.loaded {
				t.Errorf("asked for %d: %s is loaded %d times", c.asked, dir, len(e.loaded))
			}
		}
	}
	job.Context = 5 // no room for a prompt and the K+1 tokens of a loop
	if _, _, err := open(t.Context(), &job, place, pipeline.SpS); err == nil {
		t.Error("a context that holds no loop is opened")
	}
}

// TestOpenObeysItsContext: who is told to stop waits neither for another worker's
// load nor for its own.
func TestOpenObeysItsContext(t *testing.T) {
	const demo = "../../../testdata/demo/"
	models := NewModels(configs.Config{ORT: configs.ORT{Threads: 1}, Lanes: "1"}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	defer models.Close()
	place := pipeline.Place{Target: demo + "target"}
	bundle, err := models.Describe(place.Target)
	if err != nil {
		t.Fatal(err)
	}
	job := pipeline.Job{Modes: []pipeline.Mode{pipeline.ArS}, Target: pipeline.Model{Digest: bundle.Digest}}
	open := models.Open(pipeline.Place{}, 0)
	if err := models.lock(t.Context()); err != nil { // as somebody who loads
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() {
		_, _, err := open(ctx, &job, place, pipeline.ArS)
		opened <- err
	}()
	cancel()
	if err := <-opened; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for its turn: %v", err)
	}
	models.unlock()
	if _, _, err := open(ctx, &job, place, pipeline.ArS); !errors.Is(err, context.Canceled) {
		t.Errorf("its context is over: %v", err)
	}
	_, release, err := open(t.Context(), &job, place, pipeline.ArS) // what was left behind is in nobody's way
	if err != nil {
		t.Fatal(err)
	}
	release()
}
