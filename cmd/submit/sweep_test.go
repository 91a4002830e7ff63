package main

import (
	"slices"
	"testing"

	"github.com/draftmill/draftmill/configs"
)

func TestLookaheads(t *testing.T) {
	for text, want := range map[string][]int{"0..3": {0, 1, 2, 3}, "4,0,2": {0, 2, 4}, "0,2..4,3": {0, 2, 3, 4}} {
		if got, err := lookaheads(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "4", "3..1", "-1..2", "0..99", "a,b", "1.."} {
		if got, err := lookaheads(text); err == nil {
			t.Errorf("%q gave %v", text, got)
		}
	}
}

// TestPointsOfASweep: each is a job as submit makes it, with its settings but
// for what the sweep sets.
func TestPointsOfASweep(t *testing.T) {
	cmd := sweepCommand()
	args := []string{"--k", "0..2", "--dataset", demo + "minieval.parquet", "--target", demo + "target", "--draft", demo + "draft",
		"--temperature", "0,0.5", "--job", "s", "--stop", "a,b", "--stop", "c", "--n", "3"}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	var s sweeping
	for k, mode := range map[int]string{0: configs.ModeArS, 2: configs.ModeSpS} {
		cfg, err := s.point(cmd.Flags(), k, "0.5", demo+"draft", "-t0_5")
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Mode != mode || cfg.Sampling.Temperature != 0.5 || cfg.Sampling.N != 3 || !slices.Equal(cfg.Sampling.Stop, []string{"a,b", "c"}) || cfg.Draft != demo+"draft" {
			t.Errorf("%+v", cfg)
		}
		if want := map[int]string{0: "s-t0_5-k0", 2: "s-t0_5-k2"}[k]; cfg.Job != want {
			t.Errorf("job %s, want %s", cfg.Job, want)
		}
	}
}
