// Package theory holds what the two papers predict of speculative sampling
// from its acceptance rate alpha, its lookahead K and its cost ratio
// c = t_draft / t_target, under their assumption that acceptances are
// independent with the same chance.
package theory

import "math"

// TokensPerLoop is the expected number of tokens that one loop yields, the
// recovered or bonus token included: (1 - alpha^(K+1)) / (1 - alpha)
// (Leviathan et al., equation 1).
func TokensPerLoop(alpha float64, k int) float64 {
	if alpha >= 1 {
		return float64(k + 1)
	}
	return (1 - math.Pow(alpha, float64(k+1))) / (1 - alpha)
}

// Speedup is the expected improvement of wall time over autoregressive
// sampling when scoring K+1 tokens takes as long as scoring one:
// (1 - alpha^(K+1)) / ((1 - alpha)(K c + 1)) (Leviathan et al., Theorem 3.8).
func Speedup(alpha, c float64, k int) float64 {
	return TokensPerLoop(alpha, k) / (float64(k)*c + 1)
}
