package report

import (
	"strings"
	"testing"

	"github.com/draftmill/draftmill/pipeline/verify/verifytest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// TestCertificate: jobs of a real engine hold; one whose log was changed, with all
// digests made anew, does not, and the certificate says where.
func TestCertificate(t *testing.T) {
	state := func(job *storage.Job, replay bool) (string, string) {
		t.Helper()
		c, err := Certify([]*storage.Job{job}, replay)
		if err != nil {
			t.Fatal(err)
		}
		return c.State(), strings.Join(c.Lines(), "\n")
	}
	job := verifytest.Decoded(t, verifytest.Job(), -1)
	if got, text := state(job, true); got != Holds || !strings.Contains(text, "follow from the seed") || !strings.Contains(text, "Rule rejection is lossless") {
		t.Errorf("%s: %s", got, text)
	}
	if got, text := state(job, false); got != NotChecked || !strings.Contains(text, "run submit verify") {
		t.Errorf("%s: %s", got, text)
	}
	was := verifytest.Load(t, job)
	changed := was.Clone()
	for i, l := range changed["sps"][0].Loops {
		if l.Accepted > 0 { // as if it had been drafted from another law
			changed["sps"][0].Loops[i].P[0], changed["sps"][0].Loops[i].Q[0] = 1, 0
			break
		}
	}
	if got, text := state(verifytest.Rewritten(t, job, was, changed), true); got != Fails || !strings.Contains(text, "does not hold: loops/mode=sps/part-00000.parquet: row") {
		t.Errorf("%s: %s", got, text)
	}
	lenient := verifytest.Job()
	lenient.Rule, _ = spec.ParseRule("lenient:0.5")
	if got, text := state(verifytest.Decoded(t, lenient, -1), true); got != Lossy || !strings.Contains(text, "LOSSY") {
		t.Errorf("%s: %s", got, text)
	}
	if got, text := state(verifytest.Decoded(t, verifytest.Job(), 1), true); got != NotChecked {
		t.Errorf("a part of a job: %s: %s", got, text)
	}
}

// BenchmarkCertificate replays the log of a real engine.
func BenchmarkCertificate(b *testing.B) {
	large := verifytest.Job()
	large.Samples = 60
	job := verifytest.Decoded(b, large, -1)
	var loops int64
	for b.Loop() {
		c, err := Certify([]*storage.Job{job}, true)
		if err != nil || c.State() != Holds {
			b.Fatal(err, c.Lines())
		}
		loops = 0
		for _, m := range c.Checks[0].Counts.Modes {
			loops += m.Loops
		}
	}
	b.ReportMetric(float64(loops)*float64(b.N)/b.Elapsed().Seconds(), "loops/s")
}
