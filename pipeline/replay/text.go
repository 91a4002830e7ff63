package replay

import (
	"context"
	"fmt"
	"math"

	"github.com/draftmill/draftmill/pipeline/engine"
)

// Reader is a model that says how likely it finds texts. It is used by one
// goroutine at a time.
type Reader struct{ f *follower }

// NewReader makes a reader on a model, which it borrows.
func NewReader(model engine.Decoder) (*Reader, error) {
	f, err := newFollower(model)
	return &Reader{f}, err
}

// LogLikelihood is the sum over a text's tokens behind the first of log q(x),
// natural, with q the softmax of the model's logits. The text fits the context.
func (r *Reader) LogLikelihood(ctx context.Context, text []int32) (float64, error) {
	return r.f.logLikelihood(ctx, text[:1], text[1:])
}

// Divergence is the sum over a text's positions behind the first of KL(p || q),
// natural, with p the softmax of the reference's logits and q that of the model's,
// and at how many of them both have the same most probable token. The models have
// one vocabulary.
func (r *Reader) Divergence(ctx context.Context, reference *Reader, text []int32) (sum float64, same int, err error) {
	vocab := r.f.model.Vocab()
	if other := reference.f.model.Vocab(); other != vocab {
		return 0, 0, fmt.Errorf("the reference scores %d tokens, the model %d: take models of one vocabulary", other, vocab)
	}
	for from := 1; from < len(text); {
		to := min(from+r.f.most(), len(text))
		p, err := reference.f.rows(ctx, text, from, to)
		if err != nil {
			return 0, 0, fmt.Errorf("the reference: %w", err)
		}
		q, err := r.f.rows(ctx, text, from, to)
		if err != nil {
			return 0, 0, err
		}
		for ; from < to; from++ {
			d, agree := divergence(p[:vocab], q[:vocab])
			if math.IsNaN(d) {
				return 0, 0, fmt.Errorf("the logits for token %d are no numbers", from)
			}
			if sum += d; agree {
				same++
			}
			p, q = p[vocab:], q[vocab:]
		}
	}
	return sum, same, nil
}

// divergence is KL(softmax(p) || softmax(q)), and whether the first of the largest
// is the same in both.
func divergence(p, q []float32) (kl float64, same bool) {
	var first [2]int
	for i := range p {
		if p[i] > p[first[0]] {
			first[0] = i
		}
		if q[i] > q[first[1]] {
			first[1] = i
		}
	}
	topP, topQ := float64(p[first[0]]), float64(q[first[1]])
	var massP, massQ, sum float64
	for i := range p {
		massQ += math.Exp(float64(q[i]) - topQ)
		if e := math.Exp(float64(p[i]) - topP); e != 0 { // NaN stays
			massP += e
			sum += e * (float64(p[i]) - float64(q[i]))
		}
	}
	return max(0, sum/massP-topP-math.Log(massP)+topQ+math.Log(massQ)), first[0] == first[1]
}

// Close gives the cache back.
func (r *Reader) Close() { r.f.free() }
