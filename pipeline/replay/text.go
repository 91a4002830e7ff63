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

// Comparison is what a model and a reference make of one text: sums over its tokens
// behind the first, natural logarithms.
type Comparison struct {
	Model, Reference float64 // log q(x) and log p(x)
	Divergence       float64 // KL(p || q)
	Same             int     // positions where both have the same most probable token
}

// Compare has both read a text. q is the softmax of the model's logits, p that of the
// reference's. The models have one vocabulary.
func (r *Reader) Compare(ctx context.Context, reference *Reader, text []int32) (c Comparison, err error) {
	vocab := r.f.model.Vocab()
	if other := reference.f.model.Vocab(); other != vocab {
		return c, fmt.Errorf("the reference scores %d tokens, the model %d: take models of one vocabulary", other, vocab)
	}
	for from := 1; from < len(text); {
		to := min(from+r.f.most(), len(text))
		p, err := reference.f.rows(ctx, text, from, to)
		if err != nil {
			return c, fmt.Errorf("the reference: %w", err)
		}
		q, err := r.f.rows(ctx, text, from, to)
		if err != nil {
			return c, err
		}
		for ; from < to; from++ {
			x := text[from]
			if x < 0 || int(x) >= vocab {
				return c, fmt.Errorf("token %d is outside the vocabulary of %d", x, vocab)
			}
			c.add(p[:vocab], q[:vocab], x)
			if math.IsNaN(c.Divergence + c.Model) {
				return c, fmt.Errorf("the logits for token %d are no numbers", from)
			}
			p, q = p[vocab:], q[vocab:]
		}
	}
	return c, nil
}

// add adds a position: the logits of the reference, p, and of the model, q, for the
// token x.
func (c *Comparison) add(p, q []float32, x int32) {
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
	logP, logQ := topP+math.Log(massP), topQ+math.Log(massQ)
	c.Reference += min(0, float64(p[x])-logP)
	c.Model += min(0, float64(q[x])-logQ)
	c.Divergence += max(0, sum/massP-logP+logQ)
	if first[0] == first[1] {
		c.Same++
	}
}

// Close gives the cache back.
func (r *Reader) Close() { r.f.free() }
