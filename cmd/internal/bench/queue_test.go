package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/pipeline/queue"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// prompts yields n short prompts.
type prompts struct{ n, next int }

func (p *prompts) Next() (storage.Row, error) {
	if p.next == p.n {
		return storage.Row{}, io.EOF
	}
	p.next++
	return storage.Row{Index: int64(p.next - 1), ID: fmt.Sprint(p.next - 1), Prompt: []byte("abbababbab")}, nil
}

// site is a server, a queue on it and a job's folder.
type site struct {
	q         *queue.Queue
	submitter pipeline.Submitter
	store     string // the server's folder
	log       *slog.Logger
	close     func()
}

func newSite(b *testing.B, job pipeline.Job) *site {
	b.Helper()
	check := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	place := pipeline.Place{Out: b.TempDir()}
	text, err := job.Spec()
	check(err)
	folder, err := storage.CreateJob(place.Out, job.Name, text)
	check(err)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	store := b.TempDir()
	server, err := queue.Embed(store, queue.EmbedOptions{Logger: log, SyncInterval: time.Second})
	check(err)
	q, err := server.Connect(b.Context(), queue.Options{Logger: log})
	check(err)
	return &site{
		q: q, log: log, store: store,
		submitter: pipeline.Submitter{Job: job, Place: place, Folder: folder, Publisher: q, Log: log},
		close:     func() { check(q.Close()); check(server.Close()) },
	}
}

func unseen(pipeline.Mode, int, bool) {}

// BenchmarkQueueShare is how much of the workers' time goes to the models, with models that take 5 ms for each loop: the
// rest is what queue and storage cost. The job is large enough for each worker to have four shards.
func BenchmarkQueueShare(b *testing.B) {
	const (
		loop      = 5 * time.Millisecond
		length    = 60
		shardRows = 16
	)
	tok, eos := enginetest.Letters(b, "ab")
	for _, workers := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			for b.Loop() {
				s := newSite(b, pipeline.Job{
					Name: "bench", Modes: []pipeline.Mode{pipeline.ArS}, ShardRows: shardRows, Samples: 1, MaxNewTokens: length,
					Sampling: spec.Sampling{Temperature: 1}, Seed: 1,
				})
				if _, err := s.submitter.Publish(b.Context(), &prompts{n: 4 * workers * shardRows}, unseen); err != nil {
					b.Fatal(err)
				}
				drain, stop := context.WithCancel(b.Context())
				var inModels atomic.Int64
				var running sync.WaitGroup
				began := time.Now()
				for n := range workers {
					source, err := s.q.Source(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					w := pipeline.Worker{
						Name: fmt.Sprint(n), Source: source, MaxAttempts: 1, Log: s.log,
						Open: func(context.Context, *pipeline.Job, pipeline.Place, pipeline.Mode) (engine.Pair, func(), error) {
							m := enginetest.New(b, 3, func([]int32) []float32 { // never the end
								logits := make([]float32, 3)
								for i := range logits {
									if eos == int32(i) {
										logits[i] = -1e9
									}
								}
								return logits
							})
							m.Before = func() {
								began := time.Now()
								time.Sleep(loop)
								inModels.Add(int64(time.Since(began)))
							}
							return engine.Pair{Target: m, Tokenizer: tok, EOS: []int32{eos}}, func() {}, nil
						},
						Report: func(p pipeline.Progress) {
							if p.Shards > 0 && s.submitter.Folder.Done() {
								stop()
							}
						},
					}
					running.Go(func() {
						if err := w.Run(b.Context(), drain); err != nil {
							b.Error(err)
						}
						if err := source.Close(); err != nil {
							b.Error(err)
						}
					})
				}
				running.Wait()
				wall := time.Since(began)
				b.ReportMetric(float64(inModels.Load())/float64(int64(workers)*int64(wall)), "share")
				b.ReportMetric(float64(4*workers*shardRows*length)/wall.Seconds(), "tokens/s")
				stop()
				s.close()
			}
		})
	}
}

// BenchmarkSubmit is a job of a million prompts: how fast they are queued on the embedded server as submit sets it up, in how
// much memory, and how long a look at such a job takes.
func BenchmarkSubmit(b *testing.B) {
	const rows = 1_000_000
	for b.Loop() {
		s := newSite(b, pipeline.Job{
			Name: "bench", Modes: []pipeline.Mode{pipeline.ArS}, ShardRows: 16, Samples: 1, MaxNewTokens: 60,
			Sampling: spec.Sampling{Temperature: 1}, Seed: 1,
		})
		began := time.Now()
		n, err := s.submitter.Publish(b.Context(), &prompts{n: rows}, unseen)
		if err != nil || n.Fresh != rows/16 {
			b.Fatalf("%+v: %v", n, err)
		}
		b.ReportMetric(rows/time.Since(began).Seconds(), "rows/s")
		b.ReportMetric(float64(n.Fresh)/time.Since(began).Seconds(), "shards/s")
		b.ReportMetric(peakMB(b), "MB-peak")
		var worst time.Duration
		for range 5 {
			began := time.Now()
			jobs, err := s.q.Jobs(b.Context(), "bench")
			if err == nil {
				_, err = s.submitter.Folder.CountCommitted("ars")
			}
			if err != nil || len(jobs) != 1 || jobs[0].Queued != n.Fresh {
				b.Fatalf("%+v: %v", jobs, err)
			}
			worst = max(worst, time.Since(began))
		}
		b.ReportMetric(float64(worst.Microseconds())/1000, "ms/status")
		s.close()
	}
}

// peakMB is the most memory that this process has had, server included.
func peakMB(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("no /proc")
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kB float64
			if _, err := fmt.Sscan(rest, &kB); err != nil {
				b.Fatal(err)
			}
			return kB / 1e3
		}
	}
	b.Fatal("no VmHWM")
	return 0
}
