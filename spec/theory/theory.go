package theory

import "math"

// TokensPerLoop is the expected number of tokens that one loop yields, the
// recovered or bonus token included: (1 - alpha^(K+1)) / (1 - alpha), the mean
// of a geometric variable capped at K+1 (equation 1).
func TokensPerLoop(alpha float64, k int) float64 {
	if alpha >= 1 {
		return float64(k + 1)
	}
	// 1 - alpha^(K+1), without cancellation where alpha is nearly 1.
	return -math.Expm1(float64(k+1)*math.Log(alpha)) / (1 - alpha)
}

// Speedup is the expected improvement of wall time over autoregressive
// sampling when scoring K+1 tokens takes as long as scoring one:
// (1 - alpha^(K+1)) / ((1 - alpha)(K c + 1)) (Theorem 3.8).
func Speedup(alpha, c float64, k int) float64 {
	return SpeedupAt(TokensPerLoop(alpha, k), c, k)
}

// SpeedupAt is the improvement of wall time when a loop is known to yield this
// many tokens on average, however its acceptances depend on each other:
// tokens / (K c + 1), the proof of Theorem 3.8 without its first step.
//
// Some authors state acceptance as r', the part of a loop's K+1 places that
// become tokens; then tokens = r' (K+1). Chen et al.'s 14.1 ms of the target
// and 1.8 ms of the draft at K = 4 give 2.65 for r' = 0.8 in this way.
func SpeedupAt(tokens, c float64, k int) float64 {
	return tokens / (float64(k)*c + 1)
}

// Operations is the expected factor by which the number of arithmetic
// operations grows: (1 - alpha)(K c-hat + K + 1) / (1 - alpha^(K+1)), where
// c-hat is the draft's operations per token over the target's (Theorem 3.11).
// It is at least 1: speculation buys time with work.
func Operations(alpha, cHat float64, k int) float64 {
	return (float64(k)*cHat + float64(k) + 1) / TokensPerLoop(alpha, k)
}

// MemoryReduction is the factor by which reads of the target's weights and KV
// cache shrink, because one pass over them serves a whole loop: the expected
// tokens per loop (section 3.4). Reads of the draft's are not counted.
func MemoryReduction(alpha float64, k int) float64 { return TokensPerLoop(alpha, k) }

// Pays reports whether some lookahead is faster than autoregressive sampling:
// exactly if alpha > c. That it suffices is Corollary 3.9. It is needed,
// because K tokens of the draft pay if alpha + .. + alpha^K > K c, and no mean
// of powers of alpha exceeds alpha. The improvement is then at least
// (1 + alpha) / (1 + c), which K = 1 has.
func Pays(alpha, c float64) bool { return alpha > c }

// BreakEven returns the acceptance rate above which lookahead k is faster than
// autoregressive sampling: the alpha at which Theorem 3.8 gives 1. At K = 1 it
// is c. ok is false where no acceptance rate pays, c >= 1, and for k < 1, which
// is autoregressive sampling.
func BreakEven(c float64, k int) (alpha float64, ok bool) {
	return Uniform(c, k).BreakEven(k)
}

// OptimalK returns the lookahead of 0 to limit with the largest [Speedup], the
// smallest of equals (section 3.5). It is 0 where speculation does not pay,
// and limit where the draft is free.
func OptimalK(alpha, c float64, limit int) int {
	return Uniform(c, limit).OptimalK(alpha)
}

// Oracle is the upper bound on the improvement of wall time that any choice of
// the lookahead can reach: that of an oracle which drafts, in every loop,
// exactly the tokens that will be accepted (section 3.5). Its loops yield
// 1 / (1 - alpha) tokens and draft all but one of them, so that the bound is
// 1 / (1 - alpha + alpha c). It is +Inf for alpha = 1 and c = 0.
//
// An oracle may also draft nothing, so that the bound is never below 1.
func Oracle(alpha, c float64) float64 {
	return max(1, 1/(1-alpha+alpha*c))
}
