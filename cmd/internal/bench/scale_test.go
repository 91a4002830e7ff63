package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/spec"
)

// BenchmarkScale measures what one shard costs the server on its way from publish to acknowledgement, and works out from it
// what 1,000 workers and 10^8 rows would ask of one. docs/operations.md has the table.
func BenchmarkScale(b *testing.B) {
	const (
		shards, shardRows = 2000, 64

		workers    = 1000
		rows       = 100_000_000
		rowTokens  = 128
		workerRate = 1000 // tokens per second of a worker
		ackWait    = 30 * time.Second
		looks      = 10 * time.Second // between two looks of a busy worker at the list of runs
	)
	for b.Loop() {
		s := newSite(b, pipeline.Job{
			Name: "bench", Modes: []pipeline.Mode{pipeline.ArS}, ShardRows: shardRows, Samples: 1, MaxNewTokens: rowTokens,
			Sampling: spec.Sampling{Temperature: 1}, Seed: 1,
		})
		began := time.Now()
		if _, err := s.submitter.Publish(b.Context(), &prompts{n: shards * shardRows}, unseen); err != nil {
			b.Fatal(err)
		}
		publish := time.Since(began) / shards
		stored := float64(folderBytes(b, s.store)) / shards
		source, err := s.q.Source(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		for range shards {
			d, err := source.Next(b.Context())
			if err == nil {
				err = d.Ack(b.Context())
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		take := time.Since(began) / shards
		began = time.Now()
		const asks = 200
		for range asks {
			if _, err := s.q.Jobs(b.Context(), ""); err != nil {
				b.Fatal(err)
			}
		}
		list := time.Since(began) / asks
		if err := source.Close(); err != nil {
			b.Fatal(err)
		}
		s.close()

		b.ReportMetric(float64(publish.Microseconds()), "µs/publish")
		b.ReportMetric(float64(take.Microseconds()), "µs/take+ack")
		b.ReportMetric(float64(list.Microseconds()), "µs/list")
		b.ReportMetric(stored, "B/shard")

		rowRate := float64(workers) * workerRate / rowTokens
		shardRate := rowRate / shardRows
		shardTime := float64(workers) / shardRate
		beats := float64(workers) / (ackWait.Seconds() / 3)
		costs := []struct {
			what string
			rate float64 // messages per second
		}{
			{"publish", shardRate * 2},
			{"take, count, acknowledge", shardRate * 10},
			{"heartbeats", beats * 2},
			{"looks at the list of runs", workers / looks.Seconds() * 2},
			{"progress, one for each row", rowRate},
		}
		b.Logf("%d workers of %d tokens/s, %.0e rows of %d tokens, shards of %d rows:", workers, workerRate, float64(rows), rowTokens, shardRows)
		b.Logf("  %.1f hours, %.0f shards/s, a shard takes %.0f s, %.1e shards", rows/rowRate/3600, shardRate, shardTime, float64(rows)/shardRows)
		all := 0.0
		for _, c := range costs {
			all += c.rate
			b.Logf("  %-32s %8.0f messages/s", c.what, c.rate)
		}
		b.Logf("  %-32s %8.0f messages/s", "all", all)
		b.Logf("  %-32s %8.1f percent", "of a core, client and server", 100*(shardRate*(publish+take).Seconds()+workers/looks.Seconds()*list.Seconds()))
		b.Logf("  stream, all queued at once       %8.1f GB", stored*float64(rows)/shardRows/1e9)
	}
}

// folderBytes is how much the files of a folder hold.
func folderBytes(b *testing.B, dir string) (n int64) {
	b.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("look at %s: %w", path, err)
		}
		n += info.Size()
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}
