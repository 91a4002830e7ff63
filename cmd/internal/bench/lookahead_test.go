package bench

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/library"
	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
	"github.com/draftmill/draftmill/storage"
)

// demo is the demo pair, open, and the prompts of its dataset.
type demo struct {
	target, draft engine.Decoder
	tokenizer     *tokenize.Tokenizer
	eos           []int32
	vocab         int
	prompts       [][]int32
	texts         [][]int32 // prompts with their solutions
}

func openDemo(b *testing.B) *demo {
	b.Helper()
	check := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	lib, err := library.Find("")
	check(err)
	check(ort.Init(lib))
	open := func(name string) (*ort.Decoder, *ort.Bundle) {
		bundle, err := ort.OpenBundle(filepath.Join(root, "testdata/demo", name))
		check(err)
		model, err := ort.Load(bundle, ort.Options{})
		check(err)
		d, err := model.NewDecoder(0)
		check(err)
		b.Cleanup(func() { check(errors.Join(d.Close(), model.Close())) })
		return d, bundle
	}
	d := &demo{}
	target, bundle := open("target")
	draft, _ := open("draft")
	d.target, d.draft = target, draft
	d.eos, d.vocab = bundle.EOS, bundle.Vocab
	d.tokenizer, err = tokenize.Load(bundle.Tokenizer)
	check(err)
	data, err := storage.OpenDataset(filepath.Join(root, "testdata/demo/minieval.parquet"), storage.Columns{})
	check(err)
	defer data.Close()
	for {
		row, err := data.Next()
		if errors.Is(err, io.EOF) {
			return d
		}
		check(err)
		for to, text := range map[*[][]int32]string{&d.prompts: string(row.Prompt), &d.texts: row.Fields["prompt"] + row.Fields["canonical_solution"]} {
			ids, err := d.tokenizer.Encode(text)
			check(err)
			*to = append(*to, ids)
		}
	}
}

// table is a trigram table over the first half of the dataset; only the second
// half is decoded.
func (d *demo) table(b *testing.B) *spec.NGram {
	b.Helper()
	trainer, err := spec.NewNGramTrainer(3, d.vocab)
	if err != nil {
		b.Fatal(err)
	}
	for _, text := range d.texts[:len(d.texts)/2] {
		if err := trainer.Add(text); err != nil {
			b.Fatal(err)
		}
	}
	return trainer.Table(sha256.Sum256(nil))
}

// rounds is how often every prompt is decoded by everyone.
const rounds = 2

// contestant is one way of decoding.
type contestant struct {
	name     string
	pair     engine.Pair
	settings engine.Settings
}

// race decodes every prompt with every contestant, in an order that is drawn
// anew for every prompt, and returns nanoseconds per token. What else runs on
// the machine, and what each leaves behind in the processor's caches, thus meets
// all of them alike.
func (d *demo) race(b *testing.B, field []contestant, prompts [][]int32, rounds int) map[string]float64 {
	b.Helper()
	engines := make([]*engine.Engine, len(field))
	for i, c := range field {
		c.pair.Target, c.pair.Tokenizer, c.pair.EOS = d.target, d.tokenizer, d.eos
		var err error
		if engines[i], err = engine.New(b.Context(), c.pair, c.settings); err != nil {
			b.Fatal(err)
		}
		defer engines[i].Close()
	}
	tokens, spent := make([]float64, len(field)), make([]float64, len(field))
	order := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		for row, prompt := range prompts {
			for _, i := range order.Perm(len(field)) {
				began := time.Now()
				out, err := engines[i].Draw(b.Context(), prompt, spec.Coins{Row: uint64(row), Sample: uint32(round), Seed: 1}, 160)
				if err != nil {
					b.Fatal(err)
				}
				tokens[i] += float64(len(out))
				spent[i] += float64(time.Since(began))
			}
		}
	}
	result := map[string]float64{}
	for i, c := range field {
		result[c.name] = spent[i] / tokens[i]
	}
	return result
}

func fixed(k int) engine.Settings {
	return engine.Settings{K: k, Sampling: spec.Sampling{Temperature: 0.8}}
}

func adaptive(kind string, x float64) engine.Settings {
	s := fixed(8)
	s.Lookahead = spec.Lookahead{Kind: kind, Threshold: x}
	return s
}

// slow is a model that takes several times as long.
type slow struct {
	engine.Decoder
	times int
}

func (s slow) Forward(ctx context.Context, spans []engine.Span) ([]float32, error) {
	for range s.times - 1 {
		if _, err := s.Decoder.Forward(ctx, spans); err != nil {
			return nil, err
		}
	}
	return s.Decoder.Forward(ctx, spans)
}

// BenchmarkLookahead is the speed of the lookahead auto over that of the best
// fixed one, found by a sweep, and over ArS, on the demo dataset, prefill
// included.
func BenchmarkLookahead(b *testing.B) {
	d := openDemo(b)
	for b.Loop() {
		field := []contestant{{"ars", engine.Pair{}, fixed(0)}, {"auto", engine.Pair{Draft: d.draft}, adaptive(spec.AutoLookahead, 0)}}
		sweep := []int{1, 2, 3, 4, 5, 6, 8}
		for _, k := range sweep {
			field = append(field, contestant{fmt.Sprintf("k%d", k), engine.Pair{Draft: d.draft}, fixed(k)})
		}
		field = append(field, contestant{"confidence:0.3", engine.Pair{Draft: d.draft}, adaptive(spec.ConfidenceLookahead, 0.3)})
		took := d.race(b, field, d.prompts, rounds)
		best, at := took["ars"], 0
		for i, k := range sweep {
			if t := took[field[i+2].name]; t < best {
				best, at = t, k
			}
		}
		for _, c := range field[1:] {
			fmt.Fprintf(os.Stderr, "%-16s %.3f of ArS\n", c.name, took["ars"]/took[c.name])
		}
		b.ReportMetric(float64(at), "best-k")
		b.ReportMetric(best/took["auto"], "auto/best")
		b.ReportMetric(took["ars"]/took["auto"], "auto/ars")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDrafters is the speed of every drafter over ArS, at lookahead 4 and
// under auto; among them drafts that are of no use.
func BenchmarkDrafters(b *testing.B) {
	d := openDemo(b)
	table := d.table(b)
	lookup := spec.Lookup{Vocab: d.vocab, N: spec.DefaultLookup}
	for b.Loop() {
		field := []contestant{{"ars", engine.Pair{}, fixed(0)}}
		for _, c := range []contestant{
			{name: "model", pair: engine.Pair{Draft: d.draft}},
			{name: "ngram", pair: engine.Pair{Law: table.Drafter()}},
			{name: "lookup", pair: engine.Pair{Law: lookup}},
			{name: "model+ngram", pair: engine.Pair{Draft: d.draft, Law: table.Drafter()}},
			{name: "model+lookup", pair: engine.Pair{Draft: d.draft, Law: lookup}},
			{name: "uniform", pair: engine.Pair{Law: spec.Uniform{Vocab: d.vocab}}},
			{name: "the target itself", pair: engine.Pair{Draft: d.target}},
			{name: "the target, twice as slow", pair: engine.Pair{Draft: slow{d.target, 2}}},
		} {
			auto := c
			auto.name, auto.settings = c.name+" auto", adaptive(spec.AutoLookahead, 0)
			c.settings = fixed(4)
			field = append(field, c, auto)
		}
		took := d.race(b, field, d.prompts[len(d.prompts)/2:], 2*rounds)
		for i := 1; i < len(field); i += 2 {
			fmt.Fprintf(os.Stderr, "%-26s k4 %.3f  auto %.3f of ArS\n", field[i].name, took["ars"]/took[field[i].name], took["ars"]/took[field[i+1].name])
		}
		for _, name := range []string{"uniform", "the target itself", "the target, twice as slow"} {
			b.ReportMetric(took["ars"]/took[name+" auto"], map[string]string{"uniform": "uniform-auto/ars", "the target itself": "target-auto/ars", "the target, twice as slow": "slow-auto/ars"}[name])
		}
	}
	b.ReportMetric(0, "ns/op")
}
