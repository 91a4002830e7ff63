// Package theory holds what the two papers predict of speculative sampling
// from its acceptance rate alpha, its lookahead K and its cost ratio
// c = t_draft / t_target, under their assumption that acceptances are
// independent with the same chance.
//
// Numbers of equations, definitions and theorems are those of Leviathan et
// al. 2022, "Fast Inference from Transformers via Speculative Decoding" (arXiv
// 2211.17192), who write gamma for K. Their other assumption, that the target
// scores K+1 tokens in the time of one, is dropped by [Costs], which predicts
// from a measured cost curve instead.
//
// Throughout, alpha is in [0, 1], c and c-hat are not negative and K is at
// least 0, where K = 0 is autoregressive sampling. Values outside give
// meaningless numbers, not errors: the functions are formulas.
package theory
