package convert_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/convert"
	"github.com/draftmill/draftmill/ort/graph"
)

// TestTrimmedHead: the tokens that a trimmed head scores have the logits of the
// whole one, to the bit, the others -Inf; with the head's weights shared with the
// embeddings or not, with caps, in all ways of storing, and in passes for several
// sequences.
func TestTrimmedHead(t *testing.T) {
	for name, o := range map[string]convert.Options{
		"llama": {Precision: "fp32"}, "qwen2": {}, "gemma2": {Precision: "fp16"}, "qwen3": {Precision: "int8"},
		"gpt2": {Block: 64}, "gguf/llama-q4_0.gguf": {}, "gguf/llama-q4_1.gguf": {}, "gguf/qwen3.gguf": {Precision: "fp32"}, "phi3": {Asymmetric: new(false)},
	} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			src := filepath.Join("testdata", name)
			whole, _ := importT(t, src, o)
			bundle, err := ort.OpenBundle(whole)
			if err != nil {
				t.Fatal(err)
			}
			o.Head = []int32{1, 7, 3, 7, int32(bundle.Vocab - 1), 20}
			trimmed, r := importT(t, src, o)
			kept := append(slices.Clone(o.Head), bundle.EOS...)
			text := []int32{5, 9, 2, 30, 4}
			want, got := rowsOf(t, whole, text), rowsOf(t, trimmed, text)
			for i := range want {
				w := float64(want[i])
				if !slices.Contains(kept, int32(i%bundle.Vocab)) {
					w = math.Inf(-1)
				}
				if float64(got[i]) != w {
					t.Fatalf("%s: logit %d of row %d is %v, want %v", r.Settings, i%bundle.Vocab, i/bundle.Vocab, got[i], w)
				}
			}
		})
	}
	for _, head := range [][]int32{{}, {-1}, {1 << 20}} {
		if _, err := convert.Import(t.Context(), filepath.Join("testdata", "llama"), filepath.Join(t.TempDir(), "x"), convert.Options{Head: head}); err == nil {
			t.Errorf("a head for %v was made", head)
		}
	}
}

// rowsOf are the logits of a text, of a model that runs passes for several
// sequences.
func rowsOf(t *testing.T, dir string, text []int32) []float32 {
	t.Helper()
	bundle, err := ort.OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := bundle.Details(); err != nil || d.Ragged != nil {
		t.Fatal(err, d.Ragged)
	}
	d := decoderT(t, dir)
	slot, err := d.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	return forward(t, d, slot, 0, text)
}

// TestTrimmedHeadOfWantedRows: behind the rewriting the head works on the wanted
// rows alone, as a whole one does.
func TestTrimmedHeadOfWantedRows(t *testing.T) {
	dir, _ := importT(t, filepath.Join("testdata", "llama"), convert.Options{Head: []int32{1, 2, 3}})
	m, err := graph.Read(filepath.Join(dir, "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := graph.NewRagged(m, graph.RaggedOptions{Domain: graph.OwnDomain, Take: func(*graph.Matrix) bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	rows, head := -1, -1
	for i, n := range r.Model.Graph.Node {
		if slices.Contains(n.Input, graph.LogitRows) {
			rows = i
		}
		if strings.HasPrefix(n.GetName(), "/lm_head/MatMul") {
			head = i
		}
	}
	if rows < 0 || head < 0 || rows > head {
		t.Errorf("rows are picked at node %d, the head is node %d", rows, head)
	}
}
