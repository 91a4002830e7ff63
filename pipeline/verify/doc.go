// Package verify replays a job from its files, without the models: it derives
// every accept coin from the seed again, decides every accept or reject again,
// adds up every count again, and names the first row that does not hold.
//
// The log of loops is kept for this (Chen et al. 2023, Algorithm 2, is
// deterministic once p(x~), q(x~) and the coins are known). What is checked:
//
//   - every file is the one that the manifests list, and nothing else is there;
//     the plan is covered, each row and sample once;
//   - every coin is that of the seed at its place;
//   - every accept or reject is the one that rule, coin, p and q give, and p, q and
//     overlap can be probabilities of two distributions. (Under the rule coupled a
//     decision needs the whole of q: there what was accepted is believed);
//   - tokens, counts and times add up, from loops to completions;
//   - completions end where their tokens say: by the ends that all of them agree
//     on, or, with the target's tokenizer at hand, by the tokenizer; then every text
//     is derived from its tokens, too.
//
// What is believed: p, q, and with them the drafted, recovered and bonus tokens;
// the prompts, and why a row failed; and the digests, which prove nothing against
// somebody who writes them anew. Package replay checks the former with the models;
// a signature over the manifest answers for the latter.
//
// The parts:
//
//	verify.go    the job: files, then shards, then what holds across shards
//	files.go     manifests, plan, digests, files that should not be there
//	shard.go     one shard: which rows it must hold, and their loops
//	sequence.go  one sample: its loops follow each other and add up to it; its text
//	loop.go      one loop: coins, decisions, overlap
//	beams.go     a beam search: scores, ranks, steps; that the modes have found the same
//	ends.go      where completions end, over the whole job
//
// A job that is not complete is replayed as far as it is committed. Nothing is
// written, nothing is repaired, and memory holds one shard at a time.
package verify
