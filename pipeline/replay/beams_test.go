package replay

import (
	"errors"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/pipeline/verify"
	"github.com/draftmill/draftmill/pipeline/verify/verifytest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// TestBeams: a search is made again by the target alone, and what is not what it
// finds does not hold, however well it hangs together.
func TestBeams(t *testing.T) {
	job := verifytest.Job()
	job.Sampling, job.Stop, job.Samples, job.ShardRows = spec.Sampling{NoRepeatNGramSize: 3}, []string{"fd", "b"}, 2, len(verifytest.Texts)
	job.Beams = &spec.Beams{Width: 3, DraftWidth: 4, LengthPenalty: 0.5, EarlyStopping: spec.StopNever}
	folder := verifytest.Decoded(t, job, -1)
	for _, draft := range []bool{targetAlone, withDraft} {
		n, err := held(t, folder, draft)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range n.Modes {
			if m.Completions != int64(2*len(verifytest.Texts)) || m.Errors < 3 || m.Tokens == 0 || m.Drawn != m.Tokens || m.Ties != 0 || m.Believed != 0 {
				t.Errorf("%+v", m)
			}
		}
	}
	was := verifytest.Load(t, folder)
	all := was.Clone()
	changed := 0
	for _, mode := range []string{"ars", "sps"} { // alike, with a score that the log-probabilities give
		for _, p := range all[mode] {
			for i := range p.Completions {
				if c := &p.Completions[i]; c.Row == 3 && c.Sample == 1 && c.FinishReason != storage.FinishError {
					c.LogProbs[0] -= 0.25
					sum := 0.0
					for _, l := range c.LogProbs {
						sum += l
					}
					sum = job.Beams.Score(sum, len(c.Tokens))
					c.Score = &sum
					changed++
				}
			}
		}
	}
	bad := verifytest.Rewritten(t, folder, was, all)
	if _, err := verify.Job(bad, verify.Options{}); err != nil || changed != 2 {
		t.Fatalf("%d changed, and the log alone says %v", changed, err)
	}
	_, err := held(t, bad, targetAlone)
	if f, ok := errors.AsType[*verify.Failure](err); !ok || f.Row != 3 || !strings.Contains(f.What, "the target gives it") {
		t.Errorf("got %v", err)
	}
}
