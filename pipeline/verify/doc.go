// Package verify replays a job from its files, without the models: it derives
// every accept coin from the seed again, decides every accept or reject again,
// adds up every count again, and names the first row that does not hold.
//
// The log of loops is kept for this (Chen et al. 2023, Algorithm 2, is
// deterministic once p(x~), q(x~) and the coins are known). What a replay can
// show is that the rows are those that the rule makes of the logged
// probabilities and of this seed's coins: nothing was decided otherwise, left
// out, counted twice or changed afterwards. (Under the rule coupled a decision
// needs the whole target distribution: there the replay shows that the noise is
// the seed's and that everything adds up, and believes what was accepted.) That the probabilities are the
// models' takes the models; that the text is that of the tokens takes the
// tokenizer. Both lie under the digests in the manifests.
//
// The parts:
//
//	verify.go    the job: files, then shards, then what holds across shards
//	files.go     manifests, plan, digests, files that should not be there
//	shard.go     one shard: which rows it must hold, and their loops
//	sequence.go  one sample: its loops follow each other and add up to it
//	loop.go      one loop: coins, decisions, overlap
//	ends.go      where completions end, over the whole job
//
// A job that is not complete is replayed as far as it is committed. Nothing is
// written, nothing is repaired, and memory holds one shard at a time.
package verify
