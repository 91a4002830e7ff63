// Package bucket is the place where a job's files lie: a folder, an S3 bucket
// or a Google Cloud Storage bucket, behind one interface.
//
//   - bucket.go: the interface, and Open, which finds the right one for a path
//     or a URL
//   - folder.go: a folder of a file system
//   - objects.go, transfer.go: object stores, through gocloud.dev
//   - retry.go: what is tried again, and for how long
//   - lease.go: locks in a store that has none
//
// Invariants, for every kind:
//
//   - An object appears whole or not at all, and durably.
//   - Of several processes that call CreateOnce for a key, one creates it. A
//     folder does it with an exclusive hard link, an object store with a
//     conditional PUT (If-None-Match: *; on Google a generation of 0). The
//     answer to a request may be lost: who is told that the object exists reads
//     it back, and has created it if it holds his bytes.
//   - What a store answers late, wrongly or cut off is asked again with growing
//     pauses. When it stays silent the error wraps ErrUnreachable: that is the
//     network's fault and nobody else's.
//   - Keys are relative, with slashes, and never leave the place.
//
// The package knows nothing of jobs, shards or Parquet.
package bucket
