package report

import (
	"math"
	"testing"

	"github.com/draftmill/draftmill/storage"
)

// TestCeiling: a loop reads the target once and the draft for each drafted
// token; sequences of a pass share that; the fastest worker counts.
func TestCeiling(t *testing.T) {
	job := written(t, "j", 8, 1, 5, 0, drawn(0))
	before, err := Compare([]*storage.Job{job}, Options{})
	if err != nil || before.Ceiling() != nil {
		t.Fatalf("%v, a ceiling that nobody measured: %v", err, before.Ceiling())
	}
	for _, h := range []storage.Host{
		{Worker: "slow/1", Bandwidth: 1e9, TargetBytes: 4e5, DraftBytes: 1e5},
		{Worker: "fast", Bandwidth: 2e9, TargetBytes: 4e5},
	} {
		if err := job.NoteHost(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Compare([]*storage.Job{job}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ars, sps := c.Series[0].Ceiling, c.Series[1].Ceiling
	// 0.4 MB at 2 GB/s are 0.2 ms for one token; with 4 drafts of 0.1 MB 0.4 ms for 3 tokens.
	if math.Abs(ars.TokenMS-0.2) > 1e-9 || math.Abs(ars.Reached-0.2/1.01) > 1e-9 || ars.DraftBytes != 0 {
		t.Errorf("ArS: %+v", ars)
	}
	if math.Abs(sps.TokenMS-0.4/3) > 1e-9 || math.Abs(sps.PerSecond-7500) > 1e-6 || sps.DraftBytes != 1e5 {
		t.Errorf("SpS: %+v", sps)
	}
}
