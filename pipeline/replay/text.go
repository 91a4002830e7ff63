package replay

import (
	"context"

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

// Close gives the cache back.
func (r *Reader) Close() { r.f.free() }
