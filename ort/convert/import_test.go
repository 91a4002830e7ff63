package convert_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/convert"
	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/library"
)

func TestMain(m *testing.M) {
	path, err := library.Find("")
	if err == nil {
		err = ort.Init(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// golden is what transformers computes of a checkpoint in testdata, in float32.
type golden struct {
	Text, Branch []int32
	At, K, Vocab int
	whole, other []float32
}

func readGolden(t *testing.T, name string) *golden {
	t.Helper()
	g := &golden{}
	data, err := os.ReadFile(filepath.Join("testdata", "golden", "golden.json"))
	if err == nil {
		err = json.Unmarshal(data, g)
	}
	if err == nil {
		data, err = os.ReadFile(filepath.Join("testdata", "golden", name+".f32"))
	}
	if err != nil {
		t.Fatal(err)
	}
	logits := make([]float32, len(data)/4)
	for i := range logits {
		logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	if len(logits) != (len(g.Text)+len(g.Branch))*g.Vocab {
		t.Fatalf("%d golden logits of %s", len(logits), name)
	}
	g.whole, g.other = logits[:len(g.Text)*g.Vocab], logits[len(g.Text)*g.Vocab:]
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

func importT(t *testing.T, src string, o convert.Options) (string, *convert.Report) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "model")
	r, err := convert.Import(t.Context(), src, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	return dst, r
}

func decoderT(t *testing.T, dir string) *ort.Decoder {
	t.Helper()
	bundle, err := ort.OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	model, err := ort.Load(bundle, ort.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := model.Close(); err != nil {
			t.Error(err)
		}
	})
	d, err := model.NewDecoder(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// forward feeds tokens behind past ones.
func forward(t *testing.T, d *ort.Decoder, slot, past int, tokens []int32) []float32 {
	t.Helper()
	logits, err := d.Forward(t.Context(), []ort.Span{{Slot: slot, Past: past, Tokens: tokens, Rows: len(tokens)}})
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), logits...)
}

// compare holds a model to golden logits: the whole text at once, token by
// token, and K+1 at a time with another branch taken back in between.
func (g *golden) compare(t *testing.T, d *ort.Decoder, allowed float64) {
	t.Helper()
	slot, err := d.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(slot)
	check := func(what string, got, want []float32) {
		t.Helper()
		if off := relative(got, want, g.Vocab); !(off <= allowed) {
			t.Errorf("%s: %.2g off, at most %.2g is allowed", what, off, allowed)
		} else {
			t.Logf("%s: %.2g off", what, off)
		}
	}
	check("the whole text", forward(t, d, slot, 0, g.Text), g.whole)
	var single []float32
	for i := range g.Text {
		single = append(single, forward(t, d, slot, i, g.Text[i:i+1])...)
	}
	check("token by token", single, g.whole)
	several := forward(t, d, slot, 0, g.Text[:g.At])
	check("a branch", forward(t, d, slot, g.At, g.Branch), g.other)
	for at := g.At; at < len(g.Text); at += g.K + 1 {
		several = append(several, forward(t, d, slot, at, g.Text[at:min(at+g.K+1, len(g.Text))])...)
	}
	check("several at a time after a rollback", several, g.whole)
}

var checkpoints = []string{"llama", "llama3", "llama-linear", "mistral", "qwen2", "qwen2-yarn", "qwen3", "smollm3", "phi3", "gemma2", "gpt2"}

// TestLogits: an import in float32 gives transformers' logits, for every
// architecture.
func TestLogits(t *testing.T) {
	for _, name := range checkpoints {
		t.Run(name, func(t *testing.T) {
			dir, _ := importT(t, filepath.Join("testdata", name), convert.Options{Precision: "fp32"})
			readGolden(t, name).compare(t, decoderT(t, dir), 1e-4)
		})
	}
}

// TestGGUF: the same from GGUF files.
func TestGGUF(t *testing.T) {
	for _, name := range []string{"llama", "llama3", "llama-linear", "qwen2", "qwen2-yarn", "qwen3", "smollm3", "phi3", "gemma2", "gpt2"} {
		t.Run(name, func(t *testing.T) {
			dir, _ := importT(t, filepath.Join("testdata", "gguf", name+".gguf"), convert.Options{Precision: "fp32"})
			readGolden(t, name).compare(t, decoderT(t, dir), 1e-4)
		})
	}
}

// logitsOf are a model's logits of the golden text in one forward.
func logitsOf(t *testing.T, dir string, g *golden) []float32 {
	t.Helper()
	d := decoderT(t, dir)
	slot, err := d.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(slot)
	return forward(t, d, slot, 0, g.Text)
}

// TestPrecisions: what rounding each precision may cost, tied or not, with
// normalized heads, in rows that are no whole blocks. Weights of 16 bits are the
// checkpoints' own.
func TestPrecisions(t *testing.T) {
	for _, c := range []struct {
		model   string
		o       convert.Options
		allowed float64
	}{
		{"llama", convert.Options{Precision: "fp16"}, 1e-4},
		{"qwen2", convert.Options{Precision: "fp16"}, 1e-4},
		{"gemma2", convert.Options{Precision: "fp16"}, 1e-4},
		{"qwen3", convert.Options{Precision: "bf16"}, 0.03},
		{"gpt2", convert.Options{Precision: "int8"}, 0.1},
		{"gemma2", convert.Options{Precision: "int8"}, 0.1},
		{"qwen3", convert.Options{Precision: "int8", Block: 64}, 0.1},
		{"llama", convert.Options{Precision: "int8", Asymmetric: new(true)}, 0.1},
		{"mistral", convert.Options{Precision: "int4", Mixed: true}, 0.1}, // two layers, both in 8 bits
	} {
		t.Run(fmt.Sprintf("%s-%s-%d", c.model, c.o.Precision, c.o.Block), func(t *testing.T) {
			g := readGolden(t, c.model)
			dir, r := importT(t, filepath.Join("testdata", c.model), c.o)
			off := relative(logitsOf(t, dir, g), g.whole, g.Vocab)
			t.Logf("%s: %.2g off", r.Settings, off)
			if !(off <= c.allowed) {
				t.Errorf("%.2g off, at most %.2g is allowed", off, c.allowed)
			}
		})
	}
}

// TestFewBits: 4 bits are too few for models of random weights to stay what they
// are, but what such a graph says does not depend on how a text is cut.
func TestFewBits(t *testing.T) {
	for _, o := range []convert.Options{{}, {Block: 64}, {Asymmetric: new(false)}, {Block: 128, Mixed: true}} {
		for _, name := range []string{"qwen2", "smollm3", "gemma2", "gpt2"} {
			dir, r := importT(t, filepath.Join("testdata", name), o)
			g := readGolden(t, name)
			d := decoderT(t, dir)
			slot, err := d.Alloc()
			if err != nil {
				t.Fatal(err)
			}
			whole := forward(t, d, slot, 0, g.Text)
			parts := forward(t, d, slot, 0, g.Text[:g.At])
			parts = append(parts, forward(t, d, slot, g.At, g.Text[g.At:])...)
			if off := relative(parts, whole, g.Vocab); !(off <= 1e-4) {
				t.Errorf("%s, %s: two parts of a text are %.2g off the whole", name, r.Settings, off)
			}
			d.Free(slot)
		}
	}
}

// TestKeptIntegers: weights of few bits in a GGUF file give the same model as
// their decoded numbers in float32.
func TestKeptIntegers(t *testing.T) {
	g := readGolden(t, "llama")
	for name, again := range map[string]int{"Q4_0": 0, "Q4_1": 1, "Q8_0": 0} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", "gguf", "llama-"+strings.ToLower(name)+".gguf")
			exact, _ := importT(t, file, convert.Options{Precision: "fp32"})
			dir := filepath.Join(t.TempDir(), "model")
			r, err := convert.ImportWide(t.Context(), file, dir, convert.Options{})
			if err != nil {
				t.Fatal(err)
			}
			// Embeddings of Q4_1 have no zero points to be put in, and become 8 bits.
			if r.Kept[name] != 16-again || r.Again[name] != again {
				t.Errorf("kept %v, decoded again %v", r.Kept, r.Again)
			}
			allowed := map[bool]float64{false: 1e-5, true: 0.05}[again > 0]
			off := relative(logitsOf(t, dir, g), logitsOf(t, exact, g), g.Vocab)
			t.Logf("%.2g off", off)
			if !(off <= allowed) {
				t.Errorf("%.2g off", off)
			}
		})
	}
}

// TestZeroPoints: int4 has them on the CPU, where the kernels read no more for it,
// unless they are refused; int8 and GPUs have them where they are asked for. What is
// kept as it is has none, and is not said to have some.
func TestZeroPoints(t *testing.T) {
	const floats, kept = "llama", "gguf/llama-q4_0.gguf"
	for _, c := range []struct {
		from string
		o    convert.Options
		want bool
	}{
		{floats, convert.Options{}, true}, {floats, convert.Options{Precision: "int4"}, true}, {floats, convert.Options{Asymmetric: new(false)}, false},
		{floats, convert.Options{Precision: "int8"}, false}, {floats, convert.Options{Precision: "int8", Asymmetric: new(true)}, true},
		{floats, convert.Options{Device: "webgpu"}, false}, {floats, convert.Options{Device: "webgpu", Asymmetric: new(true)}, true},
		{kept, convert.Options{}, false},
	} {
		dir, r := importT(t, filepath.Join("testdata", c.from), c.o)
		model, err := graph.Read(filepath.Join(dir, "model.onnx"))
		if err != nil {
			t.Fatal(err)
		}
		matrices := 0
		for _, n := range model.Graph.Node {
			if n.GetOpType() != "MatMulNBits" {
				continue
			}
			matrices++
			if got := len(n.Input) > 3 && n.Input[3] != ""; got != c.want {
				t.Errorf("%s: %s has zero points: %v", r.Settings, n.GetName(), got)
			}
		}
		if matrices == 0 || strings.Contains(r.Settings, "zero points") != c.want {
			t.Errorf("%s: %d matrices", r.Settings, matrices)
		}
	}
}

// TestMinimaOnTheCPU: a GGUF file's Q4_1 has zero points with fractions, which the
// CPU's kernels do not take. Its weights get 8 bits there, where nothing else is
// asked for; GPUs keep them.
func TestMinimaOnTheCPU(t *testing.T) {
	for _, c := range []struct {
		o    convert.Options
		bits int64
		kept int
	}{
		{convert.Options{}, 8, 0}, {convert.Options{Precision: "int8"}, 8, 0}, {convert.Options{Precision: "int4"}, 4, 0},
		{convert.Options{Device: "webgpu"}, 4, 15}, {convert.Options{Device: "cuda", Precision: "int4"}, 4, 15},
	} {
		dir, r := importT(t, filepath.Join("testdata", "gguf", "llama-q4_1.gguf"), c.o)
		if r.Kept["Q4_1"] != c.kept {
			t.Errorf("%s: kept %v, decoded again %v", r.Settings, r.Kept, r.Again)
		}
		model, err := graph.Read(filepath.Join(dir, "model.onnx"))
		if err != nil {
			t.Fatal(err)
		}
		types := map[string]graph.ElementType{}
		for _, x := range model.Graph.Initializer {
			types[x.GetName()] = graph.ElementType(x.GetDataType())
		}
		for _, n := range model.Graph.Node {
			if n.GetOpType() != "MatMulNBits" {
				continue
			}
			zeros := len(n.Input) > 3 && n.Input[3] != ""
			if fractions := zeros && types[n.Input[3]] != graph.Uint8; fractions != (c.kept > 0) {
				t.Errorf("%s: zero points of %s are %v", r.Settings, n.GetName(), types[n.Input[3]])
			}
			for _, a := range n.Attribute {
				if a.GetName() == "bits" && a.GetI() != c.bits {
					t.Errorf("%s: %s has %d bits", r.Settings, n.GetName(), a.GetI())
				}
			}
		}
	}
}

// TestSameBytes: an import gives the same files again.
func TestSameBytes(t *testing.T) {
	var digests []string
	for range 2 {
		dir, _ := importT(t, "testdata/llama3", convert.Options{})
		b, err := ort.OpenBundle(dir)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, b.Digest)
	}
	if digests[0] != digests[1] {
		t.Error(digests)
	}
}

// TestCached: two that ask at the same time convert once, and who asks again
// converts nothing; other settings and another source are other models.
func TestCached(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	var reports atomic.Int32
	var dirs sync.Map
	ask := func(src string, o convert.Options) string {
		dir, r, err := convert.Cached(t.Context(), src, o, nil)
		if err != nil {
			t.Error(err)
		}
		if r != nil {
			reports.Add(1)
		}
		dirs.Store(dir, true)
		return dir
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { ask("testdata/qwen2", convert.Options{}) })
	}
	wg.Wait()
	first := ask("testdata/qwen2", convert.Options{})
	if n := reports.Load(); n != 1 {
		t.Errorf("converted %d times", n)
	}
	if again := ask("testdata/qwen2", convert.Options{Precision: "fp32"}); again == first || reports.Load() != 2 {
		t.Errorf("other settings: %s", again)
	}
	if again := ask("testdata/gguf/qwen2.gguf", convert.Options{}); again == first || reports.Load() != 3 {
		t.Errorf("another source: %s", again)
	}
	entries, err := os.ReadDir(filepath.Dir(first))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), "partial") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("told to stop"))
	if _, _, err := convert.Cached(stopped, "testdata/llama", convert.Options{}, nil); err == nil || !strings.Contains(err.Error(), "told to stop") {
		t.Errorf("interrupted: %v", err)
	}
}

// TestCachedAfterAKill: what a killed process left of a conversion goes when the
// model is asked for again, and nothing else does. A cache that cannot be written
// is an error that says what to do, unless the model is there already.
func TestCachedAfterAKill(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	const src = "testdata/llama"
	dir, _, err := convert.Cached(t.Context(), src, convert.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".partial-123")
	other := filepath.Join(filepath.Dir(dir), ".other-int4-0123.partial-123")
	for _, partial := range []string{left, other} {
		if err := os.MkdirAll(filepath.Join(partial, "in"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if again, r, err := convert.Cached(t.Context(), src, convert.Options{}, nil); again != dir || r == nil || err != nil {
		t.Errorf("%s %v %v", again, r, err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", left, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}

	// Where nothing is remembered of the source and nothing can be.
	sources := filepath.Join(cache, "draftmill", "models", "sources")
	if err := errors.Join(os.RemoveAll(sources), os.WriteFile(sources, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if again, r, err := convert.Cached(t.Context(), src, convert.Options{}, nil); again != dir || r != nil || err != nil {
		t.Errorf("%s %v %v", again, r, err)
	}
	file := filepath.Join(cache, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", file)
	if _, _, err := convert.Cached(t.Context(), src, convert.Options{}, nil); err == nil || !strings.HasPrefix(err.Error(), "model testdata/llama: keep it converted: ") || !strings.Contains(err.Error(), "set XDG_CACHE_HOME to a folder that can be written") {
		t.Error(err)
	}
}

// TestImportRefused: a folder that exists is not touched, and an import that
// fails leaves none.
func TestImportRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := convert.Import(t.Context(), "testdata/llama", dir, convert.Options{}); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Error(err)
	}
	for _, c := range []struct {
		src  string
		o    convert.Options
		want string
	}{
		{"testdata/none", convert.Options{}, "model testdata/none: no such file or directory"},
		{"testdata/README.md", convert.Options{}, "model testdata/README.md: neither a folder nor a .gguf file"},
		{"testdata/golden", convert.Options{}, "model testdata/golden: nothing to convert: neither a folder with config.json and model.safetensors nor a .gguf file"},
		{"testdata/formats/formats.gguf", convert.Options{}, `model testdata/formats/formats.gguf: metadata: architecture "formats" is not supported; Llama 1 to 3.x (with SmolLM2 and TinyLlama), Mistral, Qwen2 and 2.5, Qwen3, SmolLM3, Phi-3, Gemma 2 and GPT-2 are; export it with onnxruntime-genai's model builder or Optimum`},
		{"testdata/llama", convert.Options{Precision: "int5"}, `precision "int5" is not known; fp32, fp16, bf16, int8 and int4 are`},
		{"testdata/llama", convert.Options{Block: 48}, "blocks of 48 are not known; 32, 64 and 128 are"},
		{"testdata/llama", convert.Options{Device: "tpu"}, `device "tpu" is not known; cpu, cuda and webgpu are`},
		{"testdata/llama", convert.Options{Precision: "fp16", Mixed: true}, "mixed is int4 with some weights of 8 bits; the precision is fp16"},
		{"testdata/llama", convert.Options{Precision: "fp32", Device: "cuda"}, "attention on cuda has no float32; take fp16, bf16, int8 or int4"},
	} {
		dst := filepath.Join(dir, "made")
		if _, err := convert.Import(t.Context(), c.src, dst, c.o); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.src, err, c.want)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Fatalf("%s: left behind: %v", c.src, left)
		}
	}
}
