package storage

import "testing"

// BenchmarkCommit is the cost of a shard of a few rows, all its fsyncs included.
func BenchmarkCommit(b *testing.B) {
	j, err := CreateJob(b.TempDir(), "bench", []byte(spec))
	if err != nil {
		b.Fatal(err)
	}
	shard := 0
	b.ReportAllocs()
	for b.Loop() {
		commitShard(b, j, "sps", shard, "w")
		shard++
	}
}
