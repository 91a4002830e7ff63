package pipeline

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// countingPublisher takes shards as a queue does, and keeps none.
type countingPublisher struct{ shards, bytes int }

func (p *countingPublisher) Publish(_ context.Context, _ string, data []byte) (bool, error) {
	p.shards++
	p.bytes += len(data)
	return true, nil
}

// BenchmarkSubmitRows submits a dataset of a million prompts, as many as fit into
// -benchtime: from the file, through the reader's process, to encoded shards. It
// reports the largest memory of this process and of the reader's.
//
//	go test ./pipeline -run '^$' -bench SubmitRows -benchtime 1x
func BenchmarkSubmitRows(b *testing.B) {
	const rows = 1_000_000
	path := filepath.Join(b.TempDir(), "prompts.jsonl")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(f)
	text := strings.Repeat("words of a prompt, ", 20)
	for i := range rows {
		fmt.Fprintf(w, `{"id": "row/%d", "prompt": "%d %s"}`+"\n", i, i, text[:200+i%180])
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		job := Job{
			Name: "many", Dataset: Dataset{Name: "prompts.jsonl", PromptColumn: "prompt"}, Modes: []Mode{ArS}, ShardRows: 512,
			Target: Model{Name: "none", Digest: "00"}, Sampling: spec.Sampling{Temperature: 1}, Samples: 1, MaxNewTokens: 1,
		}
		identity, err := job.Spec()
		if err != nil {
			b.Fatal(err)
		}
		place := Place{Out: b.TempDir()}
		folder, err := storage.CreateJob(place.Out, job.Name, identity)
		if err != nil {
			b.Fatal(err)
		}
		data, err := storage.OpenDatasetFields(path, storage.Columns{}, []string{})
		if err != nil {
			b.Fatal(err)
		}
		p := &countingPublisher{}
		s := Submitter{Job: job, Place: place, Folder: folder, Publisher: p}
		begun := time.Now()
		n, err := s.Publish(b.Context(), data, func(Mode, int, bool) {})
		if err != nil || n.Rows != rows || p.shards != n.Fresh {
			b.Fatalf("%+v %v", n, err)
		}
		b.ReportMetric(rows/time.Since(begun).Seconds(), "rows/s")
		if err := data.Close(); err != nil {
			b.Fatal(err)
		}
	}
	for name, who := range map[string]int{"MB": syscall.RUSAGE_SELF, "reader-MB": syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(u.Maxrss)/1024, name)
	}
}
