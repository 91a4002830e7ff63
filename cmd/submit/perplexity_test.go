package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/cmd/internal/app"
	"github.com/draftmill/draftmill/configs"
	"github.com/draftmill/draftmill/pipeline"
	"github.com/draftmill/draftmill/pipeline/engine"
)

// TestPerplexity: the command's figure is the one of feeding each text token by
// token, and a model is less surprised than a smaller one of its family.
func TestPerplexity(t *testing.T) {
	r := &reading{texts: columnTexts{dataset: demo + "minieval.parquet", columns: []string{"prompt", "canonical_solution"}, limit: 3}, asJSON: true}
	var out bytes.Buffer
	cfg := configs.Config{Lanes: "1", ORT: configs.ORT{Threads: 1, Device: "cpu"}}
	if err := r.run(t.Context(), cfg, []string{demo + "target", demo + "draft"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var found []read
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found[0].Texts != 3 || found[0].Perplexity >= found[1].Perplexity {
		t.Fatalf("found %+v", found)
	}
	// The change is from the first model.
	if want := math.Log(found[1].Perplexity / found[0].Perplexity); *found[0].Change != 0 || math.Abs(*found[1].Change-want) > 1e-9 || *found[1].ChangeStandard <= 0 {
		t.Errorf("changes %v and %v +- %v, want 0 and %v", *found[0].Change, *found[1].Change, *found[1].ChangeStandard, want)
	}
	models := app.NewModels(cfg, slog.New(slog.DiscardHandler))
	defer models.Close()
	ref, place, err := models.Reference(demo + "target")
	if err != nil {
		t.Fatal(err)
	}
	job := &pipeline.Job{Modes: []pipeline.Mode{pipeline.ArS}, Target: ref}
	pair, release, err := models.Open(pipeline.Place{}, 0)(t.Context(), job, pipeline.Place{Target: place}, pipeline.ArS)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	sum, n := 0.0, 0
	for text, err := range r.texts.all(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := pair.Tokenizer.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		slot, err := pair.Target.Alloc()
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range tokens[:len(tokens)-1] {
			if !pair.Target.Reserve(slot, i, 1) {
				t.Fatal("no room")
			}
			logits, err := pair.Target.Forward(t.Context(), []engine.Span{{Slot: slot, Past: i, Tokens: []int32{x}, Rows: 1}})
			if err != nil {
				t.Fatal(err)
			}
			mass := 0.0
			for _, l := range logits {
				mass += math.Exp(float64(l) - float64(logits[tokens[i+1]]))
			}
			sum -= math.Log(mass)
			n++
		}
		pair.Target.Free(slot)
	}
	if want := math.Exp(-sum / float64(n)); n != found[0].Tokens || math.Abs(found[0].Perplexity-want) > 1e-6*want {
		t.Errorf("perplexity %v of %d tokens, want %v of %d", found[0].Perplexity, found[0].Tokens, want, n)
	}
}

// TestPerplexityReference: a model is at no distance from itself, and a smaller
// one of its family at what the definition gives of its rows of logits.
func TestPerplexityReference(t *testing.T) {
	r := &reading{texts: columnTexts{dataset: demo + "minieval.parquet", columns: []string{"prompt", "canonical_solution"}, limit: 2}, reference: demo + "target", asJSON: true}
	cfg := configs.Config{Lanes: "1", ORT: configs.ORT{Threads: 1, Device: "cpu"}}
	var out bytes.Buffer
	if err := r.run(t.Context(), cfg, []string{demo + "target", demo + "draft"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var found []read
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || *found[0].Divergence > 1e-12 || *found[0].Same != 1 || *found[0].Change != 0 || *found[0].ChangeStandard != 0 {
		t.Fatalf("found %s", out.String())
	}
	if want := math.Log(found[1].Perplexity / found[0].Perplexity); math.Abs(*found[1].Change-want) > 1e-9 || *found[1].DivergenceStandard <= 0 {
		t.Errorf("change %v from the reference, want %v; divergence +- %v", *found[1].Change, want, *found[1].DivergenceStandard)
	}
	p, err := openReader(t.Context(), cfg, demo+"target", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	q, err := openReader(t.Context(), cfg, demo+"draft", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	var kl, same, n float64
	for text, err := range r.texts.all(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := p.pair.Tokenizer.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		a, b := softmaxes(t, p.pair.Target, tokens), softmaxes(t, q.pair.Target, tokens)
		for i := range a {
			topA, topB := 0, 0
			for x := range a[i] {
				kl += a[i][x] * (math.Log(a[i][x]) - math.Log(b[i][x]))
				if a[i][x] > a[i][topA] {
					topA = x
				}
				if b[i][x] > b[i][topB] {
					topB = x
				}
			}
			if n++; topA == topB {
				same++
			}
		}
	}
	if int(n) != found[1].Tokens || math.Abs(*found[1].Divergence-kl/n) > 1e-4*kl/n || math.Abs(*found[1].Same-same/n) > 1e-9 {
		t.Errorf("divergence %v, same %v of %d tokens; want %v and %v of %v", *found[1].Divergence, *found[1].Same, found[1].Tokens, kl/n, same/n, n)
	}
}

// softmaxes is a model's distributions behind each token of a text but the last.
func softmaxes(t *testing.T, model engine.Decoder, tokens []int32) (all [][]float64) {
	t.Helper()
	slot, err := model.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	defer model.Free(slot)
	n := len(tokens) - 1
	if !model.Reserve(slot, 0, n) {
		t.Fatal("no room")
	}
	logits, err := model.Forward(t.Context(), []engine.Span{{Slot: slot, Tokens: tokens[:n], Rows: n}})
	if err != nil {
		t.Fatal(err)
	}
	for vocab := model.Vocab(); len(logits) > 0; logits = logits[vocab:] {
		row, mass := make([]float64, vocab), 0.0
		for i, l := range logits[:vocab] {
			row[i] = math.Exp(float64(l))
			mass += row[i]
		}
		for i := range row {
			row[i] /= mass
		}
		all = append(all, row)
	}
	return all
}

func TestPerToken(t *testing.T) {
	mean, standard := perToken([]float64{-2, -4}, []float64{2, 4})
	if mean != -1 || standard != 0 {
		t.Errorf("%v +- %v, want -1 +- 0", mean, standard)
	}
	// Two texts of one token each: the error of a mean of two numbers.
	mean, standard = perToken([]float64{-1, -3}, []float64{1, 1})
	if mean != -2 || math.Abs(standard-1) > 1e-12 {
		t.Errorf("%v +- %v, want -2 +- 1", mean, standard)
	}
}

// TestPerplexityChange: what all texts share is no error of a change, and texts of
// which another number of tokens was read are not compared.
func TestPerplexityChange(t *testing.T) {
	counts := []float64{10, 20, 30}
	m := &read{Sums: []float64{-12, -61, -45}, Counts: counts}
	m.changed([]float64{-11, -59, -42}, counts) // by 0.1 a token each
	if m.Change == nil || math.Abs(*m.Change-0.1) > 1e-12 || *m.ChangeStandard > 1e-12 {
		t.Errorf("change %v +- %v, want 0.1 +- 0", m.Change, m.ChangeStandard)
	}
	m.changed([]float64{-12, -60, -42}, counts) // by 0, 1 and 3: off 0.0667 a token by -2/3, -1/3 and 1
	if want := math.Sqrt((4./9+1./9+1)*3/2) / 60; math.Abs(*m.Change-4./60) > 1e-12 || math.Abs(*m.ChangeStandard-want) > 1e-12 {
		t.Errorf("change %v +- %v, want %v +- %v", *m.Change, *m.ChangeStandard, 4./60, want)
	}
	m = &read{Sums: m.Sums, Counts: counts}
	if m.changed(m.Sums, []float64{10, 20, 29}); m.Change != nil {
		t.Error("texts of other lengths were compared")
	}
}

// TestPerplexityTable: columns are there only where there is something to say.
func TestPerplexityTable(t *testing.T) {
	one := func(model string, change, divergence *float64) *read {
		return &read{Model: model, MB: 12, Texts: 3, Tokens: 60, Perplexity: 2, Standard: 0.05, Change: change, ChangeStandard: new(0.01), Divergence: divergence, DivergenceStandard: new(0.002), Same: new(0.9)}
	}
	for _, c := range []struct {
		all  []*read
		want []string
	}{
		{[]*read{one("a", new(0.0), nil)}, []string{"perplexity +- MB texts tokens model", "2.0000 0.1000 12 3 60 a"}},
		{[]*read{one("a", new(0.0), nil), one("b", nil, nil)}, []string{
			"perplexity +- change +- MB texts tokens model", "2.0000 0.1000 +0.00% 1.00% 12 3 60 a", "2.0000 0.1000 - - 12 3 60 b",
		}},
		{[]*read{one("a", new(math.Log(0.98)), new(0.03))}, []string{
			"perplexity +- change +- divergence +- same top MB texts tokens model", "2.0000 0.1000 -2.00% 0.98% 0.0300 0.0020 90.00% 12 3 60 a",
		}},
	} {
		var out strings.Builder
		if err := table(&out, c.all); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(out.String()) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if !slices.Equal(lines, c.want) {
			t.Errorf("got %q, want %q", lines, c.want)
		}
	}
}
