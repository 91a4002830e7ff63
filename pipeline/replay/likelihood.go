package replay

import (
	"context"
	"fmt"
	"math"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/eval"
	"github.com/draftmill/draftmill/storage"
)

// Likelihoods scores completions of a job by how likely the target finds them:
// the geometric mean of the probabilities of their tokens, exp(1/n sum of log
// q(x)), an end of sequence included. q is the softmax of the logits as they are:
// temperature 1, nothing truncated, whatever the job sampled with. The perplexity
// is the score's reciprocal; Detail has the sum of the logarithms. What is scored
// is what the target has been fed before, prompts and tokens, in passes of many.
//
// rows are the dataset's, from the first; completions are ordered by row.
// Completions without tokens have no score.
func Likelihoods(ctx context.Context, job *pipeline.Job, rows pipeline.Rows, pair engine.Pair, completions []storage.Completion, progress func(done int)) ([]storage.Score, error) {
	room := pair.Target.Context()
	if job.Context > 0 {
		room = min(room, job.Context)
	}
	target, err := newFollower(pair.Target)
	if err != nil {
		return nil, err
	}
	defer target.free()
	var scores []storage.Score
	next, encode := 0, job.Encoder()
	for row, err := range job.Prompts(rows) {
		if err != nil {
			return nil, err
		}
		if next == len(completions) {
			break
		}
		if completions[next].Row != row.Row {
			continue
		}
		prompt, bad := encode(pair, room, &row)
		target.begin(pair.Input(prompt))
		for ; next < len(completions) && completions[next].Row == row.Row; next++ {
			c := &completions[next]
			if bad != nil || len(c.Tokens) == 0 {
				continue
			}
			sum, err := target.logLikelihood(ctx, prompt, c.Tokens)
			if err != nil {
				return nil, fmt.Errorf("row %d sample %d: %w", c.Row, c.Sample, err)
			}
			scores = append(scores, storage.Score{
				Job: c.Job, Row: c.Row, RowID: c.RowID, Sample: c.Sample, Metric: eval.Likelihood,
				Score:  math.Exp(sum / float64(len(c.Tokens))),
				Detail: fmt.Sprintf("log-likelihood %.6f of %d tokens", sum, len(c.Tokens)),
			})
			if progress != nil {
				progress(next + 1)
			}
		}
	}
	if next < len(completions) {
		return nil, fmt.Errorf("the dataset has no row %d, of which there is a completion", completions[next].Row)
	}
	return scores, nil
}

// logLikelihood is the sum over a completion's tokens of log q(x), natural, at most 0.
func (f *follower) logLikelihood(ctx context.Context, prompt, completion []int32) (sum float64, err error) {
	all := append(append(make([]int32, 0, len(prompt)+len(completion)), prompt...), completion...)
	vocab := f.model.Vocab()
	for from := len(prompt); from < len(all); {
		to := min(from+f.most(), len(all))
		logits, err := f.rows(ctx, all, from, to)
		if err != nil {
			return 0, err
		}
		for at := from; at < to; at++ {
			row := logits[(at-from)*vocab:][:vocab]
			if x := all[at]; x < 0 || int(x) >= vocab {
				return 0, fmt.Errorf("token %d is outside the vocabulary of %d", x, vocab)
			}
			lp := logProbability(row, all[at])
			if math.IsNaN(lp) {
				return 0, fmt.Errorf("the target's logits for token %d are no numbers", at-len(prompt))
			}
			sum += lp
		}
		from = to
	}
	return sum, nil
}

// logProbability is log softmax(row)[x].
func logProbability(row []float32, x int32) float64 {
	top := math.Inf(-1)
	for _, l := range row {
		top = math.Max(top, float64(l)) // NaN stays
	}
	sum := 0.0
	for _, l := range row {
		sum += math.Exp(float64(l) - top)
	}
	return min(0, float64(row[x])-top-math.Log(sum))
}
