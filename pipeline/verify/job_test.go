package verify

import (
	"context"
	"encoding/json"
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

	"go.uber.org/goleak"

	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/engine/enginetest"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is a decoder whose logits are a hash of the prefix. A prefix that begins
// with poison and is long enough gives NaN.
func model(t testing.TB, vocab, context int, seed uint64, poison int32) *enginetest.Model {
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

// letters is a tokenizer whose token i is the i-th letter; the id after the
// last one ends a sequence.
func letters(t testing.TB) *tokenize.Tokenizer {
	t.Helper()
	vocab := map[string]int{"<eos>": len(alphabet)}
	for i, c := range alphabet {
		vocab[string(c)] = i
	}
	data, err := json.Marshal(map[string]any{
		"version":       "1.0",
		"added_tokens":  []map[string]any{{"id": len(alphabet), "content": "<eos>", "special": true}},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenize.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// prompts: one is null, one meets NaN on the way, one fills most of the
// target's context.
type prompts struct{ next int }

var texts = []string{"abc", "hgfedc", "", "bcde", "gabcdefh", "cde", "abcdefghabcdefghabcdefgh", "de", "fg", "e", "hh"}

func (p *prompts) Next() (storage.Row, error) {
	if p.next == len(texts) {
		return storage.Row{}, io.EOF
	}
	i := p.next
	p.next++
	return storage.Row{Index: int64(i), ID: fmt.Sprintf("Test/%d", i), Prompt: []byte(texts[i]), Null: texts[i] == ""}, nil
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
func (d delivery) Ack(context.Context) error                  { return nil }
func (d delivery) Retry(context.Context, time.Duration) error { return nil }
func (d delivery) Release(context.Context) error              { return nil }
func (d delivery) Reject(context.Context, error) error        { return nil }

func testJob() pipeline.Job {
	return pipeline.Job{
		Name: "replayed", Dataset: pipeline.Dataset{Name: "texts", SHA256: "00"},
		Modes: []pipeline.Mode{pipeline.ArS, pipeline.SpS}, ShardRows: 4,
		Target: pipeline.Model{Name: "t", Digest: "1"}, Draft: &pipeline.Model{Name: "d", Digest: "2"}, K: 4,
		Sampling: spec.Sampling{Temperature: 0.9, TopP: 0.95}, Seed: 11, Samples: 3, MaxNewTokens: 16, Stop: []string{"fa", "ddd"},
	}
}

// decoded runs a job through the pipeline, as far as its first shards say (all
// of them if shards is negative).
func decoded(t testing.TB, job pipeline.Job, shards int) *storage.Job {
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
	if _, err := s.Publish(ctx, &prompts{}, func(pipeline.Mode, int, bool) {}); err != nil {
		t.Fatal(err)
	}
	if shards >= 0 {
		queue.waiting = queue.waiting[:shards*len(job.Modes)]
	}
	tok := letters(t)
	w := &pipeline.Worker{
		Name: "w", Source: queue, MaxAttempts: 1, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Open: func(_ context.Context, job *pipeline.Job, _ pipeline.Place, m pipeline.Mode) (engine.Pair, func(), error) {
			vocab := len(alphabet) + 1
			target := model(t, vocab, 30, 5, 6)
			target.Before = func() { // so that drafting pays
				for began := time.Now(); time.Since(began) < 100*time.Microsecond; {
				}
			}
			pair := engine.Pair{
				Target:    target,
				Tokenizer: tok, EOS: []int32{int32(len(alphabet))},
			}
			if m == pipeline.SpS && job.Drafter != nil {
				pair.Law = job.Drafter.Law(vocab, nil)
			}
			if m == pipeline.SpS && job.Draft != nil {
				pair.Draft = model(t, vocab, 28, 6, -1)
			}
			return pair, func() {}, nil
		},
	}
	if err := w.Run(t.Context(), ctx); err != nil {
		t.Fatal(err)
	}
	return folder
}

// part is the content of one shard in one mode.
type part struct {
	completions []storage.Completion
	loops       []storage.Loop
}

// content is a job in memory: by mode, then by shard.
type content map[string][]*part

// load reads a complete job.
func load(t testing.TB, folder *storage.Job) content {
	t.Helper()
	m, err := folder.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	all := content{}
	for _, f := range m.Files {
		for len(all[f.Mode]) <= f.Shard {
			all[f.Mode] = append(all[f.Mode], &part{})
		}
		p, path := all[f.Mode][f.Shard], filepath.Join(folder.Dir(), f.Path)
		if f.Table == "completions" {
			err = storage.ReadCompletions(path, f.SHA256, func(c storage.Completion) error {
				p.completions = append(p.completions, c)
				return nil
			})
		} else {
			err = storage.ReadLoops(path, f.SHA256, func(l storage.Loop) error {
				p.loops = append(p.loops, l)
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// clone copies rows, so that a test can change them.
func (all content) clone() content {
	c := content{}
	for mode, shards := range all {
		for _, p := range shards {
			q := &part{slices.Clone(p.completions), slices.Clone(p.loops)}
			for i := range q.completions {
				q.completions[i].Tokens = slices.Clone(q.completions[i].Tokens)
			}
			for i := range q.loops {
				l := &q.loops[i]
				l.Drafted, l.P, l.Q = slices.Clone(l.Drafted), slices.Clone(l.P), slices.Clone(l.Q)
				l.Coins, l.Overlap, l.Below = slices.Clone(l.Coins), slices.Clone(l.Overlap), slices.Clone(l.Below)
			}
			c[mode] = append(c[mode], q)
		}
	}
	return c
}

// rewritten is a copy of a complete job, of which was is the content, in which
// rows say what all says: whole Parquet files, and manifests with their
// digests.
func rewritten(t testing.TB, folder *storage.Job, was, all content) *storage.Job {
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
			for _, c := range p.completions {
				if err := w.AddCompletion(c); err != nil {
					t.Fatal(err)
				}
			}
			for _, l := range p.loops {
				if err := w.AddLoop(l); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{partPath("completions", pipeline.Mode(mode), shard), partPath("loops", pipeline.Mode(mode), shard), commitPath(pipeline.Mode(mode), shard)} {
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
		t.Fatalf("the rewritten job is not complete: %v", err)
	}
	return again
}
