package ort

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// crossedModels are the encoder-decoder models of testdata/models: merged
// decoders, and decoders in two files.
var crossedModels = []string{"t5-optimum", "t5-optimum-split", "mt5-optimum", "bart-optimum", "bart-optimum-split", "marian-optimum"}

// crossedGolden is what transformers says of one architecture: the input, what
// the decoder sees, and its logits.
type crossedGolden struct {
	golden
	source []int32
}

func readCrossedGolden(t *testing.T, name string) *crossedGolden {
	t.Helper()
	var index struct {
		Source, Text, Branch []int32
		At, K                int
		Models               map[string]struct {
			Vocab int
			Start []int32
		}
	}
	data, err := os.ReadFile(filepath.Join(exportedDir("golden"), "crossed.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	architecture, _, _ := strings.Cut(name, "-")
	if data, err = os.ReadFile(filepath.Join(exportedDir("golden"), architecture+".f32")); err != nil {
		t.Fatal(err)
	}
	m := index.Models[architecture]
	copy(index.Text, m.Start)
	g := &crossedGolden{source: index.Source, golden: golden{text: index.Text, branch: index.Branch, at: index.At, k: index.K, vocab: m.Vocab}}
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

// span feeds tokens of the decoder's behind the first past of them; the input
// goes before them where nothing is cached.
func (g *crossedGolden) span(slot, cached, past int, tokens []int32) Span {
	s := Span{Slot: slot, Past: len(g.source) + past, Tokens: tokens, Rows: len(tokens), Input: len(g.source)}
	if cached == 0 {
		s.Past, s.Tokens = 0, slices.Concat(g.source, tokens)
	}
	return s
}

// crossedWays calls f for a model as it was exported, and rewritten.
func crossedWays(t *testing.T, dir string, f func(t *testing.T, m *Model)) {
	for _, exported := range []bool{true, false} {
		t.Run(map[bool]string{true: "exported", false: "rewritten"}[exported], func(t *testing.T) {
			m := loadT(t, dir, Options{Threads: 1, AsExported: exported})
			if why := m.Ragged(); (why != nil) != exported || m.Exact() == exported {
				t.Fatalf("exact %v, one run for several sequences: %v", m.Exact(), why)
			}
			f(t, m)
		})
	}
}

// TestCrossed: encoder-decoder models give transformers' logits, however
// decoding divides a text into passes.
func TestCrossed(t *testing.T) {
	for _, name := range crossedModels {
		crossedWays(t, exportedDir(name), func(t *testing.T, m *Model) {
			g := readCrossedGolden(t, name)
			if b := m.Bundle(); b.Contract != graph.Crossed || b.Vocab != g.vocab || !slices.Equal(b.Encoder.Start, g.text[:len(b.Encoder.Start)]) {
				t.Fatalf("contract %s, vocabulary %d, start %v", b.Contract, b.Vocab, b.Encoder.Start)
			}
			if err := m.SelfTest(g.k + 1); err != nil {
				t.Error(err)
			}
			d := decoderT(t, m)
			for name, way := range g.ways() {
				slot, cached, worst := alloc(t, d), 0, 0.0
				for _, step := range way {
					got, err := d.Forward(t.Context(), []Span{g.span(slot, cached, step.past, step.tokens)})
					if err != nil {
						t.Fatal(err)
					}
					cached = step.past + len(step.tokens)
					worst = max(worst, relative(got, step.want, g.vocab))
				}
				if !(worst <= exact) {
					t.Errorf("%s: %.2g off, at most %.2g is allowed", name, worst, exact)
				}
				d.Free(slot)
			}
		})
	}
}

func alloc(t *testing.T, d *Decoder) int {
	t.Helper()
	slot, err := d.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// TestCrossedShares: an input that is fed in pieces, shared before and behind its
// end, rolled back, and divided otherwise gives the logits of one fed at once.
func TestCrossedShares(t *testing.T) {
	for _, name := range []string{"t5-optimum", "bart-optimum-split"} {
		crossedWays(t, exportedDir(name), func(t *testing.T, m *Model) {
			g := readCrossedGolden(t, name)
			d := decoderT(t, m)
			in, forward := len(g.source), func(spans ...Span) []float32 {
				t.Helper()
				logits, err := d.Forward(t.Context(), spans)
				if err != nil {
					t.Fatal(err)
				}
				return logits
			}
			share := func(dst, src, n int) {
				t.Helper()
				if err := d.Share(dst, src, n); err != nil {
					t.Fatal(err)
				}
			}
			check := func(what string, got, want []float32) {
				t.Helper()
				if off := relative(got, want, g.vocab); !(off <= exact) {
					t.Errorf("%s: %.2g off, at most %.2g is allowed", what, off, exact)
				}
			}
			a, b, c := alloc(t, d), alloc(t, d), alloc(t, d)
			forward(Span{Slot: a, Tokens: g.source[:5], Input: in})
			share(b, a, 5)
			forward(Span{Slot: a, Past: 5, Tokens: g.source[5:], Input: in})
			if encodedTokens(d, a) != in || encodedTokens(d, b) != 0 {
				t.Error("the encoder is to run once the input is complete, and not before")
			}
			share(c, a, in)
			text := func(slot, past, n int) Span { return g.span(slot, 1, past, g.text[past:past+n]) }
			check("two samples of an input", forward(text(a, 0, 7), text(c, 0, 7)), slices.Concat(g.whole[:7*g.vocab], g.whole[:7*g.vocab]))
			if !holdsTogether(d, a, c) {
				t.Error("two samples do not hold the same states")
			}
			check("shared before the end of the input", forward(Span{Slot: b, Past: 5, Tokens: slices.Concat(g.source[5:], g.text[:7]), Rows: 7, Input: in}), g.whole[:7*g.vocab])
			share(b, a, in+4)
			check("shared behind it", forward(text(b, 4, 8)), g.whole[4*g.vocab:12*g.vocab])
			check("after its first holder went on", forward(text(a, 7, 5)), g.whole[7*g.vocab:12*g.vocab])

			// The same tokens with another division, and back.
			other := forward(Span{Slot: a, Past: in - 2, Tokens: slices.Concat(g.source[in-2:], g.text[:6]), Rows: 6, Input: in - 2})
			if relative(other, g.whole[:6*g.vocab], g.vocab) < 1e-3 {
				t.Error("an input of two tokens fewer gives the same logits")
			}
			check("divided anew", forward(Span{Slot: a, Past: in, Tokens: g.text[:6], Rows: 6, Input: in}), g.whole[:6*g.vocab])

			live := heldBytes(d)
			for _, slot := range []int{a, b, c} {
				d.Free(slot)
			}
			if heldBytes(d) >= live {
				t.Error("nothing was given back")
			}

			s := alloc(t, d)
			for _, c := range []struct {
				span Span
				want string
			}{
				{Span{Tokens: g.source, Rows: 1, Input: in}, "of which 1 are the input's"},
				{Span{Tokens: g.source}, "how many of the tokens are its input"},
			} {
				c.span.Slot = s
				if _, err := d.Forward(t.Context(), []Span{c.span}); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
			}
			long := selfTestTokens(d.model.bundle.Encoder.Most+1, g.vocab)
			if _, err := d.Forward(t.Context(), []Span{{Slot: s, Tokens: long, Input: len(long)}}); !errors.Is(err, ErrContextFull) {
				t.Errorf("got %v, want %v", err, ErrContextFull)
			}
		})
	}
}

// encodedTokens is how many tokens of a slot the encoder has read.
func encodedTokens(d *Decoder, slot int) int {
	switch c := d.caches.(type) {
	case *crossedPaged:
		return c.lanes[slot].input
	case *crossed:
		if e := c.slots[slot].input; e != nil {
			return e.length
		}
	}
	return 0
}

// holdsTogether reports whether two slots, and no third, hold what was made of an
// input.
func holdsTogether(d *Decoder, a, b int) bool {
	switch c := d.caches.(type) {
	case *crossedPaged:
		first := c.tables[a][0]
		return first == c.tables[b][0] && c.pool.holders[first] == 2
	case *crossed:
		e := c.slots[a].input
		return e == c.slots[b].input && e.holders == 2
	}
	return false
}

// heldBytes is what the slots of a decoder hold, in bytes or in blocks.
func heldBytes(d *Decoder) int {
	if c, ok := d.caches.(*crossedPaged); ok {
		return len(c.pool.holders) - len(c.pool.free)
	}
	return int(liveBytes.Load())
}

// TestCrossedBundles: what a folder lacks is said, and the digest covers every
// graph of the model.
func TestCrossedBundles(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		start []int32
		most  int
	}{
		"t5-optimum":         {[]string{"decoder_model_merged.onnx", "encoder_model.onnx", "tokenizer.json"}, []int32{0}, 64},
		"mt5-optimum":        {[]string{"decoder_model_merged.onnx", "encoder_model.onnx", "tokenizer.json"}, []int32{0}, relativePositions},
		"bart-optimum-split": {[]string{"decoder_model.onnx", "decoder_with_past_model.onnx", "encoder_model.onnx", "tokenizer.json"}, []int32{2, 0}, 64},
		"marian-optimum":     {[]string{"decoder_model_merged.onnx", "encoder_model.onnx", "tokenizer.json"}, []int32{1}, 64},
	} {
		b := openBundleT(t, exportedDir(name))
		var files []string
		for _, f := range b.Files {
			files = append(files, f.Name)
		}
		if !slices.Equal(files, c.files) || !slices.Equal(b.Encoder.Start, c.start) || b.Encoder.Most != c.most || b.Context != 2*c.most {
			t.Errorf("%s: files %v, start %v, %d positions, context %d", name, files, b.Encoder.Start, b.Encoder.Most, b.Context)
		}
		details, err := b.Details()
		if err != nil || details.Ragged != nil || details.Parameters == 0 {
			t.Errorf("%s: %v, %+v", name, err, details)
		}
	}
	for _, c := range []struct{ remove, want string }{
		{"decoder_with_past_model.onnx", "decoder_with_past_model.onnx: no such file or directory: an encoder-decoder model is encoder_model.onnx with"},
		{"decoder_model.onnx", "decoder_model.onnx: no such file"},
		{"start", "config.json: no decoder_start_token_id"},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(exportedDir("t5-optimum-split"))); err != nil {
			t.Fatal(err)
		}
		err := os.Remove(filepath.Join(dir, c.remove))
		if c.remove == "start" {
			err = errors.Join(os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"vocab_size": 272}`), 0o600), os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(`{}`), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenBundle(dir); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("model folder %s: %s", dir, c.want)) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// TestCrossedNotRewritten: a decoder that cannot be rewritten runs as it was exported,
// one sequence after another, and says why.
func TestCrossedNotRewritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(exportedDir("t5-optimum-split"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "decoder_with_past_model.onnx")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	// Nothing is added to the logits, but by way of all tokens of a run.
	for _, n := range m.Graph.Node {
		if slices.Equal(n.Output, []string{"logits"}) {
			n.Output[0] = "own"
		}
	}
	m.Graph.Node = append(m.Graph.Node,
		&onnxpb.NodeProto{OpType: proto.String("ReduceSum"), Input: []string{"own"}, Output: []string{"sum"}},
		&onnxpb.NodeProto{OpType: proto.String("Sub"), Input: []string{"sum", "sum"}, Output: []string{"nothing"}},
		&onnxpb.NodeProto{OpType: proto.String("Add"), Input: []string{"own", "nothing"}, Output: []string{"logits"}})
	if data, err = proto.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "(ReduceSum): it mixes tokens"
	model := loadT(t, dir, Options{Threads: 1})
	if why := model.Ragged(); why == nil || !strings.Contains(why.Error(), want) || model.Exact() {
		t.Errorf("not rewritten because of %v, want %s", why, want)
	}
	if details, err := model.Bundle().Details(); err != nil || details.Ragged == nil || !strings.Contains(details.Ragged.Error(), want) {
		t.Errorf("%v, %+v", err, details)
	}
	if err := model.SelfTest(4); err != nil {
		t.Error(err)
	}
}

// TestCrossedFetched: of a repository's files those of one form of the decoder are
// brought.
func TestCrossedFetched(t *testing.T) {
	for name, want := range map[string][]string{
		"t5-optimum":       {"encoder_model.onnx", "decoder_model_merged.onnx"},
		"t5-optimum-split": {"encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"},
	} {
		dir := exportedDir(name)
		var got []string
		err := FetchONNX(dir, func(name string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		}, func(names ...string) error {
			got = append(got, names...)
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v (%v)", name, got, want, err)
		}
	}
	err := FetchONNX(exportedDir("t5-optimum"), func(name string) bool { return name == "encoder_model.onnx" }, func(...string) error { return nil })
	if !errors.Is(err, errNoDecoder) {
		t.Errorf("got %v, want %v", err, errNoDecoder)
	}
}
