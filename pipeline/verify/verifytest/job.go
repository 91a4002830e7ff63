// Package verifytest makes jobs of a scripted pair of models, and changes them
// behind the back of their digests, for tests of what checks a log.
package verifytest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// newModel is a decoder whose logits are a hash of the prefix. A prefix that begins
// with poison and is long enough gives NaN.
func newModel(t testing.TB, vocab, context int, seed uint64, poison int32) *enginetest.Model {
	m := enginetest.New(t, vocab, func(prefix []int32) (out []float32) {
		h := seed
		for _, x := range prefix {
			h = h*0x9E3779B97F4A7C15 + uint64(x) + 1
		}
		r, shared := rand.New(rand.NewPCG(h, seed)), rand.New(rand.NewPCG(h^seed, 1))
		for range vocab { // alike enough that some drafts are accepted
			out = append(out, float32(0.5*r.NormFloat64()+shared.NormFloat64()))
		}
		if prefix[0] == poison && len(prefix) > 9 {
			out[len(out)-1] = float32(math.NaN())
		}
		return out
	})
	m.Length = context
	return m
}

const alphabet = "abcdefgh"

// Prompts are the rows of the dataset, [Texts]: one is null, one meets NaN on the
// way, one fills most of the target's context.
type Prompts struct{ next int }

// Texts are the prompts.
var Texts = []string{"abc", "hgfedc", "", "bcde", "gabcdefh", "cde", "abcdefghabcdefghabcdefgh", "de", "fg", "e", "hh"}

// Next implements pipeline.Rows.
func (p *Prompts) Next() (storage.Row, error) {
	if p.next == len(Texts) {
		return storage.Row{}, io.EOF
	}
	i := p.next
	p.next++
	return storage.Row{Index: int64(i), ID: fmt.Sprintf("Test/%d", i), Prompt: []byte(Texts[i]), Null: Texts[i] == ""}, nil
}

// line is a queue in memory, and each of its deliveries.
type line struct {
	waiting []delivery
	empty   func()
}

type delivery struct {
	key  string
	data []byte
}

func (q *line) Publish(_ context.Context, key string, data []byte) (bool, error) {
	q.waiting = append(q.waiting, delivery{key, data})
	return true, nil
}

func (q *line) Next(ctx context.Context) (pipeline.Delivery, error) {
	if len(q.waiting) == 0 {
		q.empty()
		return nil, ctx.Err()
	}
	d := q.waiting[0]
	q.waiting = q.waiting[1:]
	return d, nil
}

func (d delivery) Key() string                                { return d.key }
func (d delivery) Data() []byte                               { return d.data }
func (d delivery) Attempt() int                               { return 1 }
func (d delivery) Trace(ctx context.Context) context.Context  { return ctx }
func (d delivery) Advance()                                   {}
func (d delivery) Ack(context.Context) error                  { return nil }
func (d delivery) Retry(context.Context, time.Duration) error { return nil }
func (d delivery) Release(context.Context) error              { return nil }
func (d delivery) Reject(context.Context, error) error        { return nil }

// Job is a job in which completions end in every way.
func Job() pipeline.Job {
	return pipeline.Job{
		Name: "replayed", Dataset: pipeline.Dataset{Name: "texts", SHA256: "00"},
		Modes: []pipeline.Mode{pipeline.ArS, pipeline.SpS}, ShardRows: 4,
		Target: pipeline.Model{Name: "t", Digest: "1"}, Draft: &pipeline.Model{Name: "d", Digest: "2"}, K: 4,
		Sampling: spec.Sampling{Temperature: 0.9, TopP: 0.95}, Seed: 11, Samples: 3, MaxNewTokens: 16, Stop: []string{"fa", "ddd"},
	}
}

// Pair is what the job's rows are decoded with in a mode.
func Pair(t testing.TB, job *pipeline.Job, m pipeline.Mode) engine.Pair {
	vocab := len(alphabet) + 1
	target := newModel(t, vocab, 30, 5, 6)
	target.Before = func() { // so that drafting pays
		for began := time.Now(); time.Since(began) < 100*time.Microsecond; {
		}
	}
	tok, eos := enginetest.Letters(t, alphabet)
	pair := engine.Pair{Target: target, Tokenizer: tok, EOS: []int32{eos}}
	if m == pipeline.SpS && job.Drafter != nil {
		pair.Law = job.Drafter.Law(vocab, nil)
	}
	if m == pipeline.SpS && job.Draft != nil {
		pair.Draft = newModel(t, vocab, 28, 6, -1)
	}
	if m == pipeline.SpS && job.Beams != nil {
		pair.Draft = beamDraft(t, vocab)
	}
	return pair
}

// beamDraft is the target at two lengths of three, as whole beams are to be alike.
func beamDraft(t testing.TB, vocab int) *enginetest.Model {
	like, other := newModel(t, vocab, 28, 5, -1), newModel(t, vocab, 28, 6, -1)
	logits := like.Logits
	like.Logits = func(prefix []int32) []float32 {
		if len(prefix)%3 == 0 {
			return other.Logits(prefix)
		}
		return logits(prefix)
	}
	return like
}

// Decoded runs a job through the pipeline, as far as its first shards say (all
// of them if shards is negative).
func Decoded(t testing.TB, job pipeline.Job, shards int) *storage.Job {
	t.Helper()
	identity, err := job.Spec()
	if err != nil {
		t.Fatal(err)
	}
	place := pipeline.Place{Out: t.TempDir()}
	folder, err := storage.CreateJob(place.Out, job.Name, identity)
	if err != nil {
		t.Fatal(err)
	}
	ctx, done := context.WithCancel(t.Context())
	defer done()
	queue := &line{empty: done}
	s := &pipeline.Submitter{Job: job, Place: place, Folder: folder, Publisher: queue}
	if _, err := s.Publish(ctx, &Prompts{}, func(pipeline.Mode, int, bool) {}); err != nil {
		t.Fatal(err)
	}
	if shards >= 0 {
		queue.waiting = queue.waiting[:shards*len(job.Modes)]
	}
	w := &pipeline.Worker{
		Name: "w", Source: queue, MaxAttempts: 1, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Open: func(_ context.Context, job *pipeline.Job, _ pipeline.Place, m pipeline.Mode) (engine.Pair, func(), error) {
			return Pair(t, job, m), func() {}, nil
		},
	}
	if err := w.Run(t.Context(), ctx); err != nil {
		t.Fatal(err)
	}
	return folder
}

// Part is the content of one shard in one mode.
type Part struct {
	Completions []storage.Completion
	Loops       []storage.Loop
}

// Content is a job in memory: by mode, then by shard.
type Content map[string][]*Part

// Load reads a complete job.
func Load(t testing.TB, folder *storage.Job) Content {
	t.Helper()
	m, err := folder.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	all := Content{}
	for _, f := range m.Files {
		for len(all[f.Mode]) <= f.Shard {
			all[f.Mode] = append(all[f.Mode], &Part{})
		}
		p := all[f.Mode][f.Shard]
		if f.Table == "completions" {
			err = storage.ReadCompletions(folder.Bucket(), f.Path, f.SHA256, func(c storage.Completion) error {
				p.Completions = append(p.Completions, c)
				return nil
			})
		} else {
			err = storage.ReadLoops(folder.Bucket(), f.Path, f.SHA256, func(l storage.Loop) error {
				p.Loops = append(p.Loops, l)
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Clone copies rows, so that a test can change them.
func (all Content) Clone() Content {
	c := Content{}
	for mode, shards := range all {
		for _, p := range shards {
			q := &Part{slices.Clone(p.Completions), slices.Clone(p.Loops)}
			for i := range q.Completions {
				x := &q.Completions[i]
				x.Tokens, x.LogProbs = slices.Clone(x.Tokens), slices.Clone(x.LogProbs)
				if x.Score != nil {
					score := *x.Score
					x.Score = &score
				}
			}
			for i := range q.Loops {
				l := &q.Loops[i]
				l.Drafted, l.P, l.Q = slices.Clone(l.Drafted), slices.Clone(l.P), slices.Clone(l.Q)
				l.Coins, l.Overlap, l.Below = slices.Clone(l.Coins), slices.Clone(l.Overlap), slices.Clone(l.Below)
			}
			c[mode] = append(c[mode], q)
		}
	}
	return c
}

// Rewritten is a copy of a complete job, of which was is the content, in which
// rows say what all says: whole Parquet files, and manifests with their
// digests.
func Rewritten(t testing.TB, folder *storage.Job, was, all Content) *storage.Job {
	t.Helper()
	scratch, err := storage.CreateJob(t.TempDir(), folder.Name(), folder.Spec())
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), folder.Name())
	if err := os.CopyFS(copied, os.DirFS(folder.Dir())); err != nil {
		t.Fatal(err)
	}
	for mode, shards := range all {
		for shard, p := range shards {
			if reflect.DeepEqual(p, was[mode][shard]) {
				continue
			}
			w, err := scratch.NewShardWriter(mode, shard)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range p.Completions {
				if err := w.AddCompletion(c); err != nil {
					t.Fatal(err)
				}
			}
			for _, l := range p.Loops {
				if err := w.AddLoop(l); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{
				fmt.Sprintf("completions/mode=%s/part-%05d.parquet", mode, shard),
				fmt.Sprintf("loops/mode=%s/part-%05d.parquet", mode, shard),
				fmt.Sprintf("_shards/mode=%s/part-%05d.json", mode, shard),
			} {
				data, err := os.ReadFile(filepath.Join(scratch.Dir(), name))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(copied, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	again, err := storage.OpenJob(copied)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := again.Finalize(t.Context()); err != nil || !done {
		t.Fatalf("the Rewritten job is not complete: %v", err)
	}
	return again
}
