//go:build webgpu

package app

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
)

// TestDevicesOfAPair: the target on the CPU and the draft on a GPU decode the tokens
// that greedy decoding with the target has.
func TestDevicesOfAPair(t *testing.T) {
	const demo = "../../../testdata/demo/"
	cfg := configs.Config{ORT: configs.ORT{Threads: 1, Device: "cpu", DraftDevice: "webgpu"}, Lanes: "1"}
	models := NewModels(cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	defer models.Close()
	place := pipeline.Place{Target: demo + "target", Draft: demo + "draft"}
	job := pipeline.Job{Modes: []pipeline.Mode{pipeline.ArS, pipeline.SpS}, K: 2, Draft: &pipeline.Model{}, Context: 64}
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
	draw := func(m pipeline.Mode, k int) []int32 {
		pair, release, err := models.Open(pipeline.Place{}, 0)(t.Context(), &job, place, m)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		e, err := engine.New(context.Background(), pair, engine.Settings{K: k})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		tokens, err := e.Draw(t.Context(), []int32{5, 6, 7}, spec.Coins{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	if ars, sps := draw(pipeline.ArS, 0), draw(pipeline.SpS, 2); !slices.Equal(ars, sps) {
		t.Errorf("got %v, want %v", sps, ars)
	}
	var on []string
	for _, e := range models.known {
		for v := range e.loaded {
			on = append(on, v.device)
		}
	}
	if slices.Sort(on); !slices.Equal(on, []string{"cpu", "webgpu"}) {
		t.Errorf("models are on %v", on)
	}
}
