// Package replay holds a job against its models. It feeds the target the prompts
// of the dataset and the tokens of the log, many tokens a pass, and draws every
// token again with the numbers of the job's seed.
//
// With the target alone it says of every token whether the target draws it
//
//   - in mode ars, under every rule;
//   - under the rules coupled and match, and at temperature 0 under lossless ones:
//     there the output does not depend on the draft, and so every token that is
//     in a text is checked, whoever drafted it;
//   - of bonus tokens, under every rule.
//
// Under rejection, lenient and capped at other temperatures an accepted or
// recovered token depends on the draft's distribution too. With the target alone
// the logged q is checked, and the decision with it, but p and the drafted token
// are believed, and a recovered token has to be possible under q and nothing
// more. Where what drafts is at hand too (the draft model, the n-gram table;
// look-up and uniform drafts always are), p and overlap are computed again,
// drafted tokens are drawn again from p, and recovered ones from (q - p)+. One
// thing is believed even then: under these rules, that the tokens a nested
// drafter gives for the draft model are draws from p.
//
// Looked at are the tokens that a rule examined. What was drafted behind a
// rejection decides nothing; its p, q and overlap are not computed again, nor are
// the lookaheads and the times.
//
// A beam search is made again by the target alone, in both modes: drafts have no
// part in what it finds.
//
// The prompts are the dataset's: their number, ids and lengths are checked, and a
// row that failed must fail again.
//
// On the CPU a row's logits depend on its own tokens alone, to the bit, so that
// every draw falls alike on a machine of the same kind. Elsewhere logits may be
// rounded otherwise. A token that the target would draw if its log-probabilities
// were off by no more than Options.Tie is counted as a tie and listed, not
// failed. How near it is, is computed from the target, not taken from the log,
// where whoever edits a token could write any margin.
//
// The parts:
//
//	replay.go     the job: shards, prompts, errors
//	sequence.go   one sequence: its tokens, in order
//	draw.go       one token: is it the target's, and if not, how near is it
//	beams.go      a beam search, made again by the target alone
//	follower.go   a model that is fed a given sequence
//	likelihood.go scores: how likely the target finds a completion
//	text.go       the same of any text
package replay
