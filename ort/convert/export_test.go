package convert

import "context"

// ImportWide is Import with activations that MatMulNBits does not round to 8
// bits, so that only what weights are decides logits.
func ImportWide(ctx context.Context, src, dst string, o Options) (*Report, error) {
	o.wide = true
	return Import(ctx, src, dst, o)
}
