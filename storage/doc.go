// Package storage reads datasets and keeps results: everything of draftmill
// that is a file.
//
// Four subjects, each in files of its own:
//
//   - datasets in (dataset.go, detect.go, jsonlines.go, arrowrows.go):
//     Parquet, Arrow IPC and JSON Lines as one stream of rows. Users' files are
//     parsed in a child process with limits of memory and time (reader.go,
//     readermain.go), because the Arrow library can panic in goroutines of its
//     own, or allocate without bound, on a damaged file.
//   - shards (shard.go): rows on their way through a queue, an Arrow record
//     batch as an IPC stream with a checksum behind it.
//   - tables out (completion.go, loop.go, table.go, table_write.go,
//     table_read.go): completions, and the log of every draft-verify loop, as
//     Parquet. FORMAT.md is their specification.
//   - jobs (job.go, commit.go, reconcile.go, finalize.go, fsck.go): the output
//     folder, in a file system or an object store (package bucket), and the
//     protocol by which a shard's files become results exactly once.
//
// Invariants:
//
//   - A file under completions/ or loops/ is whole and durable before it gets
//     its name. A shard is committed at one instant, the creation of its manifest
//     (a hard link, or a conditional PUT), and the first writer wins; whatever is
//     interrupted after that instant is rolled forward by whoever looks next.
//   - _SUCCESS exists only while every planned shard is committed and
//     manifest.json lists it.
//   - Rows are keyed by (row, sample), never by an id that a user chose.
//   - No dataset, shard or committed file, however damaged, ends the process:
//     it becomes one line of error.
//
// The package knows Arrow and buckets, and nothing of models, queues
// or sampling. The commit protocol follows the temporary-file, sync, rename
// discipline of Prometheus' tsdb (compact.go) and the first-committer-wins
// manifests of lake formats such as Apache Iceberg.
package storage
