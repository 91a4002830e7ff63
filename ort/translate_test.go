package ort

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestTranslateIsTransformers: the translation pair decodes greedily, token by
// token, what transformers does, and its logits are within 1e-4 of the largest. They
// are not scaled: at temperature 1 the best of 512 tokens has a probability to speak of.
func TestTranslateIsTransformers(t *testing.T) {
	for _, name := range []string{"target", "draft"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("..", "testdata", "translate", name)
			data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
			if err != nil {
				t.Fatal(err)
			}
			var golden []struct {
				IDs, Output []int32
				At          []int
				Logits      [][]float32
			}
			if err := json.Unmarshal(data, &golden); err != nil || len(golden) == 0 {
				t.Fatalf("%d sentences: %v", len(golden), err)
			}
			m := loadT(t, dir, Options{Threads: 1})
			if why := m.Ragged(); why != nil {
				t.Fatal(why)
			}
			d := decoderT(t, m)
			for i, g := range golden {
				slot, out := alloc(t, d), m.Bundle().Encoder.Start
				for len(out) < len(g.Output) {
					span := Span{Slot: slot, Past: len(g.IDs) + len(out) - 1, Tokens: out[len(out)-1:], Rows: 1, Input: len(g.IDs)}
					if len(out) == 1 {
						span.Past, span.Tokens = 0, slices.Concat(g.IDs, out)
					}
					logits, err := d.Forward(t.Context(), []Span{span})
					if err != nil {
						t.Fatal(err)
					}
					if at := slices.Index(g.At, len(out)-1); at >= 0 {
						if off := relative(logits, g.Logits[at], m.Vocab()); !(off <= exact) {
							t.Errorf("sentence %d, token %d: the logits are %.2g off", i, len(out), off)
						}
						top, sum := slices.Max(logits), 0.0
						for _, l := range logits {
							sum += math.Exp(float64(l - top))
						}
						if best := 1 / sum; !(best > 0.1) {
							t.Errorf("sentence %d, token %d: the most likely one has the probability %.3f", i, len(out), best)
						}
					}
					best := 0
					for x := range logits {
						if logits[x] > logits[best] {
							best = x
						}
					}
					out = append(out[:len(out):len(out)], int32(best))
				}
				if !slices.Equal(out, g.Output) {
					t.Errorf("sentence %d: %v, transformers has %v", i, out, g.Output)
				}
				d.Free(slot)
			}
		})
	}
}
