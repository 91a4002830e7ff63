package pipeline

import (
	"context"
	"slices"

	"github.com/draftmill/draftmill/spec"
)

// Draw decodes at most n tokens behind prompt (one token or more, shorter than
// the target's context) and returns them, an end-of-sequence token included.
// It is what decoding a row does, without its text and its log.
func (e *Engine) Draw(ctx context.Context, prompt []int32, coins spec.Uniforms, n int) ([]int32, error) {
	if err := e.begin(ctx, prompt); err != nil {
		return nil, err
	}
	end := newEnding(e.pair.Tokenizer, e.pair.EOS, nil, min(n, e.pair.Target.Context()-len(prompt)))
	if err := e.decode(ctx, coins, end, func(*Loop) error { return nil }); err != nil {
		return nil, err
	}
	return slices.Clone(e.tokens[len(prompt):]), nil
}
