// Package spec is the mathematics of speculative sampling: what turns two
// models' logits and a supply of coins into tokens that are distributed
// exactly as the target model alone would have drawn them.
//
// It follows Chen et al. 2023, "Accelerating Large Language Model Decoding
// with Speculative Sampling" (arXiv 2302.01318), and Leviathan et al. 2022,
// "Fast Inference from Transformers via Speculative Decoding" (arXiv
// 2211.17192), and keeps Chen's letters:
//
//	q      the target's distribution of the next token
//	p      the draft's distribution of the next token
//	K      the lookahead: how many tokens are drafted before the target scores them
//	x~     a drafted token
//	alpha  E[sum over x of min(p(x), q(x))], the chance that a drafted token is accepted
//
// A loop is one draft-verify round. In it the draft proposes x~_1 .. x~_K, the
// target scores all K+1 positions in one forward pass, and [Verify] accepts a
// prefix of the proposal and adds one token of its own: a recovered token,
// drawn from the residual (q - p)+ at the first rejection, or a bonus token,
// drawn from q when everything was accepted. A loop with K = 0 is plain
// autoregressive sampling (ArS): nothing is drafted and its bonus token is a
// draw from q. There is no second code path for it.
//
// The parts:
//
//	Sampling, Chain     logits and the sequence so far -> standardized distributions (Leviathan 2.2)
//	Dist                such a distribution
//	Coins               counter-based uniforms, one stream a purpose
//	Noise, Race         one exponential number a token id, and drawing by the smallest of them over its weight
//	Rule, Verify        Algorithm 2 of Chen et al., from "for t = 1 : K" on, and its variants
//	Beams, Search       beam search, and its acceptance of drafted steps (Leviathan A.4)
//	Drafter             laws to draft from without a model: n-grams, look-up, uniform
//	Lookahead, Policy   how K is chosen
//	kernel.c, plain.go  the arithmetic over whole vocabularies, for speed and for reading
//	theory              what the two papers predict from alpha, c and K
//	spectest            exact laws of whatever coins drive
//	mutants             the loop broken in many ways, and what notices each
//
// Invariants:
//
//   - p and q pass through the same standardization, along the same sequence.
//     Accepting with a ratio of differently truncated distributions is a bias,
//     not an approximation.
//   - p is the law that the drafted token was really drawn from.
//   - No two decisions share a coin.
//   - A hostile input (NaN, +Inf, no mass, a drafted token with p = 0) is a
//     named error, never a silent accept.
//   - The same machine gives the same numbers. Another instruction set may round
//     a sum differently, in its last bits.
//
// The package imports the standard library only and allocates nothing per loop
// once its buffers have grown. Without cgo it runs on its plain kernel: the same
// results, ten to forty times slower at large vocabularies.
package spec
