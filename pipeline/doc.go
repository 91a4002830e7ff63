// Package pipeline is the job: it cuts a dataset into shards, publishes them,
// has them decoded and commits what came out, and it joins the engine with the
// files of storage.
//
// A shard's life, and the file that tells it:
//
//	submit.go    rows of the dataset -> shards on the queue -> wait -> _SUCCESS
//	worker.go    take shards from the queue, and tell it what became of them
//	session.go   what a worker has in hand: engines, and the shards that they decode
//	shard.go     one shard: rows -> completions and loops, in their order
//	tally.go     completion and log held against each other before they are written
//
//	job.go       what a job is, and the metadata that travels with a shard
//	ports.go     what the package asks of queues, as interfaces
//
// Sequences are decoded by [engine.Engine].
//
// Invariants:
//
//   - Everything that decides a token is in the job's specification and the
//     row: the models' digests, the sampling, the seed and the row's index. A
//     redelivered shard or another worker decodes the same tokens. The
//     lookahead auto is the exception: it follows the clock, so that another
//     run may draw other tokens, from the same law.
//   - A row that cannot be decoded becomes a row with an error. A shard that
//     cannot be decoded is retried, alone, and set aside after MaxAttempts.
//   - A shard is committed before it is acknowledged: a worker that dies in
//     between leaves a shard that is delivered again and found done.
//
// The package knows neither ONNX Runtime nor NATS: cmd passes in what
// implements the interfaces of ports.go and [engine.Decoder].
package pipeline
