// Package pipeline is the job: it cuts a dataset into shards, publishes them,
// decodes them and commits what came out, and it joins the mathematics of
// spec with the files of storage.
//
// A shard's life, and the file that tells it:
//
//	submit.go    rows of the dataset -> shards on the queue -> wait -> _SUCCESS
//	worker.go    take shards from the queue, and tell it what became of them
//	session.go   what a worker has in hand: engines, and the shards that they decode
//	shard.go     one shard: rows -> completions and loops, in their order
//	tally.go     completion and log held against each other before they are written
//
// A sequence's life:
//
//	engine.go    sequences join lanes, are prefilled, and leave
//	lane.go      one lane: a sequence, its caches and buffers
//	decode.go    one round of Algorithm 2 (Chen et al. 2023), for all lanes
//	lookahead.go how many tokens a loop drafts, and what is learned from it
//	draft.go     what drafts: a model, a law without one; draft_nested.go: both
//	cache.go     one sequence's KV cache in one model, and the passes that feed them
//	calibrate.go what loops cost, measured before the first
//	finish.go    where a completion ends: end-of-sequence, stop text, limits
//
//	job.go       what a job is, and the metadata that travels with a shard
//	ports.go     what the package asks of models and queues, as interfaces
//
// Invariants:
//
//   - Everything that decides a token is in the job's specification and the
//     row: the models' digests, the sampling, the seed and the row's index. A
//     redelivered shard or another worker decodes the same tokens. The
//     lookahead auto is the exception: it follows the clock, so that another
//     run may draw other tokens, from the same law.
//   - Who shares the lanes changes nothing of what a sequence draws, with a
//     lookahead that is fixed: on the CPU not even the last bit of its logits
//     (see pass).
//   - A lookahead is chosen before its loop draws, and what is drafted is
//     verified: see spec.Policy for why that keeps the target's law.
//   - A row that cannot be decoded becomes a row with an error. A shard that
//     cannot be decoded is retried, alone, and set aside after MaxAttempts.
//   - A shard is committed before it is acknowledged: a worker that dies in
//     between leaves a shard that is delivered again and found done.
//
// The package knows neither ONNX Runtime nor NATS: cmd passes in what
// implements the interfaces of ports.go.
package pipeline
