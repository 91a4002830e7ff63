package ort

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// narrowT is a model folder like dir with a cache of 8 bits, measured on noise.
func narrowT(t *testing.T, dir string) string {
	t.Helper()
	m := loadT(t, dir, Options{Context: 64})
	r := m.Bundle().NewCacheRange()
	d := decoderT(t, m)
	for i := range 4 {
		if err := d.MeasureCache(context.Background(), selfTestTokens(44+i, m.Vocab())[i:], r); err != nil {
			t.Fatal(err)
		}
	}
	dst := filepath.Join(t.TempDir(), "narrow")
	if err := m.Bundle().WriteNarrow(dst, r); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestNarrowCache: a model with a cache of 8 bits takes a quarter of float32's memory
// for it, computes nearly what the one with a float cache does and, within rounding,
// what ONNX Runtime's own kernel does with the same folder; company changes no bit.
func TestNarrowCache(t *testing.T) {
	needLibrary(t)
	for _, c := range []struct {
		dir     string
		bound   float64 // of logits over their range: from those of the float cache
		runtime float64 // from those of ONNX Runtime's kernel; rounding decides where a key lies between two integers
	}{
		{"testdata/gqa", 5e-2, 2e-3}, // 7e-3, 3e-7
		{"testdata/gqa-float16", 5e-2, halfTolerance},
		{"../testdata/demo/target", 5e-2, 2e-3},               // 6e-3, 2e-4
		{"../testdata/models/llama-builder", 5e-2, 2e-3},      // 2e-2, 4e-7
		{"../testdata/models/gemma2-builder", 5e-2, 2e-3},     // 2e-3, 4e-7; windows, softcap
		{"../testdata/models/llama-builder-int4", 7e-2, 2e-3}, // 3e-2, 3e-7
	} {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			dir := narrowT(t, c.dir)
			b, plain := openBundleT(t, dir), openBundleT(t, c.dir)
			if size := plain.layout.Cache.Size(); b.layout.Cache != graph.Int8 || b.CacheBytesPerToken()*size != plain.CacheBytesPerToken() || b.Digest == plain.Digest {
				t.Errorf("a cache of %s, %d bytes a token of %d, digests %.8s and %.8s", b.layout.Cache, b.CacheBytesPerToken(), plain.CacheBytesPerToken(), b.Digest, plain.Digest)
			}
			m := loadT(t, dir, Options{Context: 48})
			if m.Ragged() != nil || m.CacheBytesPerToken() != b.CacheBytesPerToken() {
				t.Fatalf("%d bytes a token, ragged: %v", m.CacheBytesPerToken(), m.Ragged())
			}
			if err := m.SelfTest(5); err != nil {
				t.Error(err)
			}
			ours := sequenceT(t, decoderT(t, m))
			float := sequenceT(t, decoderT(t, loadT(t, c.dir, Options{Context: 48})))
			exported := sequenceT(t, decoderT(t, loadT(t, dir, Options{Context: 48, AsExported: true})))
			tokens, past := selfTestTokens(48, m.Vocab()), 0
			for _, n := range []int{20, 1, 5, 3, 1, 7} {
				got := ours.feed(past, tokens[past:past+n]...)
				without := float.feed(past, tokens[past:past+n]...)
				near(t, "ONNX Runtime's kernel", got, exported.feed(past, tokens[past:past+n]...), c.runtime)
				if off := distance(without, got); !(off > 0 && off <= c.bound) {
					t.Errorf("%d tokens behind %d: %.3g of the range from the float cache, at most %.3g is allowed", n, past, off, c.bound)
				}
				past += max(1, n-2) // some are taken back
			}
			playCompany(t, decoderT(t, m), decoderT(t, m), rand.New(rand.NewPCG(8, 8)), 15)
		})
	}
}

// TestNarrowCacheForCUDA: the graph for ONNX Runtime's PagedAttention has its caches
// in 8 bits, and is what the schema wants: a session on the CPU finds nothing wrong
// but that it has no kernel. Scales of a type or attributes that the schema does not
// have are found before.
func TestNarrowCacheForCUDA(t *testing.T) {
	needLibrary(t)
	for _, dir := range []string{"testdata/gqa", "testdata/gqa-float16", "../testdata/models/llama-builder-fp16-cuda", "../testdata/models/qwen3-builder", "../testdata/models/llama-builder-int4"} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			b := openBundleT(t, narrowT(t, dir))
			for _, half := range []graph.ElementType{graph.Float16, graph.BFloat16} {
				r := pagedT(t, b, half)
				if r.Cache != graph.Int8 {
					t.Errorf("caches of %s", r.Cache)
				}
				lacks := "Could not find an implementation for PagedAttention(1) node with name "
				err := openOnCPU(t, r.Model, b)
				if err == nil || !strings.Contains(err.Error(), lacks) && !strings.Contains(err.Error(), "Type Error: Type 'tensor(float)' of input parameter (InsertedPrecisionFreeCast_") {
					t.Errorf("a session on the CPU: got %v, want %q", err, lacks)
				}
			}
			for what, damage := range map[string]func(n *onnxpb.NodeProto){
				"the lengths in a scale's place":  func(n *onnxpb.NodeProto) { n.Input[14] = n.Input[5] },
				"an attribute that is not there":  func(n *onnxpb.NodeProto) { n.Attribute[len(n.Attribute)-1].Name = proto.String("k_quant") },
				"a kind of scale that is a float": func(n *onnxpb.NodeProto) { n.Attribute[len(n.Attribute)-1].Type = proto.Int32(1) },
			} {
				r := pagedT(t, b, graph.BFloat16)
				for _, n := range r.Model.Graph.Node {
					if n.GetOpType() == "PagedAttention" {
						damage(n)
					}
				}
				if err := openOnCPU(t, r.Model, b); err == nil || strings.Contains(err.Error(), "Could not find an implementation for PagedAttention") {
					t.Errorf("%s: got %v, want an error of the schema", what, err)
				}
			}
		})
	}
}

// TestNarrowCacheInBlocks: the caches as devices keep them, and an export whose scales
// are one number each.
func TestNarrowCacheInBlocks(t *testing.T) {
	dir := narrowT(t, modelDir("gqa"))
	for _, p := range []paging{{block: 256, sequences: 3, metadata: true, moves: true}, {block: 32, sequences: 2, metadata: true, moves: true}} {
		m := loadT(t, dir, Options{Context: 48, paging: &p})
		playCompany(t, decoderT(t, m), decoderT(t, loadT(t, dir, Options{Context: 48})), rand.New(rand.NewPCG(7, 3)), 30)
	}
	editNarrow(t, dir, func(m *onnxpb.ModelProto) {
		for _, w := range m.Graph.Initializer {
			if strings.HasPrefix(w.GetName(), "cache.") {
				w.Dims, w.RawData = []int64{1}, w.RawData[:4]
			}
		}
		for _, n := range m.Graph.Node {
			for _, a := range n.Attribute {
				if strings.HasSuffix(a.GetName(), "_quant_type") {
					a.S = []byte("PER_TENSOR")
				}
			}
		}
	})
	m := loadT(t, dir, Options{Context: 48})
	if m.Ragged() != nil {
		t.Fatal(m.Ragged())
	}
	ours, exported := sequenceT(t, decoderT(t, m)), sequenceT(t, decoderT(t, loadT(t, dir, Options{Context: 48, AsExported: true})))
	tokens := selfTestTokens(30, m.Vocab())
	near(t, "one scale for all", ours.feed(0, tokens...), exported.feed(0, tokens...), 1e-2)
	if r := pagedT(t, openBundleT(t, dir), graph.BFloat16); !strings.Contains(openOnCPU(t, r.Model, m.Bundle()).Error(), "Could not find an implementation for PagedAttention") {
		t.Error("one scale for all: the graph for CUDA is not the schema's")
	}
}

// editNarrow changes the graph of a folder that narrowT made.
func editNarrow(t *testing.T, dir string, change func(m *onnxpb.ModelProto)) {
	t.Helper()
	path := filepath.Join(dir, "model.onnx")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	change(m)
	writeModel(t, dir, m)
}

// TestDamagedScales: what is wrong with the scales of a cache is one clear line.
func TestDamagedScales(t *testing.T) {
	source := narrowT(t, modelDir("gqa"))
	number := func(x float64) func(m *onnxpb.ModelProto) {
		return func(m *onnxpb.ModelProto) {
			for _, w := range m.Graph.Initializer {
				if w.GetName() == "cache.1.v_scale" {
					bits := math.Float32bits(float32(x))
					copy(w.RawData[8:], []byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
				}
			}
		}
	}
	scale := func(change func(w *onnxpb.TensorProto)) func(m *onnxpb.ModelProto) {
		return func(m *onnxpb.ModelProto) {
			for _, w := range m.Graph.Initializer {
				if w.GetName() == "cache.0.k_scale" {
					change(w)
				}
			}
		}
	}
	node := func(change func(n *onnxpb.NodeProto)) func(m *onnxpb.ModelProto) {
		return func(m *onnxpb.ModelProto) {
			for _, n := range m.Graph.Node {
				if n.GetOpType() == "GroupQueryAttention" {
					change(n)
				}
			}
		}
	}
	attribute := func(name, value string) func(m *onnxpb.ModelProto) {
		return node(func(n *onnxpb.NodeProto) {
			for _, a := range n.Attribute {
				if a.GetName() == name {
					a.S, a.I = []byte(value), proto.Int64(4)
				}
			}
		})
	}
	for _, c := range []struct {
		want   string
		change func(m *onnxpb.ModelProto)
	}{
		{"number 2 of the cache's scale cache.1.v_scale is NaN: want a positive one", number(math.NaN())},
		{"number 2 of the cache's scale cache.1.v_scale is 0: want a positive one", number(0)},
		{"cache.1.v_scale is -1: want", number(-1)},
		{"cache.1.v_scale is +Inf: want", number(math.Inf(1))},
		{"k_scale is missing or no constant", node(func(n *onnxpb.NodeProto) { n.Input[12] = "" })},
		{"v_scale is missing or no constant", node(func(n *onnxpb.NodeProto) { n.Input = n.Input[:13] })},
		{"k_scale is missing or no constant", node(func(n *onnxpb.NodeProto) { n.Input[12] = n.Input[0] })},
		{"as k_quant_type says", scale(func(w *onnxpb.TensorProto) { w.Dims = []int64{1, 1, 2, 16} })},
		{"as k_quant_type says", scale(func(w *onnxpb.TensorProto) { w.Dims = []int64{32} })},
		{"as k_quant_type says", scale(func(w *onnxpb.TensorProto) { w.Dims = []int64{-1, 2, 1, 16} })},
		{"has 16 numbers: want 1, or 2 KV heads of size 16", func(m *onnxpb.ModelProto) {
			scale(func(w *onnxpb.TensorProto) { w.Dims = []int64{2, 1, 8} })(m)
			for _, v := range m.Graph.Input { // the graph leaves the size of heads open
				if strings.HasPrefix(v.GetName(), "past") {
					v.Type.TensorType.Shape.Dim[3].Value = nil
				}
			}
		}},
		{"k_scale is float16", scale(func(w *onnxpb.TensorProto) { w.DataType = proto.Int32(int32(graph.Float16)) })},
		{"has 8 bytes, want 128", scale(func(w *onnxpb.TensorProto) { w.RawData = w.RawData[:8] })},
		{"as v_quant_type says", attribute("v_quant_type", "PER_TENSOR")},
		{`v_quant_type is "NONE": want`, attribute("v_quant_type", "NONE")},
		{`k_quant_type is "PER_ROW": want`, attribute("k_quant_type", "PER_ROW")},
		{"kv_cache_bit_width is 4 for a cache of int8", attribute("kv_cache_bit_width", "")},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
			t.Fatal(err)
		}
		editNarrow(t, dir, c.change)
		if b, err := OpenBundle(dir); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "model.onnx: node ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, %v, want %q", b, err, c.want)
		}
	}
}

// TestNarrowNeeds: what has no cache to narrow says so, and nothing is left behind.
func TestNarrowNeeds(t *testing.T) {
	for dir, want := range map[string]string{
		modelDir("growing"):         "with the growing contract",
		narrowT(t, modelDir("gqa")): "this one is int8",
	} {
		b := openBundleT(t, dir)
		parent := t.TempDir()
		if err := b.WriteNarrow(filepath.Join(parent, "x"), b.NewCacheRange()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
	b := openBundleT(t, modelDir("gqa"))
	if err := b.WriteNarrow(t.TempDir(), b.NewCacheRange()); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("got %v", err)
	}
}

// TestNarrowCacheOnDevices: WebGPU has no kernel for such caches, and says so at once.
func TestNarrowCacheOnDevices(t *testing.T) {
	b := openBundleT(t, narrowT(t, modelDir("gqa")))
	for device, want := range map[string]string{"cpu": "", "cuda:1": "", "webgpu": "caches of 8 bits run on cpu and cuda only"} {
		d, err := parseDevice(Options{Device: device})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.fits(b); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", device, err, want)
		}
	}
}
