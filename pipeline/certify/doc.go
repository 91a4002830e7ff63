// Package certify tests, on a user's own models, that speculative sampling
// draws from the target's distribution.
//
// For a set of prompts it decodes the first tokens many times through the
// production engine, and compares where they fall with the target's exact
// conditional distribution, which it reads from the model one token at a time,
// with no draft involved. Autoregressive sampling goes through the same test
// as a control: an instrument that fails it says nothing about speculation.
//
// A token's vocabulary is cut into cells in three ways, each of which sees
// other mistakes:
//
//	rank     by the token's rank under the target: 1, 2, 3, 4, 5-8, 9-32, the rest
//	spread   by a hash of the token's id, into eight cells
//	draft    by whether the draft gives the token more than the target does,
//	         the split on which a leaning towards the draft shows most
//
// For each position and partition the counts are compared with their sum of
// conditional expectations by a chi-square quadratic form with the exact
// covariance of the sum: samples are independent, but not alike. All positions
// are also tested together, where most draws are: given its prefix a token's
// deviation from its law has mean zero, so deviations along a sample are
// uncorrelated and the covariances add up. Where the target is all but certain,
// counts hardly vary and the chi-square law is no measure: there a bound that holds
// for any law takes its place. Holm's procedure joins the tests.
//
// Completions that another system drew, for prompts, sampling settings and a
// target that are at hand, are put to the same test ([Plan].Drawn), with the
// engine's autoregressive sampling as the control. They have to be independent
// draws.
//
// The certificate says how large a bias it would have seen: a shift of total
// variation d on a partition gives a noncentrality of at least 4 n d^2, by
// Cauchy and Schwarz, so the smallest d that is found with the stated power
// follows from n.
package certify
