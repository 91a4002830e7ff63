package main

import (
	"slices"
	"testing"

	"github.com/draftmill/draftmill/configs"
)

func TestLookaheads(t *testing.T) {
	for text, want := range map[string][]lookahead{"0..3": {0, 1, 2, 3}, "4,0,2": {0, 2, 4}, "0,2..4,3": {0, 2, 3, 4}, "auto, 4": {4, auto}, "0,auto,auto": {0, auto}} {
		if got, err := lookaheads(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "4", "3..1", "-1..2", "0..99", "a,b", "1..", "auto", "4,4", "0..auto"} {
		if got, err := lookaheads(text); err == nil {
			t.Errorf("%q gave %v", text, got)
		}
	}
}

// TestGridsOfASweep: every combination has a name and a suffix of its own, and the
// autoregressive jobs of a temperature are one.
func TestGridsOfASweep(t *testing.T) {
	s := sweeping{temperatures: []float64{0, 0.5}, drafters: []string{"model", "lookup"}, rules: []string{"lenient:0.5"}}
	var got [][3]string
	for _, g := range s.grids() {
		got = append(got, [3]string{g.Name, g.suffix, g.base})
		if len(g.settings) != 3 {
			t.Errorf("%s: settings %v", g.Name, g.settings)
		}
	}
	want := [][3]string{
		{"drafter model temperature 0", "-p1-t0", "-t0"}, {"drafter model temperature 0.5", "-p1-t0_5", "-t0_5"},
		{"drafter lookup temperature 0", "-p2-t0", "-t0"}, {"drafter lookup temperature 0.5", "-p2-t0_5", "-t0_5"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if g := (&sweeping{}).grids(); len(g) != 1 || g[0].Name != "" || g[0].suffix != "" {
		t.Errorf("without lists: %+v", g)
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
	for k, mode := range map[lookahead]string{0: configs.ModeArS, 2: configs.ModeSpS, auto: configs.ModeSpS} {
		cfg, err := s.point(cmd.Flags(), k, &grid{suffix: "-t0_5", base: "-t0_5", settings: []setting{{"temperature", "0.5"}, {"draft", demo + "draft"}}})
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Mode != mode || cfg.Sampling.Temperature != 0.5 || cfg.Sampling.N != 3 || !slices.Equal(cfg.Sampling.Stop, []string{"a,b", "c"}) || cfg.Draft != map[lookahead]string{2: demo + "draft", auto: demo + "draft"}[k] ||
			(cfg.Lookahead == configs.LookaheadAuto) != (k == auto) {
			t.Errorf("%+v", cfg)
		}
		if want := map[lookahead]string{0: "s-t0_5-k0", 2: "s-t0_5-k2", auto: "s-t0_5-kauto"}[k]; cfg.Job != want {
			t.Errorf("job %s, want %s", cfg.Job, want)
		}
	}
}
