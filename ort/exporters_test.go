package ort

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/ort/graph"
)

// exported is a model of testdata/models, made by one of the exporters that
// users have.
type exported struct {
	name         string // ARCHITECTURE-EXPORTER[-PRECISION]
	contract     graph.Contract
	transformers float64 // how far logits may be from transformers' in float32, see relative; 0: as far as they like
	itself       float64 // how far from what the same graph says of the whole text in one forward
}

// What is allowed, and what was measured (ONNX Runtime 1.30, a CPU with AVX-512).
// Weights of 4 bits make another model, which only itself can be the judge of.
// Dynamic int8 gives all tokens of a forward one scale together, and so depends
// on how a text is divided.
const (
	exact      = 1e-4 // 2e-6
	half       = 2e-2 // 3e-3
	bits8      = 2e-1 // 7e-2, of transformers
	blocks     = 1e-4 // 1e-6: weights in blocks with scales of their own
	halfBlocks = 2e-3 // 8e-6, where float16 may round to the next number
	dynamic    = 2e-1 // 8e-2 of itself, 1.3e-1 of transformers
)

var exportedModels = []exported{
	{"gpt2-optimum", graph.Growing, exact, exact},
	{"llama-optimum", graph.Growing, exact, exact},
	{"llama-builder", graph.GQA, exact, exact},
	{"qwen2-optimum", graph.Growing, exact, exact},
	{"qwen2-builder", graph.GQA, exact, exact},
	{"qwen3-optimum", graph.Growing, exact, exact},
	{"qwen3-builder", graph.GQA, exact, exact},
	{"phi3-optimum", graph.Growing, exact, exact},
	{"phi3-builder", graph.GQA, exact, exact},
	{"gemma2-optimum", graph.Growing, exact, exact},
	{"gemma2-builder", graph.GQA, exact, exact},

	{"llama-builder-fp16-cuda", graph.GQA, half, half},
	{"qwen2-builder-fp16-dml", graph.GQA, half, half},
	{"llama-builder-int8", graph.GQA, bits8, blocks},
	{"llama-builder-int4", graph.GQA, 0, blocks},
	{"qwen2-builder-int4", graph.GQA, 0, blocks},
	{"qwen2-builder-int4-cuda", graph.GQA, 0, halfBlocks},
	{"gpt2-optimum-int8", graph.Growing, dynamic, dynamic},
	{"llama-optimum-int8", graph.Growing, dynamic, dynamic},
}

func exportedDir(name string) string { return filepath.Join("..", "testdata", "models", name) }

// golden is what transformers says of one architecture.
type golden struct {
	text, branch []int32
	at, k        int
	vocab        int
	whole        []float32 // logits of the text
	other        []float32 // logits of the branch, behind text[:at]
}

func readGolden(t *testing.T, e exported) *golden {
	t.Helper()
	var index struct {
		Text, Branch []int32
		At, K        int
		Models       map[string]struct{ Vocab int }
	}
	data, err := os.ReadFile(filepath.Join(exportedDir("golden"), "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	architecture, _, _ := strings.Cut(e.name, "-")
	if data, err = os.ReadFile(filepath.Join(exportedDir("golden"), architecture+".f32")); err != nil {
		t.Fatal(err)
	}
	g := &golden{text: index.Text, branch: index.Branch, at: index.At, k: index.K, vocab: index.Models[architecture].Vocab}
	logits := make([]float32, len(data)/4)
	for i := range logits {
		logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	if len(logits) != (len(g.text)+len(g.branch))*g.vocab || g.vocab == 0 {
		t.Fatalf("%d golden logits of %s for %d and %d tokens of a vocabulary of %d", len(logits), architecture, len(g.text), len(g.branch), g.vocab)
	}
	g.whole, g.other = logits[:len(g.text)*g.vocab], logits[len(g.text)*g.vocab:]
	return g
}

// relative is the largest error of a position's logits over their largest
// magnitude, for the worst position.
func relative(got, want []float32, vocab int) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	worst := 0.0
	for p := 0; p < len(want); p += vocab {
		off, size := 0.0, 0.0
		for i := p; i < p+vocab; i++ {
			x, y := float64(got[i]), float64(want[i])
			if math.IsNaN(x) {
				return math.Inf(1)
			}
			off, size = max(off, math.Abs(x-y)), max(size, math.Abs(y))
		}
		worst = max(worst, off/size)
	}
	return worst
}

// step feeds tokens after the first past ones; want comes out.
type step struct {
	past   int
	tokens []int32
	want   []float32
}

// on feeds the next n tokens of the text, or what is left of it.
func (g *golden) on(past, n int) step {
	n = min(n, len(g.text)-past)
	return step{past, g.text[past : past+n], g.whole[past*g.vocab : (past+n)*g.vocab]}
}

// off feeds the branch, wrong drafts that will be taken back.
func (g *golden) off() step { return step{g.at, g.branch, g.other} }

// each feeds the rest of the text, n tokens at a time.
func (g *golden) each(past, n int) (steps []step) {
	for ; past < len(g.text); past += n {
		steps = append(steps, g.on(past, n))
	}
	return steps
}

// ways are the divisions of a text into forwards that decoding makes.
func (g *golden) ways() map[string][]step {
	return map[string][]step{
		"whole prompt":   {g.on(0, len(g.text))},
		"token by token": g.each(0, 1),
		"verification":   append([]step{g.on(0, 6)}, g.each(6, g.k+1)...),
		"rollbacks": slices.Concat(
			[]step{g.on(0, g.at), g.off(), g.on(g.at, g.k+1)},            // all drafts taken back
			g.each(g.at+2, g.k+1),                                        // some, of the text's own
			[]step{g.on(3, g.k+1), g.on(8, g.k+1), g.on(13, 1), g.off()}, // deeper than the last forward
			g.each(g.at, 2),
		),
	}
}

// TestExporters: every exporter's models give transformers' logits, however
// decoding divides a text into forwards.
func TestExporters(t *testing.T) {
	for _, e := range exportedModels {
		t.Run(e.name, func(t *testing.T) { e.divided(t, Options{Threads: 1}) })
	}
}

func (e exported) divided(t *testing.T, o Options) {
	g := readGolden(t, e)
	m := loadT(t, exportedDir(e.name), o)
	if m.Bundle().Contract != e.contract || m.Vocab() != g.vocab {
		t.Fatalf("contract %s with a vocabulary of %d, want %s with %d", m.Bundle().Contract, m.Vocab(), e.contract, g.vocab)
	}
	if err := m.SelfTest(g.k + 1); err != nil {
		t.Error(err)
	}
	d := decoderT(t, m)
	g.adopt(t, e, d)
	for name, way := range g.ways() {
		s := sequenceT(t, d)
		for _, step := range way {
			if off := relative(s.feed(step.past, step.tokens...), step.want, g.vocab); !(off <= e.itself) {
				t.Errorf("%s: %d tokens after %d: %.2g off, at most %.2g is allowed", name, len(step.tokens), step.past, off, e.itself)
			}
		}
		d.Free(s.slot)
	}
}

// adopt compares the whole text in one forward with transformers and, where
// transformers does not decide, makes it what is compared with.
func (g *golden) adopt(t *testing.T, e exported, d *Decoder) {
	t.Helper()
	s := sequenceT(t, d)
	whole := s.feed(0, g.text...)
	other := s.feed(g.at, g.branch...)
	d.Free(s.slot)
	if e.transformers > 0 {
		if off := max(relative(whole, g.whole, g.vocab), relative(other, g.other, g.vocab)); !(off <= e.transformers) {
			t.Errorf("%.2g off transformers' logits, at most %.2g is allowed", off, e.transformers)
		}
	}
	if e.transformers != exact {
		g.whole, g.other = whole, other
	}
}

// TestExportersInCompany: four sequences at different places of the text, one
// of them on the branch, that keep different numbers of the tokens they are
// fed.
func TestExportersInCompany(t *testing.T) {
	for _, e := range exportedModels {
		t.Run(e.name, func(t *testing.T) { e.together(t, Options{Threads: 1}) })
	}
}

func (e exported) together(t *testing.T, o Options) {
	const sequences = 4
	g := readGolden(t, e)
	m := loadT(t, exportedDir(e.name), o)
	if err := m.SelfTest(g.k + 1); err != nil {
		t.Error(err)
	}
	d := decoderT(t, m)
	g.adopt(t, e, d)
	slots, past := make([]int, sequences), make([]int, sequences)
	for i, from := range []int{1, 6, 9, g.at} {
		s := sequenceT(t, d)
		s.feed(0, g.text[:from]...)
		slots[i], past[i] = s.slot, from
	}
	for round, kept := range [][]int{{1, 5, 2, 0}, {5, 0, 3, 4}, {2, 1, 5, 1}, {0, 0, 0, 0}} {
		steps, tokens := make([]step, sequences), make([][]int32, sequences)
		for i := range sequences {
			if steps[i] = g.on(past[i], g.k+1); round == 0 && past[i] == g.at {
				steps[i] = g.off()
			}
			tokens[i] = steps[i].tokens
		}
		logits, err := d.Forward(t.Context(), whole(slots, past, tokens))
		if err != nil {
			t.Fatal(err)
		}
		n := len(logits) / sequences
		for i, step := range steps {
			if off := relative(logits[i*n:(i+1)*n], step.want, g.vocab); !(off <= e.itself) {
				t.Errorf("sequence %d: %d tokens after %d: %.2g off, at most %.2g is allowed", i, len(step.tokens), step.past, off, e.itself)
			}
			past[i] += kept[i]
		}
	}
}

// TestExportersRefused: what cannot verify drafts is refused by the name of
// what stands in the way, and the remedy.
func TestExportersRefused(t *testing.T) {
	for name, want := range map[string]string{
		"window":   "GroupQueryAttention /model/layers.0/attn/GroupQueryAttention keeps a window of its cache only, and what has left it cannot be taken back; export it with windowed_kv_cache=false",
		"pruned":   "output logits covers the last position only, which cannot verify drafts: export it without prune_lm_head",
		"headless": "no output logits: not a language model with its head",
		"paged":    "PagedAttention: a cache in pages is not supported; export it without use_paged_attention",
		"no-past":  "no cache inputs (past_key_values.N.key): export it with its KV cache (task text-generation-with-past)",
	} {
		dir := exportedDir(filepath.Join("refused", name))
		if _, err := OpenBundle(dir); err == nil || err.Error() != "model folder "+dir+": model.onnx: "+want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	for name, want := range map[string]string{
		exportedDir("refused/no-verification"): "5 tokens behind 16 cannot be scored at once, so that this model cannot verify drafts; export it with GroupQueryAttention or with Optimum",
		exportedDir("qwen3-builder-webgpu"):    "q_norm_weight / k_norm_weight inputs are not supported",
	} {
		m := loadT(t, name, Options{Threads: 1, AsExported: true})
		err := m.SelfTest(5)
		if err == nil || !strings.HasPrefix(err.Error(), "self-test of "+name) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// TestLengthBranches: Phi-3's tables for long texts end the context before they
// are taken, in the export that has them.
func TestLengthBranches(t *testing.T) {
	if b := openBundleT(t, exportedDir("phi3-builder")); b.Context != 32 {
		t.Errorf("context %d, want 32", b.Context)
	}
	if b := openBundleT(t, exportedDir("phi3-optimum")); b.Context != 128 { // traced on a short text: it has one table
		t.Errorf("context %d, want 128", b.Context)
	}
}
